//! Where a batch stands against the cursor: the order of questions.

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Epoch, Event, Seq};

use super::{Recovery, phase::Phase, planted::Planted, standing::Lineage};

/// What a batch is, before the phase is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Of a closed life.
    StaleEpoch,
    /// Of a newer life, by the wire's own word.
    NewEpoch(Option<Epoch>),
    /// A seq seen before, with other bytes.
    DigestMismatch,
    /// Seen before, the same bytes.
    Duplicate,
    /// Applied before, but its digest is no longer kept.
    OverlapUnproven,
    /// Reaches over the cursor from below.
    Straddle,
    /// Below the highest live seq seen, or below what was known before the connection.
    Rollback,
    /// At or above the cursor, new to us.
    New,
}

impl Recovery {
    /// Classifies a batch of the live stream. Bytes are compared before any number is believed.
    /// `fresh` = it comes straight from the stream; a held one was asked about rollback when it
    /// came.
    pub(super) fn classify(&self, batch: &Batch, fresh: bool) -> Arrival {
        if let Some(arrival) = self.other_life(batch) {
            return arrival;
        }
        if is_reset(batch) {
            // A reset has an id space of its own: its bytes are not those of the data it replaces.
            let behind = self.anchored() && batch.next_seq() <= self.cursor.next_seq;
            return if behind { Arrival::Duplicate } else { Arrival::New };
        }
        let epoch_on_wire = batch.epoch.is_some();
        let seen = self.ring.get(batch.seq).or_else(|| self.held.digest_of(batch.seq));
        if self.planted_drop_by_number(batch) {
            return Arrival::Duplicate;
        }
        // An unreadable body is neither applied nor held, but it was seen.
        let unread = self.poison.filter(|(seq, _)| *seq == batch.seq);
        if seen.is_none() && unread.is_some_and(|(_, digest)| digest != batch.digest) {
            return Arrival::DigestMismatch;
        }
        match seen {
            Some(digest) if digest == batch.digest => return Arrival::Duplicate,
            Some(_) if self.planted(Planted::DigestSkipped) => return Arrival::Duplicate,
            Some(_) => return Arrival::DigestMismatch,
            None => (),
        }
        // Before anything is applied there is no cursor to be below of: only the highest seen
        // counts.
        let next_seq = if self.anchored() { self.cursor.next_seq } else { Seq(0) };
        if epoch_on_wire && batch.next_seq() <= next_seq {
            return Arrival::Duplicate;
        }
        if batch.span > 1 && batch.seq < next_seq {
            return Arrival::Straddle;
        }
        let rolled_back = self.highest_live.is_some_and(|highest| batch.seq < highest)
            // Only the start: a later one may be of a live stream that lags behind a replay.
            || (batch.seq == Seq(0) && self.told_before > Seq(0));
        if !epoch_on_wire && fresh && rolled_back && self.rollback_is_asked() {
            return Arrival::Rollback;
        }
        if batch.next_seq() <= next_seq {
            return Arrival::OverlapUnproven;
        }
        Arrival::New
    }

    /// Whether the wire itself names another life.
    pub(super) fn other_life(&self, batch: &Batch) -> Option<Arrival> {
        if let Some(epoch) = batch.epoch {
            if epoch < self.cursor.epoch && !self.planted(Planted::EpochNotEqual) {
                return Some(Arrival::StaleEpoch);
            }
            if epoch != self.cursor.epoch {
                return Some(Arrival::NewEpoch(Some(epoch)));
            }
        }
        match (&batch.incarnation, &self.incarnation) {
            (Some(theirs), _) if self.closed.contains(theirs) => Some(Arrival::StaleEpoch),
            (Some(theirs), Some(ours)) if theirs != ours => Some(Arrival::NewEpoch(batch.epoch)),
            (Some(_) | None, _) => None,
        }
    }

    fn rollback_is_asked(&self) -> bool {
        let settled = matches!(self.phase, Phase::Live(_) | Phase::Partial(_));
        settled || !self.planted(Planted::RollbackOnlyInLive)
    }

    fn planted_drop_by_number(&self, batch: &Batch) -> bool {
        let below = self.anchored() && batch.seq < self.cursor.next_seq;
        let old = below && self.planted(Planted::OldSeqFirst);
        let overlap = below && self.highest_live.is_some_and(|highest| batch.seq > highest);
        old || (overlap && self.planted(Planted::OverlapByNumber))
    }

    /// Whether the view stands at a seq.
    pub fn anchored(&self) -> bool {
        match self.lineage {
            Lineage::Empty => false,
            Lineage::Since { anchored, .. } => anchored,
            Lineage::Proven(_) => true,
        }
    }
}

/// Whether a bridge says with this batch what its hop lost.
pub(super) fn is_reset(batch: &Batch) -> bool {
    batch.events.iter().any(|event| matches!(event, Event::Reset(_)))
}
