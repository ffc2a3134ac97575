//! Replay answers: same life or not, contiguous or not, complete or not.

use kvbridge_adapters_api::{AnswerPart, Attempt, Batch, Loss};
use kvbridge_schemas::{Cursor, Seq};

use super::{
    Cx, Fact, Recovery,
    arrival::{Arrival, is_reset},
    phase::{Ask, Jump, Phase},
    planted::Planted,
};

impl Recovery {
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, attempt: Attempt, part: AnswerPart) {
        if self.phase.open_attempt() != Some(attempt) {
            return cx.record(Fact::StaleAnswer);
        }
        if matches!(self.phase, Phase::Snapshotting(_)) {
            return self.fetch_part(cx, part);
        }
        match part {
            AnswerPart::Batch(batch) => self.answer_batch(cx, batch),
            AnswerPart::Continues(cursor) => self.answer_continues(cx, cursor),
            AnswerPart::FromTwin(seq) => cx.record(Fact::HealedByTwin(seq)),
            AnswerPart::End => self.answer_end(cx),
            AnswerPart::Failed => {
                cx.record(Fact::ReplayFailed);
                self.answer_lost(cx);
            }
            AnswerPart::Busy => self.answer_busy(cx),
            AnswerPart::Truncated => self.answer_truncated(cx),
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
        let compared_from = self.compared_from();
        let live_behind = self.held.first_seq().is_some_and(|first| first <= batch.seq);
        let asks_next = self.planted(Planted::GapAsksNext);
        let Some(asking) = self.phase.asking() else { return };
        if let Ask::Open { attempt, .. } = asking.ask {
            asking.ask = Ask::Open { attempt, deadline };
        }
        asking.continues = false;
        if let Some(jump) = &mut asking.jump {
            jump.complete |= live_behind;
            return;
        }
        if batch.span == 0 {
            // What a bridge says between two batches proves nothing.
            return;
        }
        let first_of_answer = asking.expect.is_none();
        asking.expect = Some(batch.next_seq());
        if is_reset(&batch) && batch.seq <= next && next < batch.next_seq() {
            return self.reset(cx, &batch);
        }
        if first_of_answer && anchored && !asks_next && batch.seq > compared_from {
            return self.truncated(cx, Some(batch));
        }
        if anchored && batch.next_seq() <= next {
            // A reset behind us has an id space of its own: nothing to compare.
            if !is_reset(&batch) {
                return self.answer_overlap(cx, batch);
            }
            // On a log that names its lives, the reset that we stand behind is a place like any.
            asking.anchored |= batch.epoch.is_some() && batch.next_seq() == next;
            return;
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

    /// The log's own numbers tie the answer to the view.
    fn answer_continues(&mut self, cx: &mut Cx<'_>, cursor: Cursor) {
        let ours =
            self.anchored() && cursor == self.cursor && self.settings.capabilities.epoch_on_wire;
        let deadline = cx.now.plus(self.settings.limits.replay_deadline_ms);
        let Some(asking) = self.phase.asking() else { return };
        if let Ask::Open { attempt, .. } = asking.ask {
            asking.ask = Ask::Open { attempt, deadline };
        }
        if ours {
            asking.expect = Some(cursor.next_seq);
            asking.anchored = true;
            asking.continues = true;
            asking.end_only = 0;
            self.confirmed = true;
        }
    }

    /// The start is lost, which is nothing to a view that the log's own numbers place behind it.
    fn answer_truncated(&mut self, cx: &mut Cx<'_>) {
        let next = self.cursor.next_seq;
        let joined = self.held.first_seq().is_none_or(|first| first == next);
        let Some(asking) = self.phase.asking() else { return };
        match (asking.continues, joined) {
            (false, _) => self.truncated(cx, None),
            (true, true) => self.complete(cx),
            // The end of the answer asks for what lies before what is held.
            (true, false) => (),
        }
    }

    /// Nothing was said of the log, so it is no step towards giving up.
    fn answer_busy(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::Busy);
        self.broke_off(cx, 0);
    }

    /// A replayed batch that is applied already: the proof that it is still the same life.
    fn answer_overlap(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        let is_last = batch.next_seq() == self.cursor.next_seq;
        let ours = self.ring.get(batch.seq);
        let skip = self.planted(Planted::DigestSkipped);
        match ours {
            Some(digest) if digest != batch.digest && !skip => {
                return self.digest_mismatch(cx, batch, false);
            }
            // The ring no longer reaches back to the last audit, so nothing ties the view to it.
            None if self.settings.unproven() && batch.seq == self.compared_from() && !is_last => {
                return self.truncated(cx, Some(batch));
            }
            // A snapshot without a digest gave us nothing to compare; from here on there is
            // something.
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
    pub(super) fn take_next(&mut self, cx: &mut Cx<'_>, batch: Batch) {
        let seq = batch.seq;
        let live_copy = self.held.digest_of(seq);
        if live_copy.is_some_and(|digest| digest != batch.digest)
            && !self.planted(Planted::DigestSkipped)
        {
            return self.digest_mismatch(cx, batch, false);
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
                self.highest_live = Some(self.cursor.next_seq);
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
        self.broke_off(cx, 1);
    }

    fn broke_off(&mut self, cx: &mut Cx<'_>, fruitless: u32) {
        let jump = self.phase.asking().and_then(|asking| asking.jump.take());
        self.cancel(cx);
        match jump {
            Some(jump) => self.jumped(cx, jump.batch, jump.complete),
            None => self.ask_once_more(cx, fruitless),
        }
    }

    /// A hole is permanent when two complete answers agree on it.
    fn jumped(&mut self, cx: &mut Cx<'_>, batch: Batch, complete: bool) {
        let next = self.cursor.next_seq;
        let jump = (batch.seq, batch.digest);
        let Some(asking) = self.phase.asking() else { return };
        if complete && asking.earlier_jump == Some(jump) {
            cx.record(Fact::PermanentHole(next));
            return self.history_lost(cx, batch);
        }
        if complete {
            asking.earlier_jump = Some(jump);
        }
        self.ask_again(cx);
    }
}
