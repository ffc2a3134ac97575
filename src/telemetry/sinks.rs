//! What sinks count.

use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, Gauge, counter, gauge};

use super::{label, name};
use crate::{sink_line::Origin, sinks::LineStanding};

/// Handles of one sink.
pub struct SinkMetrics {
    /// See [`name::SINK_MISSED`].
    pub missed: Counter,
    /// See [`name::SINK_REFUSED`].
    pub refused: Counter,
    queue: Gauge,
}

impl SinkMetrics {
    /// Registers the handles.
    pub fn register(sink: &str) -> SinkMetrics {
        let sink = || sink.to_owned();
        SinkMetrics {
            missed: counter!(name::SINK_MISSED, label::SINK => sink()),
            refused: counter!(name::SINK_REFUSED, label::SINK => sink()),
            queue: gauge!(name::SINK_QUEUE, label::SINK => sink()),
        }
    }

    /// How many messages wait.
    pub fn show(&self, waiting: usize) {
        self.queue.set(u32::try_from(waiting).unwrap_or(u32::MAX));
    }
}

/// Handles of one reader that a sink connects to.
pub struct SinkReaderMetrics {
    /// See [`name::SINK_LISTENING`].
    pub listening: Gauge,
    /// See [`name::SINK_WHOLE`].
    pub whole: Counter,
    /// See [`name::SINK_READER_MISSED`].
    pub missed: Counter,
}

impl SinkReaderMetrics {
    /// Registers the handles.
    pub fn register(sink: &str, reader: &str) -> SinkReaderMetrics {
        let (sink, reader) = (|| sink.to_owned(), || reader.to_owned());
        SinkReaderMetrics {
            listening: gauge!(name::SINK_LISTENING, label::SINK => sink(), label::READER => reader()),
            whole: counter!(name::SINK_WHOLE, label::SINK => sink(), label::READER => reader()),
            missed: counter!(name::SINK_READER_MISSED, label::SINK => sink(), label::READER => reader()),
        }
    }
}

/// Handles of the streams of one sink.
#[cfg(feature = "sink-smg")]
pub struct SinkStreamMetrics {
    /// See [`name::SINK_STREAMS_CUT`].
    pub cut: Counter,
    open: Gauge,
    waiting: Gauge,
}

#[cfg(feature = "sink-smg")]
impl SinkStreamMetrics {
    /// Registers the handles.
    pub fn register(sink: &str) -> SinkStreamMetrics {
        let sink = || sink.to_owned();
        SinkStreamMetrics {
            cut: counter!(name::SINK_STREAMS_CUT, label::SINK => sink()),
            open: gauge!(name::SINK_STREAMS, label::SINK => sink()),
            waiting: gauge!(name::SINK_STREAM_WAITING, label::SINK => sink()),
        }
    }

    /// How many are open, and how far the slowest lags.
    pub fn show(&self, open: usize, waiting: usize) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.open.set(count(open));
        self.waiting.set(count(waiting));
    }
}

/// Handles of one replica's line to a sink.
pub struct SinkLineMetrics {
    /// See [`name::SINK_BATCHES`].
    pub batches: Counter,
    /// Requests that are none.
    pub malformed: Counter,
    /// Requests beyond those that may wait.
    pub refused: Counter,
    /// Answers that nobody took.
    pub stalled: Counter,
    /// Streams from a number whose past is gone.
    pub expired: Counter,
    journal: Counter,
    view: Counter,
    nothing: Counter,
    shown: Gauge,
    hidden: Gauge,
}

impl SinkLineMetrics {
    /// Registers the handles.
    pub fn register(sink: &str, key: &ReplicaKey) -> SinkLineMetrics {
        let (sink, key) = (|| sink.to_owned(), || key.to_string());
        let request = |word: &'static str| counter!(name::SINK_REQUESTS, label::SINK => sink(), label::REPLICA => key(), label::OUTCOME => word);
        let blocks = |word: &'static str| gauge!(name::SINK_BLOCKS, label::SINK => sink(), label::REPLICA => key(), label::STATE => word);
        SinkLineMetrics {
            batches: counter!(name::SINK_BATCHES, label::SINK => sink(), label::REPLICA => key()),
            malformed: request("malformed"),
            refused: request("refused"),
            stalled: request("stalled"),
            expired: request("expired"),
            journal: request("journal"),
            view: request("view"),
            nothing: request("nothing"),
            shown: blocks("shown"),
            hidden: blocks("hidden"),
        }
    }

    /// A request was answered.
    pub fn answered(&self, origin: Origin) {
        match origin {
            Origin::Nothing => &self.nothing,
            Origin::Journal => &self.journal,
            Origin::View => &self.view,
        }
        .increment(1);
    }

    /// How the line stands.
    pub fn show(&self, standing: &LineStanding) {
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        self.shown.set(count(standing.shown_count));
        self.hidden.set(count(standing.hidden_count));
    }
}
