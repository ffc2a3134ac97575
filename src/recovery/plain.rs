//! Snapshots that leave out what they think is the same for all blocks: tiers, copies, namespaces.
//!
//! Such a one is worth as much as a whole one as long as the engine is as plain as its operator
//! says. The promise is looked at while the stream goes on, because the snapshot itself can not
//! show that it was broken.

use super::{Cx, Fact, Recovery, TrustReason, phase::Phase};

/// What is known of the promise that an engine is plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plain {
    /// The view rests on a snapshot that needs it.
    pub(super) relied_on: bool,
    /// It was broken once. No snapshot is asked for again: it would put blocks where they are not.
    pub(super) disproved: bool,
}

impl Recovery {
    /// Whether a snapshot of this source is worth as much as its engine by the promise alone.
    pub(super) fn promised_plain(&self) -> bool {
        let support = self.settings.capabilities.snapshot;
        let promised = support.is_some_and(|support| support.plain && !support.complete());
        promised && !self.plain.disproved
    }

    /// The stream shows what a plain engine never does: blocks of the snapshot may be elsewhere
    /// than the view has them.
    pub(super) fn disproved(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::Disproved);
        self.plain.disproved = true;
        let fetching = matches!(self.phase, Phase::Snapshotting(_));
        if self.plain.relied_on || fetching {
            self.rejoin(cx, TrustReason::PartialSnapshot);
        }
    }

    /// A second page under a hash that the snapshot told once: there may have been more before.
    /// That costs blocks, and makes none false.
    pub(super) fn second_copy(&mut self, cx: &mut Cx<'_>) {
        if self.plain.relied_on {
            cx.record(Fact::Disproved);
            self.plain = Plain { relied_on: false, disproved: true };
            self.cap.stores.get_or_insert(TrustReason::PartialSnapshot);
        }
    }
}
