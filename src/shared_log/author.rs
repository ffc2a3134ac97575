//! What a bridge writes of one replica, and when: nothing before its life has a name, then what was
//! kept for that, behind what the log lacks and the engine's journal still has.

use std::sync::Arc;

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Cursor, Envelope, Epoch, Seq, Trust, TrustChange};

use super::{
    Lane, Name, Named, Naming, Outgoing,
    unnamed::{Unnamed, UnnamedLimits},
};

/// Writes one replica's log. Where lives are named by the bus, what is known of the life is handed
/// to each call; elsewhere the numbers of recovery are the names.
#[derive(Debug)]
pub struct Author {
    lane: Lane,
    /// Who speaks.
    bridge: Arc<str>,
    /// How long the engine's journal has to answer.
    fill_ms: u64,
    made: Vec<Outgoing>,
    turn: u64,
    /// Recovery's number of the life, and its name on the bus.
    named: Option<(Epoch, Epoch)>,
    unnamed: Unnamed,
    asked: Option<Asked>,
    /// Where the journal did not give what it was asked for.
    spent: Option<Seq>,
    /// What was last said of trust, of which life.
    said: Option<(Epoch, Trust)>,
    /// Batches that found no room while they waited.
    left_out: u64,
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

impl Author {
    /// One that has written nothing.
    pub fn new(lane: Lane, limits: UnnamedLimits, fill_ms: u64) -> Author {
        Author {
            lane,
            bridge: Arc::from(""),
            fill_ms,
            made: Vec::new(),
            turn: 0,
            named: None,
            unnamed: Unnamed::new(limits),
            asked: None,
            spent: None,
            said: None,
            left_out: 0,
        }
    }

    /// The same, by a bridge of that name: who says what is believed.
    pub fn by(self, bridge: Arc<str>) -> Author {
        Author { bridge, ..self }
    }

    /// What is to be sent, in order.
    pub fn made(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.made)
    }

    /// There was no room for these: they are as good as lost, and the log ends before them.
    pub fn left_out(&mut self, messages: impl IntoIterator<Item = Outgoing>) {
        self.lane.left_out(messages);
    }

    /// Whether the log is behind by something that was left out.
    pub fn is_behind(&self) -> bool {
        self.lane.is_behind()
    }

    /// How many batches had to go while they waited, since this was last asked.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Whether all that could be kept for a name is kept.
    pub fn is_full(&self) -> bool {
        self.named.is_none() && self.unnamed.is_full()
    }

    /// Whether batches wait for a name.
    pub fn waits(&self) -> bool {
        self.unnamed.first().is_some()
    }

    /// What waits is not written any more.
    pub fn forget(&mut self) {
        self.unnamed.clear();
    }

    // === the view ===

    /// A new connection to the engine: an answer that comes on it may be of another life, and what
    /// was asked to compare this one with would then be compared with that.
    pub fn attached(&mut self, life: &mut Naming, view: bool, blind: bool) {
        life.attached(view, blind);
        if self.asked.take_if(|asked| asked.end.is_none()).is_some() {
            life.ask_anew();
        }
    }

    /// The view was dropped; its life goes on.
    pub fn cleared(&mut self, life: Option<&mut Naming>) {
        if let Some(life) = life {
            life.cleared();
        }
        self.unnamed.clear();
        // What is compared is of the life, not of the view: without an answer it has no name.
        self.asked = self.asked.filter(|asked| asked.end.is_none());
        self.lane.cleared();
    }

    /// A batch was applied. `now_ms` is the wall clock, here and below.
    pub fn applied(&mut self, now_ms: u64, envelope: Arc<Envelope>, life: Option<&mut Naming>) {
        let Some(life) = life else { return self.write(envelope) };
        life.heard(&envelope, now_ms);
        self.take_name(now_ms, life);
        self.left_out += self.unnamed.hold(envelope);
        self.write_unnamed(now_ms, life);
    }

    /// Trust was taken back: said ahead of the data that follows.
    pub fn withdrawn(&mut self, trust: Trust, reason: &'static str, life: Option<&mut Naming>) {
        let names = life.is_some();
        if let Some(life) = life {
            life.withdrawn(trust, reason);
        }
        self.say(trust, reason, names);
    }

