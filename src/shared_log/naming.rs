//! What one bridge knows of the life that a log is of: its batches, what its view may be believed,
//! and what the life is called. The reader of the engine fills it, the registry's reader names it.

use kvbridge_schemas::{BusSeq, Cursor, Digest, Envelope, Epoch, Replica, Seq, Status, Trust};

use super::lives::{self, Heard, OWN_DIGESTS_MAX, Own, Question, Record, Silence, Verdict};

/// What a life is called on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Not decided.
    Undecided,
    /// Nothing may be said.
    Silent(Silence),
    /// The engine's journal is asked for this seq.
    Asking(Seq),
    /// The log goes on here.
    Named(Named),
}

/// A name, and where its log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What recovery calls it.
    pub local: Epoch,
    /// The name, and what the log expects next.
    pub log: Cursor,
    /// Seqs below that are not on it.
    pub missing: Vec<Seq>,
}

impl Name {
    /// The name, if there is one.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Name::Named(named) => Some(named.log.epoch),
            Name::Undecided | Name::Silent(_) | Name::Asking(_) => None,
        }
    }
}

/// What a verdict asks of the registry, and what the life is called when that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Written first, by compare-and-set; if that fails everything is compared anew.
    pub write: Option<Record>,
    /// The name then.
    pub name: Name,
}

/// What follows from a verdict; `None` = nothing changes.
pub fn called(verdict: Verdict, name: &Name, question: &Question<'_>, by: &str) -> Option<Called> {
    let local = question.local;
    let record = |epoch| lives::record(question.record, question.own, epoch, question.content, by);
    Some(match verdict {
        Verdict::Adopt(epoch) => {
            // A life that only the log tells of is put on record again, also by whoever has used
            // its name all the time: the log may forget it next.
            let recorded = question.record.is_some_and(|record| record.life.epoch == epoch);
            let write = (!recorded).then(|| record(epoch));
            if name.epoch() == Some(epoch) {
                let name = name.clone();
                return write.map(|write| Called { write: Some(write), name });
            }
            let (log, missing) = lives::resume(epoch, question.record, question.tail);
            Called { write, name: Name::Named(Named { local, log, missing }) }
        }
        Verdict::Mint(epoch) => {
            let log = Cursor { epoch, next_seq: Seq(0) };
            let name = Name::Named(Named { local, log, missing: Vec::new() });
            Called { write: Some(record(epoch)), name }
        }
        Verdict::AskJournal(seq) => Called { write: None, name: Name::Asking(seq) },
        Verdict::Wait(silence) => Called { write: None, name: Name::Silent(silence) },
    })
}

/// What ties the batches that come to the life that has the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tie {
    /// The connection is one of which a batch or an answer was of that life.
    connection: bool,
    /// The view goes on from batches of it.
    view: bool,
    /// The source does not see its reconnects: no connection ties anything.
    blind: bool,
}

/// One replica's life, as one bridge knows it.
#[derive(Debug)]
pub struct Naming {
    /// Heard this long after a name was read, a life is not over.
    heard_long_ms: u64,
    /// By what number recovery calls the life.
    local: Epoch,
    own: Own,
    newest_at_ms: u64,
    standing: (Trust, &'static str),
    /// What may be said of the log as far as it is acknowledged.
    granted: Trust,
    /// The view may be believed more from here on, which the log has not reached.
    rise: Option<(Seq, Trust)>,
    name: Name,
    /// Counts changes of the name.
    turn: u64,
    /// What it was when somebody last took what is known here to decide with.
    asked_at: u64,
    /// The newest name on record, and when it was first read.
    read: Option<(Epoch, u64)>,
    acked: Option<(Cursor, Option<BusSeq>)>,
    tie: Tie,
}

impl Naming {
    /// Of a view that was restored there, or of none. A life that is heard `heard_long_ms` after a
    /// name was read is not over.
    pub fn new(restored: Cursor, heard_long_ms: u64) -> Naming {
        Naming {
            heard_long_ms,
            local: restored.epoch,
            own: Own { next_seq: restored.next_seq, ..Own::default() },
            newest_at_ms: 0,
            standing: (Trust::None, "detached"),
            granted: Trust::None,
            rise: None,
            name: Name::Undecided,
            turn: 0,
            asked_at: 0,
            read: None,
            acked: None,
            tie: Tie { view: restored.next_seq > Seq(0), ..Tie::default() },
        }
    }

