//! What a driver and its bus tell each other about the life that a log is of: the driver knows its
//! batches, the bus its name.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvbridge_schemas::{BusSeq, Cursor, Digest, Envelope, Epoch, Replica, Seq, Status, Trust};
use tokio::sync::Notify;

use crate::shared_log::lives::{Heard, OWN_DIGESTS_MAX, Own, Silence};

/// Heard this long after a record was read, a life is not over: no buffer between an engine and us
/// holds batches for so long under traffic. Shorter: a bridge that was frozen takes what waited in
/// its sockets for news. Longer: the log stays silent where a wrong name was given.
const HEARD_LONG_MS: u64 = 10_000;

/// One replica's.
pub struct LogLife {
    replica: Replica,
    content: String,
    /// No name at or below it: what this process found on its disk.
    floor: Epoch,
    known: Mutex<Known>,
    /// The driver may want to know.
    told: Notify,
}

struct Known {
    /// By what number recovery calls the life.
    local: Epoch,
    own: Own,
    newest_at_ms: u64,
    standing: (Trust, &'static str),
    name: Name,
    /// Counts changes of the name.
    turn: u64,
    /// The newest name on record, and when it was first read.
    read: Option<(Epoch, u64)>,
    acked: Option<(Cursor, Option<BusSeq>)>,
    away: bool,
    /// Batches wait for a name.
    waits: bool,
}

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

impl LogLife {
    /// Of a replica whose view was restored with these batches, or of none.
    pub fn new(replica: Replica, content: String, restored: Cursor) -> LogLife {
        let own = Own { next_seq: restored.next_seq, ..Own::default() };
        LogLife {
            replica,
            content,
            floor: restored.epoch,
            known: Mutex::new(Known {
                local: restored.epoch,
                own,
                newest_at_ms: 0,
                standing: (Trust::None, "detached"),
                name: Name::Undecided,
                turn: 0,
                read: None,
                acked: None,
                away: true,
                waits: false,
            }),
            told: Notify::new(),
        }
    }

