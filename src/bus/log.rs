//! A driver's end of the log: what its author makes, handed to the bus, and what to do when there
//! is no room.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Cursor, Envelope, Event, Seq, Trust};

use super::{LogLife, Offered, Writer};
use crate::{
    clock::{Clock, millis},
    config::{
        SpoolFull,
        limits::{BUS_FILL_DEADLINE, BUS_FLUSH_DEADLINE, BUS_UNNAMED_BATCHES, BUS_UNNAMED_BYTES},
    },
    shared_log::{Author, Lane, Naming, Outgoing, UnnamedLimits},
    telemetry::BusLogMetrics,
};

/// What may wait until its life has a name.
const UNNAMED: UnnamedLimits =
    UnnamedLimits { batches_max: BUS_UNNAMED_BATCHES, bytes_max: BUS_UNNAMED_BYTES };

/// Writes one replica's log.
pub struct LogWriter {
    author: Author,
    writer: Box<dyn Writer>,
    full: SpoolFull,
    metrics: BusLogMetrics,
    /// Made, and not taken yet; bounded by what one input of the driver makes.
    waiting: VecDeque<Outgoing>,
    /// Where lives are named by the bus.
    life: Option<Arc<LogLife>>,
}

impl LogWriter {
    /// A log without messages, whose lives need no name but recovery's.
    pub fn new(
        lane: Lane,
        writer: Box<dyn Writer>,
        full: SpoolFull,
        metrics: BusLogMetrics,
        bridge: Arc<str>,
    ) -> LogWriter {
        LogWriter {
            author: Author::new(lane, UNNAMED, fill_ms()).by(bridge),
            writer,
            full,
            metrics,
            waiting: VecDeque::new(),
            life: None,
        }
    }

    /// The same, for a bus that names lives: nothing is written before it has.
    pub fn with_life(self, life: Arc<LogLife>) -> LogWriter {
        LogWriter { life: Some(life), ..self }
    }

    /// The life of the log, where the bus names lives.
    pub fn life(&self) -> Option<Arc<LogLife>> {
        self.life.clone()
    }

    /// Lets the author do something, and hands over what it made.
    fn author(&mut self, act: impl FnOnce(&mut Author, Option<&mut Naming>)) {
        match &self.life {
            Some(life) => {
                // A publisher that is to end does so when nothing waits: not between what it had
                // and what is about to be handed over.
                life.set_waits(true);
                life.with(|naming| act(&mut self.author, Some(naming)));
            }
            None => act(&mut self.author, None),
        }
        self.metrics.left_out.increment(self.author.take_left_out());
        self.hand_over();
        if let Some(life) = &self.life {
            life.set_waits(self.author.waits() || !self.waiting.is_empty());
        }
    }

    /// The view was dropped; its life goes on.
    pub fn cleared(&mut self) {
        self.author(|author, life| author.cleared(life));
    }

    /// The source made a new connection; whether the view is kept, and whether such are seen.
    pub fn attached(&mut self, view: bool, blind: bool) {
        self.with_naming(|author, naming| author.attached(naming, view, blind));
    }

    /// A batch was applied.
    pub fn applied(&mut self, envelope: Arc<Envelope>) {
        self.author(|author, life| author.applied(Clock::steady_unix_ms(), envelope, life));
    }

    /// The engine was asked and still has what the view ends with.
    pub fn proven(&self) {
        if let Some(life) = &self.life {
            life.with(|naming| naming.proven(Clock::steady_unix_ms()));
        }
    }

    /// The view lacks batches that another bridge may have written meanwhile: where the log ends is
    /// looked at again before anything is added to it.
    pub fn look_again(&self) {
        if let Some(life) = &self.life {
            life.with(Naming::look_again);
        }
    }

    /// Trust was taken back: said ahead of the data that follows.
    pub fn withdrawn(&mut self, trust: Trust, reason: &'static str) {
        self.author(|author, life| author.withdrawn(trust, reason, life));
    }

    /// One input of the driver is done; its view stands here.
    pub fn settled(&mut self, cursor: Cursor, trust: Trust, reason: &'static str) {
        let now_ms = Clock::steady_unix_ms();
        self.author(|author, life| author.settled(now_ms, cursor, (trust, reason), life));
    }

    /// What the engine's journal shall be asked for, once, by a view that stands.
    pub fn wish(&mut self, stands: bool) -> Option<Seq> {
        self.author.wish(Clock::steady_unix_ms(), stands)
    }

