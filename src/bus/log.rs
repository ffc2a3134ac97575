//! A driver's end of the log: the lane, what waits for a name, and what to do when there is no
//! room.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Cursor, Envelope, Epoch, Event, Seq, Trust, TrustChange};

use super::{LogLife, Name, Named, Offered, Writer, unnamed::Unnamed};
use crate::{
    clock::Clock,
    config::{
        SpoolFull,
        limits::{BUS_FILL_DEADLINE, BUS_FLUSH_DEADLINE},
    },
    shared_log::{Lane, Outgoing},
    telemetry::BusLogMetrics,
};

/// Writes one replica's log.
pub struct LogWriter {
    lane: Lane,
    writer: Box<dyn Writer>,
    full: SpoolFull,
    metrics: BusLogMetrics,
    /// Made, and not taken yet; bounded by what one input of the driver makes.
    waiting: VecDeque<Outgoing>,
    made: Vec<Outgoing>,
    /// Where lives are named by the bus.
    life: Option<Arc<LogLife>>,
    /// Who speaks.
    bridge: Arc<str>,
    turn: u64,
    /// Recovery's number of the life, and its name on the bus.
    named: Option<(Epoch, Epoch)>,
    unnamed: Unnamed,
    asked: Option<Asked>,
    /// Where the journal did not give what it was asked for.
    spent: Option<Seq>,
    /// What was last said of trust, of which life.
    said: Option<(Epoch, Trust)>,
}