    /// Batches of the restored view.
    pub fn restore(&self, digests: impl IntoIterator<Item = (Seq, Digest)>) {
        self.known().own.digests.extend(digests);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Plain writes: nothing in them can panic half-way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // === the driver's side ===

    /// A batch was applied.
    pub(super) fn heard(&self, envelope: &Envelope, now_ms: u64) {
        let mut known = self.known();
        let kept = known.own.digests.get(&envelope.seq);
        if known.local != envelope.epoch || kept.is_some_and(|kept| *kept != envelope.digest) {
            known.begin(envelope.epoch);
        }
        known.newest_at_ms = now_ms;
        let own = &mut known.own;
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
    pub(super) fn proven(&self, now_ms: u64) {
        self.known().newest_at_ms = now_ms;
    }

    /// The view stands here, at the engine's newest batch. A view that lost its history may have
    /// learnt another life under the old number: then it stands below what was heard before.
    pub(super) fn stands_at(&self, cursor: Cursor) {
        let mut known = self.known();
        let below = cursor.next_seq > Seq(0) && cursor.next_seq < known.own.next_seq;
        if below && known.local == cursor.epoch {
            known.begin(cursor.epoch);
        }
    }

    /// How the view stands after one input of the driver.
    pub(super) fn stands(&self, trust: Trust, reason: &'static str) {
        let mut known = self.known();
        known.standing = (trust, reason);
        known.own.settled = trust > Trust::None;
    }

    /// Another bridge may have written more of the life than was known when it got its name.
    pub(super) fn look_again(&self) {
        let mut known = self.known();
        if let Some(epoch) = known.name.epoch() {
            known.own.named = Some(epoch);
            known.rename(Name::Undecided);
        }
    }

    /// What the life is or was called on the log, and its newest batch that was applied.
    pub fn newest(&self) -> Option<(Epoch, (Seq, Digest))> {
        let known = self.known();
        let epoch = known.name.epoch().or(known.own.named)?;
        let (seq, digest) = known.own.digests.last_key_value()?;
        Some((epoch, (*seq, *digest)))
    }

    /// The name, if it changed since `turn`; and the new turn.
    pub(super) fn name_since(&self, turn: u64) -> Option<(u64, Name)> {
        let known = self.known();
        (known.turn != turn).then(|| (known.turn, known.name.clone()))
    }

    /// Returns when a name may have changed.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// Own batches of a range, all of them or none.
    pub(super) fn has_all(&self, from: Seq, to: Seq) -> bool {
        let known = self.known();
        let count = known.own.digests.range(from..to).count();
        u64::try_from(count).is_ok_and(|count| count == to.0.saturating_sub(from.0))
    }

    /// Whether this is the batch of that seq.
    pub(super) fn is_ours(&self, seq: Seq, digest: Digest) -> bool {
        self.known().own.digests.get(&seq) == Some(&digest)
    }

    /// The journal answered; `None` = it does not hold what was asked.
    pub(super) fn journal(&self, answer: Option<(Seq, Digest)>) {
        let mut known = self.known();
        match answer {
            Some((seq, digest)) => {
                known.own.digests.insert(seq, digest);
            }
            None => known.own.journal_spent = true,
        }
        known.rename(Name::Undecided);
    }

    /// Whether the bus cannot be reached, so that waiting for it is all there is to do.
    pub(super) fn is_away(&self) -> bool {
        self.known().away
    }

    /// Whether batches wait for a name.
    pub(super) fn set_waits(&self, waits: bool) {
        self.known().waits = waits;
    }

    // === the bus's side ===

    pub(super) fn waits(&self) -> bool {
        self.known().waits
    }

    /// Whose log.
    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Everything beside the engine's bytes that the content of envelopes depends on.
    pub(super) fn content(&self) -> &str {
        &self.content
    }

    pub(super) fn floor(&self) -> Epoch {
        self.floor
    }

    pub(super) fn set_away(&self, away: bool) {
        self.known().away = away;
        self.told.notify_one();
    }

    /// What to compare with a registry whose newest name is this, and what the life is called now.
    pub(super) fn own(&self, newest: Epoch, now_ms: u64) -> (Epoch, Own, Name) {
        let mut known = self.known();
        let read_at_ms = match known.read {
            Some((read, at_ms)) if read == newest => at_ms,
            _ => {
                known.read = Some((newest, now_ms));
                now_ms
            }
        };
        known.own.named = known.name.epoch().or(known.own.named);
        let heard = if known.newest_at_ms > read_at_ms.saturating_add(HEARD_LONG_MS) {
            Heard::LongSince
        } else if known.newest_at_ms > read_at_ms {
            Heard::Since
        } else {
            Heard::Not
        };
        let own = Own {
            heard,
            acked: known.acked.map_or(Seq(0), |(cursor, _)| cursor.next_seq),
            ..known.own.clone()
        };
        (known.local, own, known.name.clone())
    }

    /// Says what the life is called; nothing if the driver has gone on to another one.
    pub(crate) fn call(&self, local: Epoch, name: Name) {
        let mut known = self.known();
        if known.local != local || known.name == name {
            return;
        }
        if let Name::Named(named) = &name {
            known.acked = Some((named.log, None));
        }
        known.rename(name);
        drop(known);
        self.told.notify_one();
    }

    /// The bus has everything below this.
    pub(super) fn acked(&self, cursor: Cursor, bus_seq: BusSeq) {
        let mut known = self.known();
        let acked = known.acked.filter(|(acked, _)| acked.epoch == cursor.epoch);
        if let Some((acked, _)) = acked {
            known.acked = Some((acked.max(cursor), Some(bus_seq)));
        }
    }

    /// What this bridge says of the replica, once its life has a name.
    pub fn status(&self, bridge: &str, at: u64) -> Option<Status> {
        let known = self.known();
        let Name::Named(named) = &known.name else { return None };
        let (acked, bus_seq) = known.acked.unwrap_or((named.log, None));
        Some(Status {
            replica: self.replica.clone(),
            epoch: acked.epoch,
            next_seq: acked.next_seq,
            bus_seq,
            trust: known.standing.0,
            reason: known.standing.1.to_owned(),
            bridge: bridge.to_owned(),
            at,
        })
    }

    /// What a life of recovery's is called on the log.
    pub fn epoch_of(&self, local: Epoch) -> Option<Epoch> {
        match &self.known().name {
            Name::Named(named) if named.local == local => Some(named.log.epoch),
            Name::Named(_) | Name::Undecided | Name::Silent(_) | Name::Asking(_) => None,
        }
    }

    /// What the life is called now.
    pub fn name(&self) -> Name {
        self.known().name.clone()
    }
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

impl Known {
    /// Another life, which nobody has named.
    fn begin(&mut self, local: Epoch) {
        self.local = local;
        self.own = Own { settled: self.own.settled, ..Own::default() };
        self.acked = None;
        self.rename(Name::Undecided);
    }

    fn rename(&mut self, name: Name) {
        self.name = name;
        self.turn += 1;
    }
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