    /// Whether a replayed batch is what the log wishes for.
    pub fn wants(&self, batch: &Batch) -> bool {
        self.author.wants(batch)
    }

    /// A replayed batch that was wished for.
    pub fn answered(&mut self, envelope: Arc<Envelope>) {
        self.with_naming(|author, naming| {
            author.answered(Clock::steady_unix_ms(), envelope, naming)
        });
    }

    /// The journal's time is over: what it did not give is lost.
    fn give_up(&mut self) {
        self.with_naming(|author, naming| author.give_up(Clock::steady_unix_ms(), naming));
    }

    fn take_name(&mut self) {
        self.with_naming(|author, naming| {
            let now_ms = Clock::steady_unix_ms();
            author.take_name(now_ms, naming);
            author.write_unnamed(now_ms, naming);
        });
    }

    /// As [`LogWriter::author`], for what only happens where lives have names.
    fn with_naming(&mut self, act: impl FnOnce(&mut Author, &mut Naming)) {
        self.author(|author, life| {
            if let Some(life) = life {
                act(author, life);
            }
        });
    }

    /// At the end: until nothing waits for a name any more, or the bus cannot be reached.
    pub async fn finish(&mut self) {
        let Some(life) = self.life.clone() else { return };
        let deadline = tokio::time::sleep(BUS_FLUSH_DEADLINE);
        tokio::pin!(deadline);
        while !self.waiting.is_empty() || (self.author.waits() && !life.is_away()) {
            tokio::select! {
                () = &mut deadline => break,
                () = self.writer.room(), if !self.waiting.is_empty() => (),
                () = life.told() => (),
                () = until(self.author.asked_until_ms()) => self.give_up(),
            }
            self.take_name();
        }
        self.author.forget();
        life.set_waits(false);
    }

    // === room ===

    /// Whether [`room`](LogWriter::room) is worth waiting for.
    pub fn wants_room(&self, cursor: Cursor, trust: Trust) -> bool {
        self.can_write(cursor, trust) || self.life.is_some()
    }

    fn can_write(&self, cursor: Cursor, trust: Trust) -> bool {
        let names = self.life.is_some();
        !self.waiting.is_empty() || self.author.can_catch_up(cursor, trust, names)
    }

    /// Whether messages wait, so that the source must not be read.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() || self.is_stuck()
    }

    /// All that could be kept is kept, and only the bus can help. Where it can be reached the life
    /// is compared batch by batch, and the source must be read for that.
    fn is_stuck(&self) -> bool {
        let away = self.life.as_ref().is_some_and(|life| life.is_away());
        self.full == SpoolFull::Block && away && self.author.is_full()
    }

    /// Waits until there is room or a name, and writes what waits. Cancel-safe.
    pub async fn room(&mut self, cursor: Cursor, trust: Trust, reason: &'static str) -> Offered {
        let wanted = self.can_write(cursor, trust);
        tokio::select! {
            () = self.writer.room(), if wanted => (),
            () = told(self.life.as_deref()) => (),
            () = until(self.author.asked_until_ms()) => self.give_up(),
        }
        self.take_name();
        self.author(|author, life| author.catch_up(cursor, trust, life.is_some()));
        self.settled(cursor, trust, reason);
        if self.is_blocked() { Offered::Blocked } else { Offered::Taken }
    }

    fn hand_over(&mut self) {
        self.waiting.extend(self.author.made());
        while let Some(message) = self.waiting.front() {
            if self.writer.publish(message).is_ok() {
                if matches!(message.envelope.events.first(), Some(Event::Reset(_))) {
                    self.metrics.resets.increment(1);
                    if let Some(life) = &self.life {
                        let Envelope { epoch, seq, span, .. } = *message.envelope;
                        life.set_reset(Cursor { epoch, next_seq: seq.plus(u64::from(span)) });
                    }
                }
                self.waiting.pop_front();
                continue;
            }
            if self.full == SpoolFull::Resync {
                self.metrics.left_out.increment(1);
                self.author.left_out(self.waiting.drain(..));
            }
            return;
        }
    }
}

fn fill_ms() -> u64 {
    millis(BUS_FILL_DEADLINE)
}

async fn told(life: Option<&LogLife>) {
    let Some(life) = life else { return std::future::pending().await };
    life.told().await;
}

async fn until(at_ms: Option<u64>) {
    let Some(at_ms) = at_ms else { return std::future::pending().await };
    let left = at_ms.saturating_sub(Clock::steady_unix_ms());
    tokio::time::sleep(Duration::from_millis(left)).await;
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
