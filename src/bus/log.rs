//! A driver's end of the log: the lane, and what to do when there is no room.

use std::{collections::VecDeque, sync::Arc};

use kvbridge_schemas::{Cursor, Envelope, Event, Trust};

use super::Writer;
use crate::{
    config::SpoolFull,
    shared_log::{Lane, Outgoing},
    telemetry::BusLogMetrics,
};

/// Whether a driver may go on reading its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Yes.
    Taken,
    /// No: wait for room first.
    Blocked,
}

/// Writes one replica's log.
pub struct LogWriter {
    lane: Lane,
    writer: Box<dyn Writer>,
    full: SpoolFull,
    metrics: BusLogMetrics,
    /// Made, and not taken yet; bounded by what one input of the driver makes.
    waiting: VecDeque<Outgoing>,
    made: Vec<Outgoing>,
}

impl LogWriter {
    /// A log without messages.
    pub fn new(
        lane: Lane,
        writer: Box<dyn Writer>,
        full: SpoolFull,
        metrics: BusLogMetrics,
    ) -> LogWriter {
        LogWriter { lane, writer, full, metrics, waiting: VecDeque::new(), made: Vec::new() }
    }

    /// The view was dropped; its life goes on.
    pub fn cleared(&mut self) {
        self.lane.cleared();
    }

    /// A batch was applied.
    pub fn applied(&mut self, envelope: Arc<Envelope>) {
        if self.full == SpoolFull::Resync && self.lane.is_behind() {
            // Whatever comes is covered by the reset that is published when there is room.
            return;
        }
        self.lane.applied(envelope, &mut self.made);
        self.hand_over();
    }

    /// One input of the driver is done; its view stands here.
    pub fn settled(&mut self, cursor: Cursor, trust: Trust) {
        if !self.lane.is_behind() {
            self.lane.settled(cursor, trust, &mut self.made);
            self.hand_over();
        }
    }

    /// Whether [`room`](LogWriter::room) is worth waiting for.
    pub fn wants_room(&self, trust: Trust) -> bool {
        // A log that is behind is continued with a reset, and that needs a view that stands.
        !self.waiting.is_empty() || (self.lane.is_behind() && trust > Trust::None)
    }

    /// Whether messages wait, so that the source must not be read.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Waits until there is room, and writes what waits. Cancel-safe.
    pub async fn room(&mut self, cursor: Cursor, trust: Trust) -> Offered {
        self.writer.room().await;
        if self.lane.is_behind() {
            self.lane.settled(cursor, trust, &mut self.made);
        }
        self.hand_over();
        if self.waiting.is_empty() { Offered::Taken } else { Offered::Blocked }
    }

    fn hand_over(&mut self) {
        self.waiting.extend(self.made.drain(..));
        while let Some(message) = self.waiting.front() {
            if self.writer.publish(message).is_ok() {
                if matches!(message.envelope.events.first(), Some(Event::Reset(_))) {
                    self.metrics.resets.increment(1);
                }
                self.waiting.pop_front();
                continue;
            }
            if self.full == SpoolFull::Resync {
                self.metrics.left_out.increment(1);
                self.lane.left_out(self.waiting.drain(..));
            }
            return;
        }
    }
}