    /// One input of the driver is done; its view stands here.
    pub fn settled(
        &mut self,
        now_ms: u64,
        cursor: Cursor,
        (trust, reason): (Trust, &'static str),
        life: Option<&mut Naming>,
    ) {
        let names = life.is_some();
        if let Some(life) = life {
            life.stands(cursor, trust, reason);
            self.take_name(now_ms, life);
        }
        let Some(epoch) = self.name_of(cursor.epoch, names) else { return };
        if self.lane.is_behind() || self.asked.is_some() {
            return;
        }
        self.lane.settled(Cursor { epoch, ..cursor }, trust, &mut self.made);
        // The log may still be of the life before: what holds of this one is not said there. Nor is
        // it where the view is further: a place where more is believed is one that a view was at.
        let log = self.lane.log().filter(|log| log.epoch == epoch);
        let less = |log: &Cursor| trust < self.said_of(log.epoch);
        if log.is_some_and(|log| log.next_seq >= cursor.next_seq || less(&log)) {
            self.say(trust, reason, names);
        }
    }

    /// Whether [`Author::catch_up`] would tell it: a log that is behind goes on with a reset, of a
    /// life with a name and by a view that stands.
    pub fn can_catch_up(&self, cursor: Cursor, trust: Trust, names: bool) -> bool {
        let stands = trust > Trust::None && self.name_of(cursor.epoch, names).is_some();
        self.lane.is_behind() && stands
    }

    /// There is room again: what was left out is told.
    pub fn catch_up(&mut self, cursor: Cursor, trust: Trust, names: bool) {
        if let Some(epoch) = self.name_of(cursor.epoch, names)
            && self.lane.is_behind()
        {
            self.lane.settled(Cursor { epoch, ..cursor }, trust, &mut self.made);
        }
    }

    fn write(&mut self, envelope: Arc<Envelope>) {
        if self.lane.is_behind() {
            // Whatever comes is covered by the reset that is published when there is room.
            return;
        }
        let envelope = match self.named {
            Some((local, name)) if local == envelope.epoch && name != local => {
                Arc::new(Envelope { epoch: name, ..Arc::unwrap_or_clone(envelope) })
            }
            _ => envelope,
        };
        self.lane.applied(envelope, &mut self.made);
    }

    /// What the bus calls a life of recovery's.
    fn name_of(&self, local: Epoch, names: bool) -> Option<Epoch> {
        match self.named {
            _ if !names => Some(local),
            Some((known, name)) if known == local => Some(name),
            Some(_) | None => None,
        }
    }

    fn say(&mut self, trust: Trust, reason: &str, names: bool) {
        // A log without a message yet is none that anybody could misread.
        let Some(log) = self.lane.log() else { return };
        let has_name = !names || self.named.is_some();
        if has_name && self.said_of(log.epoch) != trust {
            let (reason, bridge) = (reason.to_owned(), self.bridge.to_string());
            self.lane.says(TrustChange { trust, reason, bridge }, &mut self.made);
            self.said = Some((log.epoch, trust));
        }
    }

    /// What the log says of this life.
    fn said_of(&self, epoch: Epoch) -> Trust {
        let said = self.said.filter(|(said, _)| *said == epoch);
        said.map_or(Trust::None, |(_, trust)| trust)
    }

    // === names ===

    /// Looks whether the life is called otherwise now.
    pub fn take_name(&mut self, now_ms: u64, life: &mut Naming) {
        let Some((turn, name)) = life.name_since(self.turn) else { return };
        self.turn = turn;
        self.asked = None;
        match name {
            Name::Undecided | Name::Silent(_) => self.named = None,
            Name::Asking(seq) => {
                self.named = None;
                self.ask(now_ms, seq, None);
            }
            Name::Named(named) => self.go_on(now_ms, named, life),
        }
    }

    /// The log goes on where it ends: what it lacks is asked of the journal, the rest was kept.
    fn go_on(&mut self, now_ms: u64, named: Named, life: &mut Naming) {
        let Named { local, log, missing } = named;
        self.named = Some((local, log.epoch));
        (self.said, self.spent) = (None, None);
        self.lane.go_on(log, missing);
        self.unnamed.retain(local);
        self.write_unnamed(now_ms, life);
    }

    /// Writes what waited for a name.
    pub fn write_unnamed(&mut self, now_ms: u64, life: &mut Naming) {
        while let Some((epoch, first)) = self.unnamed.first() {
            if self.asked.is_some() || self.name_of(epoch, true).is_none() {
                break;
            }
            if let Some(next) = self.lacks(first, life) {
                self.ask(now_ms, next, Some(first));
                break;
            }
            let Some(envelope) = self.unnamed.pop() else { break };
            self.write(envelope);
        }
    }

    /// What the log lacks before `first`, from below its end on, if our view has all of it and it
    /// was not asked yet.
    fn lacks(&self, first: Seq, life: &Naming) -> Option<Seq> {
        let end = self.lane.log()?.next_seq;
        let ours = |next: &Seq| *next < first && life.has_all(*next, first);
        let asked = |next: &Seq| self.spent == Some(*next) || self.lane.is_behind();
        let lacks = [self.lane.first_missing(), Some(end)];
        lacks.into_iter().flatten().find(|next| ours(next) && !asked(next))
    }

    // === the engine's journal ===

    fn ask(&mut self, now_ms: u64, next: Seq, end: Option<Seq>) {
        let until_ms = now_ms.saturating_add(self.fill_ms);
        self.asked = Some(Asked { next, end, until_ms, fresh: true });
    }

    /// What the journal shall be asked for, once, and not before the view stands: no other is asked
    /// on behalf of a log, and its silence would pass for the journal's.
    pub fn wish(&mut self, now_ms: u64, stands: bool) -> Option<Seq> {
        let asked = self.asked.as_mut().filter(|asked| asked.fresh && stands)?;
        asked.fresh = false;
        asked.until_ms = now_ms.saturating_add(self.fill_ms);
        Some(asked.next)
    }

    /// Until when it may answer.
    pub fn asked_until_ms(&self) -> Option<u64> {
        // A comparison has the time it needs to be asked for; a log that lacks something has not.
        let runs = |asked: &Asked| !asked.fresh || asked.end.is_some();
        self.asked.filter(runs).map(|asked| asked.until_ms)
    }

    /// Whether a replayed batch is what the log wishes for.
    pub fn wants(&self, batch: &Batch) -> bool {
        self.asked.is_some_and(|asked| asked.next == batch.seq)
    }

    /// A replayed batch that was wished for.
    pub fn answered(&mut self, now_ms: u64, envelope: Arc<Envelope>, life: &mut Naming) {
        let Some(asked) = &mut self.asked else { return };
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
            self.write_unnamed(now_ms, life);
        }
    }

    /// The journal's time is over: what it did not give is lost.
    pub fn give_up(&mut self, now_ms: u64, life: &mut Naming) {
        match self.asked.take() {
            Some(Asked { end: None, .. }) => life.journal(None),
            Some(Asked { next, .. }) => {
                self.spent = Some(next);
                self.lane.missing_is_lost(&mut self.made);
                self.write_unnamed(now_ms, life);
            }
            None => (),
        }
    }
}

#[cfg(test)]
#[path = "author_tests.rs"]
mod tests;
