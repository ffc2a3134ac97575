//! Asking for old batches: when, how often, and when it is done.

use kvbridge_schemas::Seq;

use super::{
    Action, Cx, Fact, Recovery, TrustReason,
    phase::{Ask, Asking, Phase, Probe},
    standing::Lineage,
};

impl Recovery {
    /// Whether old batches can be asked for.
    pub(super) fn can_replay(&self) -> bool {
        let usable = self.replay_unusable_until.is_none_or(|until| until <= self.now);
        self.settings.has_replay() && usable
    }

    /// Attached late, or too early to tell: fetch what was before.
    pub(super) fn start_join(&mut self, cx: &mut Cx<'_>) {
        if self.doubt == TrustReason::Joining {
            self.doubt = TrustReason::JoinedLate;
        }
        // A journal that reaches back to the start brings content with the blocks.
        let content = self.settings.capabilities.snapshot.is_some_and(|support| support.content);
        if self.can_snapshot() && (content || !self.can_replay()) {
            self.start_fetch(cx, None);
        } else if self.can_replay() {
            self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
            self.ask_if_due(cx);
        } else {
            self.no_history(cx);
        }
    }

    /// Batches are missing: withdraw trust and ask, inclusive of the last one applied.
    pub(super) fn start_repair(&mut self, cx: &mut Cx<'_>) {
        self.withdraw(cx, TrustReason::GapOpen);
        self.cancel(cx);
        if self.can_replay() {
            self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
            self.ask_if_due(cx);
        } else {
            self.no_history(cx);
        }
    }

