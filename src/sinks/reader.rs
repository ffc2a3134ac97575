//! A reader that binds and is connected to.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Dial, DialEvent, Multipart, Parcel};
use tracing::{info, warn};

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
    metrics: SinkReaderMetrics,
    told_whole_count: u64,
}

impl Reader {
    pub(super) fn new(sink: &str, endpoint: &Endpoint) -> Reader {
        let text = endpoint.to_string();
        Reader {
            dial: Dial::spawn(endpoint.authority()),
            connection: 0,
            hearer: Hearer::default(),
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
                }
                if self.hearer.prefix_count() >= limits::SINK_PREFIXES_MAX {
                    warn!(reader = %self.endpoint, "a reader listens to too many topics");
                    return;
                }
                info!(reader = %self.endpoint, "a reader listens, it is told everything");
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
            let messages = vec![live(&Bytes::from(topic.clone()), &last)];
            let parcel = Parcel { connection: self.connection, messages };
            if self.dial.parcels.try_send(parcel).is_err() {
                return false;
            }
            self.hearer.paid(&topic);
        }
        true
    }

    /// Whether something could not be sent to it.
    pub(super) fn lacks(&self, line: &PublishedLine) -> bool {
        self.hearer.lacks(&line.topic)
    }

    /// Tells it all that a line shows, if it has not that.
    pub(super) fn catch_up(&mut self, line: &PublishedLine, at: Moment) {
        if self.lacks(line) {
            self.publish(line, &[], at);
        }
    }

    /// Tells it what a line says, or everything, if it has not what came before.
    pub(super) fn publish(&mut self, line: &PublishedLine, news: &[Payload], at: Moment) {
        let whole = self.hearer.lacks(&line.topic);
        let batches = self.hearer.offered(&line.topic, news, || line.line.whole_batches(at));
        if batches.is_empty() {
            return;
        }
        let topic = line.topic_frame();
        let messages: Vec<Multipart> = batches.iter().map(|batch| live(&topic, batch)).collect();
        let parcel = Parcel { connection: self.connection, messages };
        if self.dial.parcels.try_send(parcel).is_err() {
            // It reads slowly: what it has is taken as nothing, and told when there is room.
            self.hearer.missed(&line.topic, &batches);
            self.metrics.missed.increment(1);
        } else if whole {
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

    /// Says what is left and hangs up.
    pub(super) async fn end(self) {
        self.dial.finish().await;
    }
}
