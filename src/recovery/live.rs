//! The live stream: attaching, batches as they come, applying them.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{ClearCause, Epoch, Event, Scope, Seq};

use super::{
    Action, Cx, Fact, Recovery, TrustReason,
    arrival::{Arrival, is_reset},
    phase::{Asking, Phase, Probe},
    planted::Planted,
    standing::{Cap, Lineage},
};

impl Recovery {
    pub(super) fn attach(&mut self, cx: &mut Cx<'_>) {
        self.unannounced = false;
        if let Phase::Shed { attached } = &mut self.phase {
            *attached = true;
            return;
        }
        if !matches!(self.phase, Phase::Detached) {
            // A source that forgot to say Detached has still made a new connection.
            self.detach(cx);
        }
        if self.anchored() && !self.settings.unproven() {
            self.told_before = self.told_before.max(self.cursor.next_seq);
        }
        if let Some(until) = self.quarantine_until
            && until > cx.now
        {
            return self.enter(Phase::Quarantined { until });
        }
        if !self.anchored() {
            return self.join(cx);
        }
        cx.record(Fact::Reattached);
        if self.planted(Planted::ReattachTrusted) {
            self.enter(Phase::Joining { ask_at: cx.now });
            return self.settle(cx);
        }
        if self.can_replay() {
            self.enter(Phase::Verifying(Asking::due(self.pace.next(cx.now), false)));
            self.ask_if_due(cx);
        } else if std::mem::take(&mut self.resumes) {
            self.wait_to_resume(cx);
        } else {
            self.no_history(cx);
        }
    }

    pub(super) fn detach(&mut self, cx: &mut Cx<'_>) {
        if let Phase::Shed { attached } = &mut self.phase {
            *attached = false;
            return;
        }
        self.withdraw(cx, TrustReason::Detached);
        self.cancel(cx);
        self.held.clear();
        self.overflow_pending = false;
        self.tail = None;
        self.vouched.break_off();
        self.enter(Phase::Detached);
    }

    /// Attached, with an empty view.
    pub(super) fn join(&mut self, cx: &mut Cx<'_>) {
        self.lineage = Lineage::Empty;
        self.cursor.next_seq = Seq(0);
        if self.doubt == TrustReason::Detached {
            self.doubt = TrustReason::Joining;
        }
        if self.cursor.epoch == self.settings.epoch_floor
            && !self.settings.capabilities.epoch_on_wire
        {
            self.cursor.epoch = self.next_epoch(cx, None);
        }
        let ask_at = cx.now.plus(self.settings.limits.join_grace_ms);
        self.enter(Phase::Joining { ask_at });
    }