    /// Batches of the restored view.
    pub fn restore(&mut self, digests: impl IntoIterator<Item = (Seq, Digest)>) {
        self.own.digests.extend(digests);
    }

    // === by the reader of the engine ===

    /// A new connection, of a source that may be `blind` to such; the view is kept or not.
    pub fn attached(&mut self, view: bool, blind: bool) {
        self.tie = Tie { connection: false, view, blind };
    }

    /// The view was dropped, and recovery goes on under the same number.
    pub fn cleared(&mut self) {
        self.tie.view = false;
    }

    /// A batch was applied. After a reconnect a journal may begin behind all that the view had:
    /// that is no proof of another life, and none of this one. What comes then may bear the name
    /// only after it was compared.
    pub fn heard(&mut self, envelope: &Envelope, now_ms: u64) {
        if !self.tie.view {
            if !self.tie.connection {
                self.begin(envelope.epoch);
            }
            (self.tie.view, self.tie.connection) = (true, !self.tie.blind);
        }
        let kept = self.own.digests.get(&envelope.seq);
        if self.local != envelope.epoch || kept.is_some_and(|kept| *kept != envelope.digest) {
            self.begin(envelope.epoch);
        }
        self.newest_at_ms = now_ms;
        let own = &mut self.own;
        own.digests.insert(envelope.seq, envelope.digest);
        if own.digests.len() > OWN_DIGESTS_MAX {
            own.digests.pop_first();
        }
        own.next_seq = own.next_seq.max(envelope.seq.plus(u64::from(envelope.span)));
        if own.incarnation != envelope.incarnation {
            own.incarnation.clone_from(&envelope.incarnation);
        }
    }

    /// The engine was asked, and its newest batch is ours: the life goes on.
    pub fn proven(&mut self, now_ms: u64) {
        self.newest_at_ms = now_ms;
        self.tie.connection |= self.tie.view && !self.tie.blind;
    }

    /// Trust was taken back.
    pub fn withdrawn(&mut self, trust: Trust, reason: &'static str) {
        self.standing = (trust, reason);
        self.own.settled = trust > Trust::None;
        (self.granted, self.rise) = (self.granted.min(trust), None);
    }

    /// One input is done, and the view stands there. One that lost its history may have learnt
    /// another life under the old number: then it stands below what was heard before.
    pub fn stands(&mut self, cursor: Cursor, trust: Trust, reason: &'static str) {
        if cursor.epoch > self.local {
            // Recovery has left the life that has the name, before a batch of the next one came. An
            // empty lower bound of that one, said of this one, would vouch for a cache that is
            // gone.
            self.begin(cursor.epoch);
        }
        self.standing = (trust, reason);
        self.own.settled = trust > Trust::None;
        if trust <= self.granted {
            (self.granted, self.rise) = (trust, None);
        } else {
            let rise = self.rise.filter(|(_, before)| *before == trust);
            self.rise = rise.or(Some((cursor.next_seq, trust)));
        }
        let below = cursor.next_seq > Seq(0) && cursor.next_seq < self.own.next_seq;
        if trust > Trust::None && below && self.local == cursor.epoch {
            self.begin(cursor.epoch);
        }
    }

    /// Another bridge may have written more of the life than was known when it got its name.
    pub fn look_again(&mut self) {
        if let Some(epoch) = self.name.epoch() {
            self.own.named = Some(epoch);
            self.rename(Name::Undecided);
        }
    }

    /// The journal will not answer what it was asked.
    pub fn ask_anew(&mut self) {
        self.rename(Name::Undecided);
    }

    /// What the life is or was called on the log, and its newest batch that was applied.
    pub fn newest(&self) -> Option<(Epoch, (Seq, Digest))> {
        let epoch = self.name.epoch().or(self.own.named)?;
        let (seq, digest) = self.own.digests.last_key_value()?;
        Some((epoch, (*seq, *digest)))
    }

    /// The name, if it changed since `turn`; and the new turn.
    pub fn name_since(&self, turn: u64) -> Option<(u64, Name)> {
        (self.turn != turn).then(|| (self.turn, self.name.clone()))
    }

    /// Own batches of a range, all of them or none.
    pub fn has_all(&self, from: Seq, to: Seq) -> bool {
        let count = self.own.digests.range(from..to).count();
        u64::try_from(count).is_ok_and(|count| count == to.0.saturating_sub(from.0))
    }

