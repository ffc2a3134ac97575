//! Replay answers: same life or not, contiguous or not, complete or not.

use kvbridge_adapters_api::{AnswerPart, Attempt, Batch, Loss};
use kvbridge_schemas::Seq;

use super::{
    Action, Cx, Fact, Recovery, TrustReason,
    arrival::{Arrival, is_reset},
    phase::{Ask, Asking, Jump, Phase, Probe},
    planted::Planted,
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
        if self.can_snapshot() {
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

    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, attempt: Attempt, part: AnswerPart) {
        if self.phase.open_attempt() != Some(attempt) {
            return cx.record(Fact::StaleAnswer);
        }
        if matches!(self.phase, Phase::Snapshotting(_)) {
            return self.fetch_part(cx, part);
        }
        match part {
            AnswerPart::Batch(batch) => self.answer_batch(cx, batch),
            AnswerPart::End => self.answer_end(cx),
            AnswerPart::Failed => {
                cx.record(Fact::ReplayFailed);
                self.answer_lost(cx);
            }
            AnswerPart::Truncated => self.truncated(cx, None),
            AnswerPart::SnapshotIntro(_)
            | AnswerPart::SnapshotRecords(_)
            | AnswerPart::SnapshotEnd
            | AnswerPart::SnapshotRefused(_) => cx.record(Fact::StaleAnswer),
        }
    }

    fn answer_batch(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        match self.other_life(&batch) {
            Some(Arrival::NewEpoch(epoch)) => return self.new_epoch(cx, epoch, None),
            Some(_) => return cx.record(Fact::StaleEpoch),
            None => (),
        }
        let next = self.cursor.next_seq;
        let anchored = self.anchored();
        let deadline = cx.now.plus(self.settings.limits.replay_deadline_ms);
        let live_behind = self.held.first_seq().is_some_and(|first| first <= batch.seq);
        let asks_next = self.planted(Planted::GapAsksNext);
        let Some(asking) = self.phase.asking() else { return };
        if let Ask::Open { attempt, .. } = asking.ask {
            asking.ask = Ask::Open { attempt, deadline };
        }
        if let Some(jump) = &mut asking.jump {
            jump.complete |= live_behind;
            return;
        }
        let first_of_answer = asking.expect.is_none();
        asking.expect = Some(batch.next_seq());
        if is_reset(&batch) && batch.seq <= next && next < batch.next_seq() {
            return self.reset(cx, &batch);
        }
        if anchored && batch.next_seq() <= next {
            return if is_reset(&batch) {
            } else {
                self.answer_overlap(cx, &batch)
            };
        }
        let in_reach = !anchored || asking.anchored || asks_next;
        if batch.seq == next && in_reach && (anchored || batch.seq == Seq(0)) {
            return self.take_next(cx, batch);
        }
        if first_of_answer {
            return self.truncated(cx, Some(batch));
        }
        cx.record(Fact::Hole(next));
        asking.jump = Some(Jump { batch, complete: live_behind });
    }

    /// A replayed batch that is applied already: the proof that it is still the same life.
    fn answer_overlap(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        let is_last = batch.next_seq() == self.cursor.next_seq;
        let ours = self.ring.get(batch.seq);
        let skip = self.planted(Planted::DigestSkipped);
        match ours {
            Some(digest) if digest != batch.digest && !skip => {
                return self.digest_mismatch(cx, batch.seq, None);
            }
            // A snapshot without a digest gave us nothing to compare; from here on there is something.
            None if is_last && self.ring.last().is_none() => {
                self.ring.push(batch.seq, batch.digest, self.settings.limits.digest_ring);
            }
            Some(_) | None => (),
        }
        if is_last {
            self.confirmed = true;
            if let Some(asking) = self.phase.asking() {
                asking.anchored = true;
                asking.end_only = 0;
            }
        }
    }

    /// The batch the view needs next. Seen live as well, the two must be the same.
    fn take_next(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        let seq = batch.seq;
        let live_copy = self.held.digest_of(seq);
        if live_copy.is_some_and(|digest| digest != batch.digest)
            && !self.planted(Planted::DigestSkipped)
        {
            return self.digest_mismatch(cx, seq, None);
        }
        if batch.loss == Loss::Body {
            return self.poisoned_answer(cx, &batch);
        }
        self.apply(cx, batch);
        let tail_at = cx.now.plus(self.settings.limits.tail_wait_ms);
        let Some(asking) = self.phase.asking() else { return };
        asking.advanced = true;
        asking.anchored = true;
        if live_copy.is_some() {
            return self.complete(cx);
        }
        if asking.probe {
            self.tail = Some((seq, tail_at));
            if self.planted(Planted::ProbeRecordsNoOverlap) {
                self.ring.clear();
            }
        }
    }

    fn poisoned_answer(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        cx.record(Fact::Undecodable(batch.seq));
        let seen_twice = self.poison == Some((batch.seq, batch.digest));
        if seen_twice && !self.planted(Planted::PoisonReplayed) {
            return self.lost_for_good(cx, batch);
        }
        self.poison = Some((batch.seq, batch.digest));
        self.ask_again(cx);
    }

    fn answer_end(&mut self, cx: &mut Cx<'_>) {
        let held_nothing = self.held.is_empty();
        let end_trusted = self.planted(Planted::EndTrusted);
        let Some(asking) = self.phase.asking() else { return };
        if let Some(jump) = asking.jump.take() {
            return self.jumped(cx, jump.batch, true);
        }
        if asking.expect.is_none() {
            return self.end_only(cx);
        }
        // Exactly the last batch and END, with nothing newer known: the engine has no more. A probe
        // needs less: it withdrew nothing, and what is held follows through the table.
        let nothing_more = held_nothing && (!asking.advanced || end_trusted);
        let complete = asking.anchored && (nothing_more || asking.probe);
        if complete { self.complete(cx) } else { self.ask_again(cx) }
    }

    /// The answer broke off or never came.
    pub(super) fn answer_lost(&mut self, cx: &mut Cx<'_>) {
        let jump = self.phase.asking().and_then(|asking| asking.jump.take());
        self.cancel(cx);
        match jump {
            Some(jump) => self.jumped(cx, jump.batch, jump.complete),
            None => self.ask_again(cx),
        }
    }

    /// A hole is permanent when two complete answers agree on it.
    fn jumped(&mut self, cx: &mut Cx<'_>, batch: Batch, complete: bool) {
        let next = self.cursor.next_seq;
        let jump = (batch.seq, batch.digest);
        let Some(asking) = self.phase.asking() else { return };
        if complete && asking.earlier_jump == Some(jump) {
            cx.record(Fact::PermanentHole(next));
            return self.history_lost(cx, Some(batch));
        }
        if complete {
            asking.earlier_jump = Some(jump);
        }
        self.ask_again(cx);
    }

    /// The journal no longer holds the last applied batch. Not a restart: nothing says so.
    fn truncated(&mut self, cx: &mut Cx<'_>, first: Option<Batch>) {
        cx.record(Fact::Truncated(self.cursor.next_seq));
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        let Some(first) = first else { return self.no_history(cx) };
        self.forget(cx);
        self.stand_before(first.seq);
        self.keep_replaying(cx.now);
        self.take_next(cx, first);
    }

    /// What lies before `batch` is gone for everyone; the view starts again with it.
    fn history_lost(&mut self, cx: &mut Cx<'_>, batch: Option<Batch>) {
        self.cancel(cx);
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
        let Some(batch) = batch else { return self.no_history(cx) };
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

    /// A body that no one will ever read: its seq is a permanent hole, but its bytes anchor the rest.
    pub(super) fn lost_for_good(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        cx.record(Fact::PermanentHole(batch.seq));
        let asking_open = self.phase.asking().is_some();
        if self.can_snapshot() {
            return self.start_fetch(cx, None);
        }
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
        self.ring.push(last, batch.digest, self.settings.limits.digest_ring);
    }

    /// The open answer goes on, for a view that was cleared in the middle of it.
    pub(super) fn keep_replaying(&mut self, now: super::Tick) {
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

    fn end_only(&mut self, cx: &mut Cx<'_>) {
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
        self.cancel(cx);
        if was_probe {
            self.settle(cx);
            self.drain(cx);
        } else {
            self.no_history(cx);
        }
    }

    fn wait_for_first(&mut self, cx: &mut Cx<'_>) {
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
        let distance = self.distance();
        let held_nothing = self.held.is_empty();
        let next_at = self.pace.next(cx.now);
        let attempts_max = self.settings.limits.attempts_max;
        let Some(asking) = self.phase.asking() else { return };
        let nearer = distance < asking.distance || (asking.advanced && held_nothing);
        asking.distance = asking.distance.min(distance);
        asking.fruitless = if nearer { 0 } else { asking.fruitless + 1 };
        // A look at a settled engine must not keep live batches waiting.
        let spent = asking.fruitless >= attempts_max || (asking.probe && !held_nothing && !nearer);
        if !spent {
            asking.reopen(Ask::Due(next_at));
            self.ask_if_due(cx);
            // A probe that must wait for its turn holds nothing up.
            return self.drain(cx);
        }
        let was_probe = asking.probe;
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
        self.cancel(cx);
        self.proven(cx);
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
        let probe = self.next_probe(cx.now);
        match self.lineage {
            Lineage::Proven(_) => self.enter(Phase::Live(probe)),
            Lineage::Since { .. } => self.enter(Phase::Partial(probe)),
            Lineage::Empty => self.join(cx),
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
        self.proven(cx);
        self.enter(Phase::Partial(Probe::Off));
        self.drain(cx);
        if overflowed && self.settled() && self.anchored() {
            self.start_repair(cx);
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
        if probing && contiguous && !unproven {
            self.cancel(cx);
            self.settle(cx);
            self.drain(cx);
        }
    }
}
