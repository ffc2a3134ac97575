//! A reader that binds and is connected to.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Dial, DialEvent, Multipart};
use tracing::info;

use super::{answers::live, board::ReaderStanding, line::PublishedLine};
use crate::{
    config::{Endpoint, limits},
    sink_line::{Hearer, Moment, Payload},
    telemetry::SinkReaderMetrics,
};

/// Its connection, and what it was told.
pub(super) struct Reader {
    endpoint: String,
    dial: Dial,
    connection: u64,
    hearer: Hearer,
    /// It had no room: what it lacks is told when it has read all that waits, so that a whole view
    /// is not made for each place that becomes free.
    is_behind: bool,
    metrics: SinkReaderMetrics,
    told_whole_count: u64,
}

impl Reader {
    pub(super) fn new(sink: &str, endpoint: &Endpoint) -> Reader {
        let text = endpoint.to_string();
        Reader {
            dial: Dial::spawn(endpoint.authority(), limits::SINK_PREFIXES_MAX),
            connection: 0,
            hearer: Hearer::default(),
            is_behind: false,
            metrics: SinkReaderMetrics::register(sink, &text),
            told_whole_count: 0,
            endpoint: text,
        }
    }

    /// What became of it. Cancel-safe.
    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<DialEvent> {
        match self.dial.events.poll_recv(context) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Takes what became of it. The lines that it lacks are told by [`Reader::catch_up`].
    pub(super) fn take(&mut self, event: DialEvent) {
        match event {
            DialEvent::Listens { connection, prefix } => {
                if connection != self.connection {
                    self.hearer.lost();
                    self.connection = connection;
                    info!(reader = %self.endpoint, "a reader listens, it is told everything");
                }
                self.hearer.listens(&prefix);
            }
            DialEvent::Leaves { prefix } => self.hearer.leaves(&prefix),
            DialEvent::Lost => self.hearer.lost(),
        }
        self.metrics.listening.set(if self.hearer.is_listening() { 1.0 } else { 0.0 });
    }

    /// Tells it that lines are over of which it may hold something. Whether it had room.
    pub(super) fn pay(&mut self) -> bool {
        while let Some((topic, last)) = self.hearer.owed() {
            let Some(place) = self.dial.place() else { return false };
            let messages = vec![live(&Bytes::from(topic.clone()), &last)];
            place.fill(self.connection, messages);
            self.hearer.paid(&topic);
        }
        true
    }

    /// Whether something could not be sent to it.
    pub(super) fn lacks(&self, line: &PublishedLine) -> bool {
        self.hearer.lacks(&line.spot.topic)
    }

    /// Tells it all that a line shows, if it has not that.
    pub(super) fn catch_up(&mut self, line: &PublishedLine, at: Moment) {
        if self.lacks(line) {
            self.publish(line, &[], at);
        }
    }

    /// Tells it what a line says, or everything, if it has not what came before.
    pub(super) fn publish(&mut self, line: &PublishedLine, news: &[Payload], at: Moment) {
        if !self.hearer.hears(&line.spot.topic) {
            return;
        }
        let whole = self.hearer.lacks(&line.spot.topic);
        self.is_behind &= !self.dial.is_idle();
        if whole && self.is_behind {
            return;
        }
        // Before anything is made: a whole view is much work.
        let Some(place) = self.dial.place() else {
            self.is_behind = true;
            if !whole {
                // What it has is taken as nothing.
                self.hearer.missed(&line.spot.topic);
                self.metrics.missed.increment(1);
            }
            return;
        };
        let batches = self.hearer.offered(&line.spot.topic, news, || line.line.whole_batches(at));
        if batches.is_empty() {
            return;
        }
        let topic = line.topic_frame();
        let messages: Vec<Multipart> = batches.iter().map(|batch| live(&topic, batch)).collect();
        place.fill(self.connection, messages);
        if whole {
            self.told_whole_count += 1;
            self.metrics.whole.increment(1);
        }
    }

    /// A line is over, and that was published.
    pub(super) fn ends(&mut self, topic: &str, last_word: &Payload) {
        self.hearer.ends(topic, Arc::clone(last_word));
    }

    pub(super) fn standing(&self) -> ReaderStanding {
        ReaderStanding {
            endpoint: self.endpoint.clone(),
            is_listening: self.hearer.is_listening(),
            told_whole_count: self.told_whole_count,
        }
    }

    /// Says that all is gone and hangs up.
    pub(super) async fn end(self) {
        let last: Vec<Multipart> = if self.dial.is_idle() {
            Vec::new()
        } else {
            let words = self.hearer.last_words();
            words.map(|(topic, last)| live(&Bytes::from(topic.to_owned()), &last)).collect()
        };
        self.dial.finish(self.connection, last).await;
    }
}