    /// Whether this is the batch of that seq.
    pub fn is_ours(&self, seq: Seq, digest: Digest) -> bool {
        self.own.digests.get(&seq) == Some(&digest)
    }

    /// The journal answered; `None` = it does not hold what was asked.
    pub fn journal(&mut self, answer: Option<(Seq, Digest)>) {
        match answer {
            Some((seq, digest)) => {
                self.own.digests.insert(seq, digest);
            }
            None => self.own.journal_spent = true,
        }
        self.rename(Name::Undecided);
    }

    // === by the reader of the registry ===

    /// What to compare with a registry whose newest name is this, and what the life is called now.
    pub fn own(&mut self, newest: Epoch, now_ms: u64) -> (Epoch, Own, Name) {
        let read_at_ms = match self.read {
            Some((read, at_ms)) if read == newest => at_ms,
            _ => {
                self.read = Some((newest, now_ms));
                now_ms
            }
        };
        self.own.named = self.name.epoch().or(self.own.named);
        self.own.given = self.given().max(newest);
        let heard = if self.newest_at_ms > read_at_ms.saturating_add(self.heard_long_ms) {
            Heard::LongSince
        } else if self.newest_at_ms > read_at_ms {
            Heard::Since
        } else {
            Heard::Not
        };
        let acked = self.acked.map_or(Seq(0), |(cursor, _)| cursor.next_seq);
        self.asked_at = self.turn;
        (self.local, Own { heard, acked, ..self.own.clone() }, self.name.clone())
    }

    /// Says what the life is called; `false` = nothing new, or it was decided over what holds no
    /// more: the view has gone on to another life, or the log is to be looked at again.
    pub fn call(&mut self, local: Epoch, name: Name) -> bool {
        if self.local != local || self.name == name || self.asked_at != self.turn {
            return false;
        }
        if let Name::Named(named) = &name {
            self.acked = Some((named.log, None));
        }
        self.rename(name);
        true
    }

    /// The bus has everything below this.
    pub fn acked(&mut self, cursor: Cursor, bus_seq: BusSeq) {
        let acked = self.acked.filter(|(acked, _)| acked.epoch == cursor.epoch);
        if let Some((acked, _)) = acked {
            self.acked = Some((acked.max(cursor), Some(bus_seq)));
        }
    }

    /// What is said of the replica, once its life has a name. The view may be ahead of the log, and
    /// be believed more there than what is acknowledged may be.
    pub fn status(&mut self, replica: &Replica, bridge: &str, at: u64) -> Option<Status> {
        let Name::Named(named) = &self.name else { return None };
        let (acked, bus_seq) = self.acked.unwrap_or((named.log, None));
        if let Some((from, trust)) = self.rise
            && acked.next_seq >= from
        {
            (self.granted, self.rise) = (trust, None);
        }
        let ours = named.local == self.local;
        let ahead = Some(self.own.next_seq).filter(|view| ours && *view > acked.next_seq);
        Some(Status {
            replica: replica.clone(),
            epoch: acked.epoch,
            next_seq: acked.next_seq,
            view_seq: ahead,
            bus_seq,
            trust: self.granted,
            reason: self.standing.1.to_owned(),
            bridge: bridge.to_owned(),
            at,
        })
    }

    /// What a life of recovery's is called on the log.
    pub fn epoch_of(&self, local: Epoch) -> Option<Epoch> {
        match &self.name {
            Name::Named(named) if named.local == local => Some(named.log.epoch),
            Name::Named(_) | Name::Undecided | Name::Silent(_) | Name::Asking(_) => None,
        }
    }

    /// What the life is called now.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Another life, which nobody has named.
    fn begin(&mut self, local: Epoch) {
        self.local = local;
        self.newest_at_ms = 0;
        let (settled, given) = (self.own.settled, self.given());
        self.own = Own { settled, given, ..Own::default() };
        self.acked = None;
        (self.granted, self.rise) = (Trust::None, None);
        self.rename(Name::Undecided);
    }

    /// The highest name known to have been given, also where whoever remembered it has lost it.
    fn given(&self) -> Epoch {
        self.own.given.max(self.name.epoch().unwrap_or_default())
    }

    fn rename(&mut self, name: Name) {
        self.name = name;
        self.turn += 1;
    }
}

#[cfg(test)]
#[path = "naming_tests.rs"]
mod tests;
