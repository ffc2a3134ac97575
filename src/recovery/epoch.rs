//! Which life is this: beginnings, endings, and too many of them.

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Epoch, Seq};

use super::{
    Action, ClearReason, Cx, Fact, Recovery, TrustReason,
    phase::Phase,
    planted::Planted,
    standing::{Cap, Lineage},
};

/// Names of ended lives kept. A name beyond this could be entered again only after so many
/// restarts.
const CLOSED_MAX: usize = 16;

/// Quarantine doubles up to an hour: two engines under one name are a matter for a person.
const QUARANTINE_MS_MAX: u64 = 3_600_000;

impl Recovery {
    /// Positive evidence of a new life: the old cache no longer exists.
    pub(super) fn new_epoch(&mut self, cx: &mut Cx<'_>, wire: Option<Epoch>, batch: Option<Batch>) {
        if wire.is_none() && self.settings.capabilities.epoch_on_wire {
            // Only the wire may number its lives: a number of our own would make its next one
            // stale.
            return self.rejoin(cx, TrustReason::NewEpoch);
        }
        self.withdraw(cx, TrustReason::NewEpoch);
        self.cancel(cx);
        if let Some(ended) = self.incarnation.take() {
            if self.closed.len() >= CLOSED_MAX {
                self.closed.pop_front();
            }
            self.closed.push_back(ended);
        }
        self.cursor.epoch = self.next_epoch(cx, wire);
        cx.record(Fact::NewEpoch(self.cursor.epoch));
        self.highest_live = None;
        self.told_before = Seq(0);
        // What made the replay look broken was the new life's journal, empty until its first batch.
        self.replay_unusable_until = None;
        self.forget_view(cx, ClearReason::NewEpoch);
        self.lineage = Lineage::Empty;
        self.cursor.next_seq = Seq(0);
        if self.unattached() || self.flaps(cx) {
            return;
        }
        self.join(cx);
        match batch {
            Some(batch) => {
                self.incarnation.clone_from(&batch.incarnation);
                self.arrive(cx, batch, true);
            }
            // The journal of the new life is the quickest way to learn it; without one we wait.
            None if self.can_replay() => self.start_join(cx),
            None => (),
        }
    }

    /// More lives than an engine can have: two publishers answer under one name.
    fn flaps(&mut self, cx: &mut Cx<'_>) -> bool {
        let limits = &self.settings.limits;
        let window_ms = limits.epoch_flap_window_ms;
        let flap_max = limits.epoch_flap_max;
        self.births.push_back(cx.now);
        while self.births.front().is_some_and(|birth| birth.plus(window_ms) < cx.now) {
            self.births.pop_front();
        }
        if self.births.len() <= flap_max {
            return false;
        }
        cx.record(Fact::TwoPublishers);
        let until = cx.now.plus(self.quarantine_ms);
        self.quarantine_ms = (self.quarantine_ms * 2).min(QUARANTINE_MS_MAX);
        self.quarantine_until = Some(until);
        self.births.clear();
        self.enter(Phase::Quarantined { until });
        true
    }

    /// Numbers or bytes say that it is another life, the wire names it as the one we are in. That
    /// name is not closed: whatever the engine says next has it, and would be stale for ever.
    pub(super) fn spare_name(&mut self, batch: &Batch) {
        if batch.incarnation.is_some() && batch.incarnation == self.incarnation {
            self.incarnation = None;
        }
    }

    /// One seq, two contents. `newer`: the batch is known to be of the life that goes on.
    pub(super) fn digest_mismatch(&mut self, cx: &mut Cx<'_>, batch: Batch, newer: bool) {
        cx.record(Fact::DigestMismatch(batch.seq));
        if self.settings.capabilities.epoch_on_wire {
            // The wire says it is one life, the bytes say it is two: nobody can be believed.
            self.withdraw(cx, TrustReason::TwoPublishers);
            if self.flaps(cx) {
                return self.forget_all(cx);
            }
            return self.rejoin(cx, TrustReason::TwoPublishers);
        }
        self.spare_name(&batch);
        self.new_epoch(cx, None, newer.then_some(batch));
    }

    /// Drops the view and starts over within the same epoch.
    pub(super) fn rejoin(&mut self, cx: &mut Cx<'_>, reason: TrustReason) {
        self.withdraw(cx, reason);
        self.cancel(cx);
        self.forget_all(cx);
        if self.unattached() {
            return;
        }
        self.snapshot_failed = false;
        self.stored_installs = 0;
        self.join(cx);
        if self.can_replay() || self.can_snapshot() {
            self.start_join(cx);
        }
    }

    /// An operator asks for a return to a proven state.
    pub(super) fn resync(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::ResyncAsked);
        // An operator who fixed the port wants it tried again.
        self.replay_unusable_until = None;
        if matches!(self.phase, Phase::Shed { .. }) {
            return self.release(cx);
        }
        self.rejoin(cx, TrustReason::Verifying);
    }

    fn forget_all(&mut self, cx: &mut Cx<'_>) {
        self.forget_view(cx, ClearReason::Unproven);
        self.lineage = Lineage::Empty;
        self.cursor.next_seq = Seq(0);
    }

    /// The one way to a lower bound: everything that was not proven again is dropped.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>) {
        let reason = match self.lineage {
            Lineage::Empty => TrustReason::JoinedLate,
            // It explains the losses that follow.
            Lineage::Since { reason: TrustReason::CompetingConsumer, .. } => {
                TrustReason::CompetingConsumer
            }
            Lineage::Proven(_) | Lineage::Since { .. } => TrustReason::HistoryLost,
        };
        self.withdraw(cx, reason);
        if self.planted(Planted::PartialWithoutClear) {
            self.ring.clear();
        } else {
            let held = std::mem::take(&mut self.held);
            self.forget_view(cx, ClearReason::Unproven);
            self.held = held;
        }
        self.lineage = Lineage::Since { anchored: false, reason };
        self.cursor.next_seq = Seq(0);
    }

    /// As [`Recovery::forget_all`], for a view that is given up.
    pub(super) fn forget_shed(&mut self, cx: &mut Cx<'_>) {
        self.forget_view(cx, ClearReason::OverLimit);
        self.lineage = Lineage::Empty;
        self.cursor.next_seq = Seq(0);
    }

    fn forget_view(&mut self, cx: &mut Cx<'_>, cause: ClearReason) {
        cx.act(Action::Clear { epoch: self.cursor.epoch, cause });
        self.ring.clear();
        self.held.clear();
        self.cap = Cap::default();
        self.plain.relied_on = false;
        if cause == ClearReason::NewEpoch {
            self.poison = None;
        }
        self.tail = None;
        self.vouched.start_over();
        self.lapsed = false;
        self.overflow_pending = false;
    }
}