    /// The journal holds nothing at or behind the seq asked for, or it cannot be reached.
    pub(super) fn end_only(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::EndOnly);
        let held_nothing = self.held.is_empty();
        let (anchored, confirmed) = (self.anchored(), self.confirmed);
        let Some(asking) = self.phase.asking() else { return };
        asking.end_only += 1;
        let twice = asking.end_only >= 2;
        if !anchored && held_nothing {
            // An engine that has published nothing yet; its first batch will come live.
            return self.wait_for_first(cx);
        }
        if !twice {
            if confirmed && asking.probe {
                // The engine no longer knows what it told us: no trust while that is looked into.
                self.withdraw(cx, TrustReason::Verifying);
                self.keep_replaying(cx.now);
            }
            return self.ask_again(cx);
        }
        if anchored && confirmed {
            return self.new_epoch(cx, None, None);
        }
        cx.record(Fact::ReplayUnusable);
        self.replay_unusable_until = Some(cx.now.plus(self.settings.limits.lease_ms));
        let was_probe = asking.probe;
        self.give_up(cx, was_probe);
    }

    /// A look at a settled engine that begins further back than it would by itself.
    pub(super) fn look_from(&mut self, cx: &mut Cx<'_>, seq: Seq) {
        if !self.can_replay() || !matches!(self.phase, Phase::Live(_) | Phase::Partial(_)) {
            return;
        }
        // A look that is under way begins too late.
        self.cancel(cx);
        self.look_from = Some(seq);
        let asking = Probe::Open(Asking::due(self.pace.next(cx.now), true));
        match &mut self.phase {
            Phase::Live(probe) | Phase::Partial(probe) => *probe = asking,
            Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. }
            | Phase::Verifying(_)
            | Phase::Replaying(_)
            | Phase::Snapshotting(_) => return,
        }
        self.ask_if_due(cx);
        // What the cancelled look held does not wait for the turn of this one.
        self.drain(cx);
    }

    fn wait_for_first(&mut self, cx: &mut Cx<'_>) {
        self.pace.found_nothing();
        self.cancel(cx);
        if self.lineage == Lineage::Empty {
            let ask_at = cx.now.plus(self.settings.limits.probe_after_ms);
            self.enter(Phase::Joining { ask_at });
        } else {
            self.settle(cx);
        }
    }

    /// The same question once more, on a fresh connection, as long as it brings us nearer.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_>) {
        self.ask_once_more(cx, 1);
    }

    /// The same, where the attempt counts for so much.
    pub(super) fn ask_once_more(&mut self, cx: &mut Cx<'_>, fruitless: u32) {
        let distance = self.distance();
        let held_nothing = self.held.is_empty();
        let next_at = self.pace.next(cx.now);
        let attempts_max = self.settings.limits.attempts_max;
        let Some(asking) = self.phase.asking() else { return };
        let nearer = distance < asking.distance || (asking.advanced && held_nothing);
        asking.distance = asking.distance.min(distance);
        asking.fruitless = if nearer { 0 } else { asking.fruitless + fruitless };
        // A look at a settled engine must not keep live batches waiting.
        let spent = asking.fruitless >= attempts_max || (asking.probe && !held_nothing && !nearer);
        if !spent {
            asking.reopen(Ask::Due(next_at));
            self.ask_if_due(cx);
            // A probe that must wait for its turn holds nothing up.
            return self.drain(cx);
        }
        let was_probe = asking.probe;
        self.give_up(cx, was_probe);
    }

    /// Asking leads nowhere: a settled view stays as it is, any other loses its history.
    fn give_up(&mut self, cx: &mut Cx<'_>, was_probe: bool) {
        self.cancel(cx);
        if was_probe {
            self.settle(cx);
            self.drain(cx);
        } else {
            self.no_history(cx);
        }
    }

    /// How far the newest batch seen live is ahead of the view.
    pub(super) fn distance(&self) -> u64 {
        let newest = self.highest_live.map_or(Seq(0), |seq| seq.plus(1));
        newest.0.saturating_sub(self.cursor.next_seq.0)
    }

    /// Proven complete: held batches follow, and whatever they reveal.
    pub(super) fn complete(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::Replayed);
        if self.phase.asking().is_some_and(|asking| asking.probe && !asking.advanced) {
            self.pace.found_nothing();
        }
        self.cancel(cx);
        self.proven(cx);
        self.audit_from = self.cursor.next_seq.minus(1);
        self.follow_held(cx);
    }

    /// Settles; held batches follow, and what our own queue dropped meanwhile is asked for.
    pub(super) fn follow_held(&mut self, cx: &mut Cx<'_>) {
        let overflowed = std::mem::take(&mut self.overflow_pending);
        self.settle(cx);
        self.drain(cx);
        if overflowed && self.settled() {
            self.start_repair(cx);
        }
    }

    /// Enters the settled phase that the lineage allows.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>) {
        self.snapshot_failed = false;
        self.stored_installs = 0;
        self.look_from = None;
        let probe = self.next_probe(cx.now);
        match self.lineage {
            Lineage::Proven(_) => self.enter(Phase::Live(probe)),
            Lineage::Since { .. } => self.enter(Phase::Partial(probe)),
            Lineage::Empty => self.join(cx),
        }
    }

    /// Stops reading an answer that is open.
    pub(super) fn cancel(&mut self, cx: &mut Cx<'_>) {
        if self.phase.open_attempt().is_none() {
            return;
        }
        cx.act(Action::CancelRequest);
        let closed = Ask::Due(cx.now);
        if let Phase::Snapshotting(fetch) = &mut self.phase {
            fetch.ask = closed;
        } else if let Some(asking) = self.phase.asking() {
            asking.ask = closed;
        }
    }

    /// Called when a live batch was added to what is held.
    pub(super) fn held_grew(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Snapshotting(_)) {
            return self.try_install(cx);
        }
        let next = self.cursor.next_seq;
        let contiguous = self.held.first_seq() == Some(next);
        let unproven = self.settings.unproven();
        let probing = matches!(self.phase, Phase::Live(_) | Phase::Partial(_));
        // On a connection that is known to be the same, the next batch says all that a probe could.
        if probing && contiguous && !unproven && self.look_from.is_none() {
            self.cancel(cx);
            self.settle(cx);
            self.drain(cx);
        }
    }
}
