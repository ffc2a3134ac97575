//! What outlives a process: enough to prove the same life again, and to believe no more than
//! before.
//!
//! The records of the view are the shell's to keep; what they rest on is a [`SnapshotState`] here.
//! A machine that is restored has a kept view and waits for its source, like one whose source went
//! away: the inclusive replay compares digests, and what follows is the table's work.

use std::collections::VecDeque;

use kvbridge_adapters_api::Drain;
use kvbridge_schemas::{Cursor, Digest, Epoch, Seq, SnapshotState, TierTrust, Trust};

use super::{
    Recovery, Settings, TrustReason,
    held::DigestRing,
    standing::{Cap, Lineage},
};

/// A view's place and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the view stands.
    pub cursor: Cursor,
    /// The trust of the device tier once the life is proven.
    pub trust: Trust,
    /// What the view rests on.
    pub state: SnapshotState,
}

/// Why a checkpoint is of no use. Its epoch may still serve as a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointFault {
    /// Its parts contradict each other.
    #[error("the parts of the checkpoint contradict each other")]
    Inconsistent,
    /// It names a reason that this version does not know.
    #[error("the checkpoint names a reason that this version does not know")]
    UnknownReason,
}

impl Recovery {
    /// What to keep beside the records of the view; `None` while the view stands nowhere.
    /// `settings` names everything that the fold depends on beside the events.
    pub fn checkpoint(&self, settings: &str) -> Option<Checkpoint> {
        if !self.anchored() {
            return None;
        }
        // Trust as it is once the life is proven: while we look, none of it is announced.
        let (trust, derived) = self.derive_proven();
        let (proven, reason) = match &self.lineage {
            Lineage::Proven(scope) => (Some(scope.clone()), derived),
            Lineage::Since { reason, .. } => (None, *reason),
            Lineage::Empty => return None,
        };
        // What was let go without a word is missing after a restart too, whoever is attached then.
        let unannounced = self.unannounced.then_some(TrustReason::Unannounced);
        let stores = self.cap.stores.or(unannounced);
        let state = SnapshotState {
            host: trust.host,
            reason: reason.as_str().to_owned(),
            proven,
            stores_lost: stores.map(|reason| reason.as_str().to_owned()),
            removals_lost: self.cap.removals,
            audit_from: self.audit_from,
            highest_live: self.highest_live,
            confirmed: self.confirmed,
            incarnation: self.incarnation.clone(),
            closed: self.closed.iter().cloned().collect(),
            settings: settings.to_owned(),
            digests: self.ring.iter().collect(),
        };
        Some(Checkpoint { cursor: self.cursor, trust: trust.device, state })
    }

    /// A machine with a kept view that waits for its source. The caller installs the records first.
    pub fn restored(
        settings: Settings,
        checkpoint: Checkpoint,
    ) -> Result<Recovery, CheckpointFault> {
        let Checkpoint { cursor, trust, state } = checkpoint;
        if cursor.epoch < settings.epoch_floor {
            return Err(CheckpointFault::Inconsistent);
        }
        let word = |word: &str| TrustReason::from_name(word).ok_or(CheckpointFault::UnknownReason);
        let lineage = match state.proven {
            Some(scope) => Lineage::Proven(scope),
            None => Lineage::Since { anchored: true, reason: word(&state.reason)? },
        };
        let stores = state.stores_lost.as_deref().map(word).transpose()?;
        let mut recovery = Recovery::new(settings);
        let limit = recovery.settings.limits.digest_ring;
        recovery.ring = ring(&state.digests, cursor.next_seq, limit)?;
        recovery.cursor = cursor;
        // This life has its name already; a later one is named above it whatever the clock says.
        recovery.settings.epoch_floor = Epoch(cursor.epoch.0.saturating_sub(1));
        recovery.lineage = lineage;
        recovery.cap = Cap { stores, removals: state.removals_lost };
        recovery.audit_from = state.audit_from.min(cursor.next_seq);
        recovery.highest_live = state.highest_live;
        recovery.confirmed = state.confirmed;
        // Nothing says what the view began with: a promise may be behind it.
        recovery.plain.relied_on =
            recovery.promised_plain() && matches!(recovery.lineage, Lineage::Proven(_));
        recovery.incarnation = state.incarnation;
        recovery.closed = VecDeque::from(state.closed);
        recovery.resumes = recovery.settings.capabilities.drain == Drain::Destructive;
        // Never more than it was saved with, also when a file was put together by hand.
        let saved = TierTrust { device: trust, host: state.host };
        let (derived, _) = recovery.derive_proven();
        if derived.min(saved) != derived {
            return Err(CheckpointFault::Inconsistent);
        }
        Ok(recovery)
    }
}

/// The ring, if it is one: ascending, below the cursor, and no longer than we keep.
fn ring(
    digests: &[(Seq, Digest)],
    next_seq: Seq,
    limit: usize,
) -> Result<DigestRing, CheckpointFault> {
    let ascending = digests.is_sorted_by(|(a, _), (b, _)| a < b);
    let below = digests.last().is_none_or(|(seq, _)| *seq < next_seq);
    if !ascending || !below {
        return Err(CheckpointFault::Inconsistent);
    }
    let mut ring = DigestRing::default();
    digests.iter().for_each(|(seq, digest)| ring.push(*seq, *digest, limit));
    Ok(ring)
}