    /// Our own queue dropped a run of batches here.
    pub(super) fn overflowed(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::Overflowed);
        if self.planted(Planted::OverflowIgnored) {
            return;
        }
        match &self.phase {
            Phase::Detached | Phase::Quarantined { .. } | Phase::Shed { .. } => (),
            Phase::Joining { .. } => self.start_join(cx),
            Phase::Verifying(_) if self.is_resuming() => self.no_history(cx),
            Phase::Verifying(_) | Phase::Replaying(_) | Phase::Snapshotting(_) => {
                self.overflow_pending = true;
            }
            Phase::Live(_) | Phase::Partial(_) => self.start_repair(cx),
        }
    }

    pub(super) fn live(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        if self.unattached() {
            return cx.record(Fact::Unattached);
        }
        if batch.span == 0 {
            // It covers no seq: nothing to apply, and no bytes to compare.
            return cx.record(Fact::Duplicate(batch.seq));
        }
        if self.is_resuming() {
            self.resume(cx, batch.seq);
        }
        self.arrive(cx, batch, true);
    }

    /// The table. `fresh` = straight from the stream; otherwise it was held and comes out now.
    pub(super) fn arrive(&mut self, cx: &mut Cx<'_>, batch: Batch, fresh: bool) {
        let seq = batch.seq;
        match self.classify(&batch, fresh) {
            Arrival::StaleEpoch => return cx.record(Fact::StaleEpoch),
            Arrival::NewEpoch(epoch) => return self.new_epoch(cx, epoch, Some(batch)),
            // Of two copies only one straight from the stream is known to be the newer.
            Arrival::DigestMismatch => {
                return self.digest_mismatch(cx, batch, fresh);
            }
            Arrival::Duplicate => return self.duplicate(cx, seq),
            Arrival::OverlapUnproven => return self.overlap_unproven(cx, batch),
            Arrival::Straddle => {
                cx.record(Fact::Straddle(seq));
                return self.rejoin(cx, TrustReason::GapOpen);
            }
            Arrival::Rollback => {
                cx.record(Fact::Rollback(seq));
                self.spare_name(&batch);
                return self.new_epoch(cx, None, Some(batch));
            }
            Arrival::New => (),
        }
        if fresh {
            self.highest_live = self.highest_live.max(Some(batch.next_seq().minus(1)));
        }
        match &self.phase {
            Phase::Detached | Phase::Quarantined { .. } | Phase::Shed { .. } => (),
            Phase::Joining { .. } => self.joining_live(cx, batch),
            Phase::Live(_) | Phase::Partial(_) if self.settled() => self.settled_live(cx, batch),
            Phase::Live(_)
            | Phase::Partial(_)
            | Phase::Verifying(_)
            | Phase::Replaying(_)
            | Phase::Snapshotting(_) => self.hold(cx, batch),
        }
    }

    fn duplicate(&mut self, cx: &mut Cx<'_>, seq: Seq) {
        cx.record(Fact::Duplicate(seq));
        self.highest_live = self.highest_live.max(Some(seq));
        if self.tail.is_some_and(|(tail, _)| seq >= tail) {
            self.tail = None;
        }
    }

    /// Below the cursor with nothing left to compare: dropped, and the engine is asked who it is.
    fn overlap_unproven(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        cx.record(Fact::OverlapUnproven(batch.seq));
        self.highest_live = self.highest_live.max(Some(batch.seq));
        if let Phase::Live(probe) | Phase::Partial(probe) = &mut self.phase
            && matches!(probe, Probe::At(_))
        {
            *probe = Probe::Open(Asking::due(self.pace.next(cx.now), true));
            self.ask_if_due(cx);
        }
    }

    fn joining_live(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        let flush = batch.loss == Loss::Nothing && flushed_scope(&batch).is_some();
        if batch.loss == Loss::Body || is_reset(&batch) {
            self.start_join(cx);
            return self.arrive_again(cx, batch);
        }
        if batch.seq == Seq(0) {
            cx.record(Fact::FirstIsZero);
        } else if !flush {
            cx.record(Fact::JoinedLate(batch.seq));
            self.start_join(cx);
            return self.arrive_again(cx, batch);
        }
        self.cursor.next_seq = batch.seq;
        self.apply(cx, batch);
        // The lease of the life before, or of the process's start, may be long over.
        self.proven_by_batch(cx);
        self.settle(cx);
    }

    /// A batch that changed the phase is looked at once more in the new one.
    fn arrive_again(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        match &self.phase {
            Phase::Live(_) | Phase::Partial(_) => self.settled_live(cx, batch),
            Phase::Verifying(_) | Phase::Replaying(_) | Phase::Snapshotting(_) => {
                self.hold(cx, batch);
            }
            Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. } => (),
        }
    }

    fn settled_live(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        if !self.anchored() && batch.loss == Loss::Body {
            // Nothing it could have removed is in an empty view.
            cx.record(Fact::Undecodable(batch.seq));
            self.stand_behind(&batch);
            return self.proven_by_batch(cx);
        }
        if !self.anchored() {
            self.cursor.next_seq = batch.seq;
        }
        let next = self.cursor.next_seq;
        if is_reset(&batch) && batch.seq <= next && next < batch.next_seq() {
            return self.reset(cx, &batch);
        }
        if batch.seq != next {
            cx.record(Fact::Gap { first: next, count: batch.seq.0.saturating_sub(next.0) });
            self.start_repair(cx);
            return self.arrive_again(cx, batch);
        }
        if batch.loss == Loss::Body {
            return self.poisoned_live(cx, batch);
        }
        self.apply(cx, batch);
        self.proven_by_batch(cx);
    }

    /// A body that cannot be read: asked for once more, then lost for good.
    fn poisoned_live(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        cx.record(Fact::Undecodable(batch.seq));
        let seen_twice = self.poison == Some((batch.seq, batch.digest));
        if !self.can_replay() || seen_twice {
            return self.lost_for_good(cx, &batch);
        }
        self.poison = Some((batch.seq, batch.digest));
        self.start_repair(cx);
    }

    /// Live batches wait while an answer is open.
    pub(super) fn hold(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        if self.held.takes(&batch, &self.settings.limits) {
            self.held.push(batch, cx.now);
            return self.held_grew(cx);
        }
        cx.record(Fact::HeldFull);
        let probe_open = matches!(self.phase, Phase::Live(_) | Phase::Partial(_));
        if probe_open {
            // What is held is contiguous with the view: the look at the engine is what can be
            // spared.
            self.cancel(cx);
            self.settle(cx);
            self.drain(cx);
            return self.arrive(cx, batch, false);
        }
        let can_replay = self.can_replay();
        if self.planted(Planted::HeldFullForgets) {
            self.held.clear();
            self.settle(cx);
            return;
        }
        if let Some(asking) = self.phase.asking()
            && !asking.held_dropped
            && can_replay
        {
            // The journal returns the same batches; dropping the answer instead would lose ground.
            asking.held_dropped = true;
            self.held.clear();
        } else {
            self.no_history_without_snapshot(cx);
            if self.settled() {
                return self.arrive(cx, batch, false);
            }
        }
        // Either the buffer was emptied, or it drained until a new question stopped it.
        self.held.push(batch, cx.now);
    }

    /// Folds a batch that is next, and moves the cursor.
    pub(super) fn apply(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        debug_assert_eq!(batch.seq, self.cursor.next_seq, "only the next batch is applied");
        if !self.anchored() && batch.seq == Seq(0) {
            // The view is empty, and so was the engine's cache.
            self.lineage = Lineage::Proven(Scope::All);
        }
        if !self.anchored() || self.ring.last().is_none() {
            self.audit_from = batch.seq;
        }
        if let Lineage::Since { anchored, .. } = &mut self.lineage {
            *anchored = true;
        }
        if batch.incarnation.is_some() {
            self.incarnation.clone_from(&batch.incarnation);
        }
        self.account_loss(cx, &batch);
        self.account_clears(cx, &batch);
        self.ring.push(batch.seq, batch.digest, self.settings.limits.digest_ring);
        self.cursor.next_seq = batch.next_seq();
        // Kept while the way back to it is applied anew: the next sight of it must be the last.
        self.poison = self.poison.filter(|(seq, _)| *seq > batch.seq);
        self.announce_lower(cx);
        cx.act(Action::Apply(batch));
    }

    fn account_loss(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        match batch.loss {
            Loss::Nothing => return,
            Loss::Stores => {
                if !self.planted(Planted::LostStoreKeepsExact) {
                    self.cap.stores.get_or_insert(TrustReason::StoreUndecodable);
                }
            }
            Loss::MayRemove | Loss::Body => self.cap.removals = true,
        }
        cx.record(Fact::Undecodable(batch.seq));
    }

    /// A clear by the engine proves its scope empty; a clear by a bridge proves nothing.
    fn account_clears(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        let repaired = batch.events.iter().any(
            |event| matches!(event, Event::Cleared(cleared) if cleared.cause == ClearCause::Repair),
        );
        if repaired && self.planted(Planted::TrustRepairClear) {
            self.lineage = Lineage::Proven(Scope::All);
        } else if repaired {
            self.lineage = Lineage::Since { anchored: true, reason: TrustReason::HistoryLost };
        } else if let Some(scope) = flushed_scope(batch) {
            // What was lost in the same batch may have come after the clear.
            if batch.loss == Loss::Nothing {
                cx.record(Fact::Flushed(batch.seq));
                self.proven(cx);
                self.audit_from = batch.seq;
                self.cap = Cap::default();
                self.plain.relied_on = false;
                self.lineage = Lineage::Proven(scope);
            }
        }
        self.match_phase_to_lineage();
    }

    /// A flush lifts Partial to Live, a repair clear drops Live to Partial; an open probe stays
    /// open.
    fn match_phase_to_lineage(&mut self) {
        let proven = matches!(self.lineage, Lineage::Proven(_));
        let swapped = match &mut self.phase {
            Phase::Partial(probe) if proven => Phase::Live(std::mem::replace(probe, Probe::Off)),
            Phase::Live(probe) if !proven => Phase::Partial(std::mem::replace(probe, Probe::Off)),
            Phase::Live(_)
            | Phase::Partial(_)
            | Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. }
            | Phase::Verifying(_)
            | Phase::Replaying(_)
            | Phase::Snapshotting(_) => return,
        };
        self.enter(swapped);
    }

    /// Held batches go through the table, in order, until one of them opens a new question.
    pub(super) fn drain(&mut self, cx: &mut Cx<'_>) {
        while self.settled() {
            let Some(batch) = self.held.pop() else { break };
            self.arrive(cx, batch, false);
        }
    }

    /// The epoch of the machine; a wire that names lives is followed, otherwise it is minted.
    pub(super) fn next_epoch(&self, cx: &Cx<'_>, wire: Option<Epoch>) -> Epoch {
        let minted = self.settings.unix_ms_at_zero.saturating_add(cx.now.0);
        let floor = self.cursor.epoch.0.saturating_add(1);
        wire.unwrap_or(Epoch(minted.max(floor)))
    }
}

/// The scope of the last clear by the engine in this batch.
fn flushed_scope(batch: &Batch) -> Option<Scope> {
    batch.events.iter().rev().find_map(|event| match event {
        Event::Cleared(cleared) if cleared.cause == ClearCause::Engine => {
            Some(cleared.scope.clone())
        }
        Event::Cleared(_)
        | Event::Stored(_)
        | Event::Removed(_)
        | Event::Reset(_)
        | Event::Moved(_)
        | Event::Trust(_)
        | Event::Unknown(_) => None,
    })
}
