//! What is lost for good, and how the view goes on behind it.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::Seq;

use super::{
    Cx, Fact, Recovery, Tick, TrustReason,
    arrival::is_reset,
    phase::{Asking, Phase},
    standing::Lineage,
};

impl Recovery {
    /// The journal no longer holds the last applied batch. Not a restart: nothing says so.
    pub(super) fn truncated(&mut self, cx: &mut Cx<'_>, first: Option<Batch>) {
        cx.record(Fact::Truncated(self.cursor.next_seq));
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        if self.fetch_newer(cx) {
            return;
        }
        let Some(first) = first else { return self.no_history(cx) };
        self.forget(cx);
        self.stand_before(first.seq);
        self.keep_replaying(cx.now);
        self.take_next(cx, first);
    }

    /// What lies before `batch` is gone for everyone; the view starts again with it.
    pub(super) fn history_lost(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        self.cancel(cx);
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        self.forget(cx);
        self.stand_before(batch.seq);
        self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
        if batch.loss == Loss::Body {
            // Nothing it could have removed is in an empty view, and its bytes anchor what follows.
            cx.record(Fact::Undecodable(batch.seq));
            self.stand_behind(&batch);
        } else {
            self.apply(cx, batch);
        }
        self.ask_if_due(cx);
    }

    /// A body that no one will ever read: its seq is a permanent hole, but its bytes anchor the
    /// rest.
    pub(super) fn lost_for_good(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        cx.record(Fact::PermanentHole(batch.seq));
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        self.go_on_behind(cx, batch);
    }

    /// Clears, and goes on behind a batch: in the open answer, or settled.
    pub(super) fn go_on_behind(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        let asking_open = self.phase.asking().is_some();
        self.forget(cx);
        self.stand_behind(batch);
        if asking_open {
            self.keep_replaying(cx.now);
        } else {
            self.settle(cx);
        }
    }

    /// The cleared view goes on from here; what was held from before belongs to what was cleared.
    fn stand_before(&mut self, seq: Seq) {
        self.cursor.next_seq = seq;
        self.held.drop_below(seq);
    }

    /// Takes the place behind a batch without applying it.
    pub(super) fn stand_behind(&mut self, batch: &Batch) {
        if let Lineage::Since { anchored, .. } = &mut self.lineage {
            *anchored = true;
        }
        self.stand_before(batch.next_seq());
        let last = batch.next_seq().minus(1);
        self.audit_from = last;
        // A reset has no bytes: of two bridges one may publish the batch that the other covered.
        if !is_reset(batch) {
            self.ring.push(last, batch.digest, self.settings.limits.digest_ring);
        }
    }

    /// The open answer goes on, for a view that was cleared in the middle of it.
    pub(super) fn keep_replaying(&mut self, now: Tick) {
        let due = Asking::due(self.pace.next(now), false);
        let mut asking = match self.phase.asking() {
            Some(asking) => std::mem::replace(asking, due),
            None => due,
        };
        asking.probe = false;
        asking.anchored = true;
        asking.advanced = true;
        asking.distance = u64::MAX;
        self.enter(Phase::Replaying(asking));
    }

    /// Another reader takes events away. What it has is nowhere else, and what it takes next shows
    /// only with a later batch: nothing from before is kept, and it shows as the reason.
    pub(super) fn competing(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::CompetingConsumer);
        if matches!(self.phase, Phase::Live(_)) || self.is_resuming() {
            self.start_repair(cx);
        }
        if let Lineage::Since { reason, .. } = &mut self.lineage {
            *reason = TrustReason::CompetingConsumer;
        }
    }

    /// A kept view of a source that is drained. What nobody has read waits there, so the number of
    /// the next batch says whether any is missing; nothing can be asked before it comes.
    pub(super) fn wait_to_resume(&mut self, cx: &mut Cx<'_>) {
        let again = cx.now.plus(self.settings.limits.lease_ms);
        self.enter(Phase::Verifying(Asking::due(again, false)));
    }

    /// Whether that is awaited. Nothing else verifies without a journal.
    pub(super) fn is_resuming(&self) -> bool {
        matches!(self.phase, Phase::Verifying(_)) && !self.settings.has_replay()
    }

    /// A batch came: settled if it is the next one, and else a lower bound.
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>, seq: Seq) {
        if seq == self.cursor.next_seq {
            cx.record(Fact::Resumed(seq));
            self.proven(cx);
            self.settle(cx);
        } else {
            let first = self.cursor.next_seq;
            cx.record(Fact::Gap { first, count: seq.0.saturating_sub(first.0) });
            self.no_history(cx);
        }
    }

    /// Neither replay nor snapshot can help any more: a lower bound from here on.
    pub(super) fn no_history(&mut self, cx: &mut Cx<'_>) {
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        self.no_history_without_snapshot(cx);
    }

    pub(super) fn no_history_without_snapshot(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::NoHistory);
        self.cancel(cx);
        let overflowed = std::mem::take(&mut self.overflow_pending);
        self.forget(cx);
        self.enter(Phase::Partial(self.next_probe(cx.now)));
        self.proven_by_held(cx);
        // Settled, if at nothing: a better view may be fetched again, and a log that goes on would
        // never bring it by itself.
        self.snapshot_failed = false;
        self.drain(cx);
        if overflowed && self.settled() && self.anchored() {
            self.start_repair(cx);
        }
    }
}