/// What the engine's journal is asked for, on behalf of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    next: Seq,
    /// Where the wish ends; `None` = one batch, to compare.
    end: Option<Seq>,
    until_ms: u64,
    /// The driver has not been told yet.
    fresh: bool,
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
            lane,
            writer,
            full,
            metrics,
            waiting: VecDeque::new(),
            made: Vec::new(),
            life: None,
            bridge,
            turn: 0,
            named: None,
            unnamed: Unnamed::default(),
            asked: None,
            spent: None,
            said: None,
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

    /// The view was dropped; its life goes on.
    pub fn cleared(&mut self) {
        self.unnamed.clear();
        self.asked = None;
        self.lane.cleared();
    }

    /// A batch was applied.
    pub fn applied(&mut self, envelope: Arc<Envelope>) {
        if let Some(life) = &self.life {
            life.heard(&envelope, Clock::unix_ms());
            self.take_name();
            let left_out = self.unnamed.hold(envelope);
            self.metrics.left_out.increment(left_out);
            return self.write_unnamed();
        }
        self.write(envelope);
    }

    /// The engine was asked and still has what the view ends with.
    pub fn proven(&self) {
        if let Some(life) = &self.life {
            life.proven(Clock::unix_ms());
        }
    }

    /// The view lacks batches that another bridge may have written meanwhile: where the log ends is
    /// looked at again before anything is added to it.
    pub fn look_again(&self) {
        if let Some(life) = &self.life {
            life.look_again();
        }
    }

    fn write(&mut self, envelope: Arc<Envelope>) {
        if self.full == SpoolFull::Resync && self.lane.is_behind() {
            // Whatever comes is covered by the reset that is published when there is room.
            return;
        }
        let envelope = match self.name_of(envelope.epoch) {
            Some(name) if name != envelope.epoch => {
                Arc::new(Envelope { epoch: name, ..Arc::unwrap_or_clone(envelope) })
            }
            _ => envelope,
        };
        self.lane.applied(envelope, &mut self.made);
        self.hand_over();
    }

    /// What the bus calls a life of recovery's.
    fn name_of(&self, local: Epoch) -> Option<Epoch> {
        match (&self.life, self.named) {
            (None, _) => Some(local),
            (Some(_), Some((known, name))) if known == local => Some(name),
            (Some(_), _) => None,
        }
    }

    /// Trust was taken back: said ahead of the data that follows.
    pub fn withdrawn(&mut self, trust: Trust, reason: &'static str) {
        if let Some(life) = &self.life {
            life.stands(trust, reason);
        }
        self.say(trust, reason);
        self.hand_over();
    }

    /// One input of the driver is done; its view stands here.
    pub fn settled(&mut self, cursor: Cursor, trust: Trust, reason: &'static str) {
        if let Some(life) = &self.life {
            life.stands(trust, reason);
            if trust > Trust::None {
                life.stands_at(cursor);
            }
        }
        self.take_name();
        let Some(epoch) = self.name_of(cursor.epoch) else { return };
        if self.lane.is_behind() || self.asked.is_some() {
            return;
        }
        let cursor = Cursor { epoch, ..cursor };
        self.lane.settled(cursor, trust, &mut self.made);
        // The log may still be of the life before: what holds of this one is not said there.
        if self.lane.log().is_some_and(|log| log.epoch == epoch) {
            self.say(trust, reason);
        }
        self.hand_over();
    }

    fn say(&mut self, trust: Trust, reason: &str) {
        // A log without a message yet is none that anybody could misread.
        let Some(log) = self.lane.log() else { return };
        let has_name = self.life.is_none() || self.named.is_some();
        let said = self.said.filter(|(epoch, _)| *epoch == log.epoch);
        if has_name && said.map_or(Trust::None, |(_, trust)| trust) != trust {
            let (reason, bridge) = (reason.to_owned(), self.bridge.to_string());
            self.lane.says(TrustChange { trust, reason, bridge }, &mut self.made);
            self.said = Some((log.epoch, trust));
        }
    }

    // === names ===

    fn take_name(&mut self) {
        let Some((turn, name)) = self.life.as_ref().and_then(|life| life.name_since(self.turn))
        else {
            return;
        };
        self.turn = turn;
        self.asked = None;
        match name {
            Name::Undecided | Name::Silent(_) => self.named = None,
            Name::Asking(seq) => {
                self.named = None;
                self.ask(seq, None);
            }
            Name::Named(named) => self.go_on(named),
        }
    }

    /// The log goes on where it ends: what it lacks is asked of the journal, the rest was kept.
    fn go_on(&mut self, named: Named) {
        let Named { local, log, missing } = named;
        self.named = Some((local, log.epoch));
        (self.said, self.spent) = (None, None);
        self.lane.go_on(log, missing);
        self.unnamed.retain(local);
        self.write_unnamed();
    }

    /// What the log lacks before `first`, if our view has all of it and it was not asked yet.
    fn lacks(&self, first: Seq) -> Option<Seq> {
        let next = self.lane.log()?.next_seq;
        let asked = self.spent == Some(next) || self.lane.is_behind();
        let proven = || self.life.as_ref().is_some_and(|life| life.has_all(next, first));
        (next < first && !asked && proven()).then_some(next)
    }

    fn ask(&mut self, next: Seq, end: Option<Seq>) {
        let deadline = u64::try_from(BUS_FILL_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        let until_ms = Clock::unix_ms().saturating_add(deadline);
        self.asked = Some(Asked { next, end, until_ms, fresh: true });
    }

    /// What the engine's journal shall be asked for, once.
    pub fn wish(&mut self) -> Option<Seq> {
        let asked = self.asked.as_mut().filter(|asked| asked.fresh)?;
        asked.fresh = false;
        Some(asked.next)
    }

    /// Whether a replayed batch is what the log wishes for.
    pub fn wants(&self, batch: &Batch) -> bool {
        self.asked.is_some_and(|asked| asked.next == batch.seq)
    }

    /// A replayed batch that was wished for.
    pub fn answered(&mut self, envelope: Arc<Envelope>) {
        let (Some(asked), Some(life)) = (&mut self.asked, &self.life) else { return };
        let Some(end) = asked.end else {
            self.asked = None;
            return life.journal(Some((envelope.seq, envelope.digest)));
        };
        if !life.is_ours(envelope.seq, envelope.digest) {
            return;
        }
        asked.next = envelope.seq.plus(1);
        if asked.next >= end {
            self.asked = None;
        }
        self.write(envelope);
        if self.asked.is_none() {
            self.write_unnamed();
        }
    }

    /// The journal's time is over: what it did not give is lost.
    fn give_up(&mut self) {
        match self.asked.take() {
            Some(Asked { end: None, .. }) => {
                if let Some(life) = &self.life {
                    life.journal(None);
                }
            }
            Some(Asked { next, .. }) => {
                self.spent = Some(next);
                self.write_unnamed();
            }
            None => (),
        }
    }

    fn write_unnamed(&mut self) {
        while let Some((epoch, first)) = self.unnamed.first() {
            if self.asked.is_some() || self.name_of(epoch).is_none() {
                break;
            }
            if let Some(next) = self.lacks(first) {
                self.ask(next, Some(first));
                break;
            }
            let Some(envelope) = self.unnamed.pop() else { break };
            self.write(envelope);
        }
        if let Some(life) = &self.life {
            life.set_waits(self.unnamed.first().is_some());
        }
    }

    /// At the end: until nothing waits for a name any more, or the bus cannot be reached.
    pub async fn finish(&mut self) {
        let Some(life) = self.life.clone() else { return };
        let deadline = tokio::time::sleep(BUS_FLUSH_DEADLINE);
        tokio::pin!(deadline);
        while !self.waiting.is_empty() || (self.unnamed.first().is_some() && !life.is_away()) {
            tokio::select! {
                () = &mut deadline => break,
                () = self.writer.room(), if !self.waiting.is_empty() => (),
                () = life.told() => (),
                () = until(self.asked) => self.give_up(),
            }
            self.take_name();
            self.write_unnamed();
            self.hand_over();
        }
        self.unnamed.clear();
        life.set_waits(false);
    }

    // === room ===

    /// Whether [`room`](LogWriter::room) is worth waiting for.
    pub fn wants_room(&self, cursor: Cursor, trust: Trust) -> bool {
        self.can_write(cursor, trust) || self.life.is_some()
    }

    /// A log that is behind goes on with a reset, of a life with a name and by a view that stands.
    fn can_write(&self, cursor: Cursor, trust: Trust) -> bool {
        let stands = trust > Trust::None && self.name_of(cursor.epoch).is_some();
        !self.waiting.is_empty() || (self.lane.is_behind() && stands)
    }

    /// Whether messages wait, so that the source must not be read.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() || self.is_stuck()
    }

    /// All that could be kept is kept, and only the bus can help. Where it can be reached the life
    /// is compared batch by batch, and the source must be read for that.
    fn is_stuck(&self) -> bool {
        let away = self.life.as_ref().is_some_and(|life| life.is_away());
        self.full == SpoolFull::Block && away && self.named.is_none() && self.unnamed.is_full()
    }

    /// Waits until there is room or a name, and writes what waits. Cancel-safe.
    pub async fn room(&mut self, cursor: Cursor, trust: Trust, reason: &'static str) -> Offered {
        let wanted = self.can_write(cursor, trust);
        tokio::select! {
            () = self.writer.room(), if wanted => (),
            () = told(self.life.as_deref()) => (),
            () = until(self.asked) => self.give_up(),
        }
        self.take_name();
        if let Some(epoch) = self.name_of(cursor.epoch)
            && self.lane.is_behind()
        {
            self.lane.settled(Cursor { epoch, ..cursor }, trust, &mut self.made);
        }
        self.hand_over();
        self.settled(cursor, trust, reason);
        if self.is_blocked() { Offered::Blocked } else { Offered::Taken }
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

async fn told(life: Option<&LogLife>) {
    let Some(life) = life else { return std::future::pending().await };
    life.told().await;
}

async fn until(asked: Option<Asked>) {
    let Some(asked) = asked else { return std::future::pending().await };
    let left = asked.until_ms.saturating_sub(Clock::unix_ms());
    tokio::time::sleep(Duration::from_millis(left)).await;
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
