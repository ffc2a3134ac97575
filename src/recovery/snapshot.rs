//! Snapshots: asked for, counted, proven by their barrier, swapped in at once.

use kvbridge_adapters_api::{AnswerPart, Batch, SnapshotIntro, SnapshotRefusal};
use kvbridge_schemas::{Event, Scope, Seq, Tier, Trust};

use super::{
    Action, Cx, Fact, Recovery, TrustReason,
    phase::{Ask, Asking, Fetch, Phase},
    planted::Planted,
    standing::{Cap, Lineage},
};

impl Fetch {
    /// Forgets what belongs to one answer, ahead of the next.
    pub(super) fn reopen(&mut self, ask: Ask) {
        self.ask = ask;
        self.intro = None;
        self.records = 0;
        self.ended = false;
    }
}

impl Recovery {
    pub(super) fn can_snapshot(&self) -> bool {
        self.settings.capabilities.snapshot.is_some() && !self.snapshot_failed
    }

    /// Asks for the whole state; live batches are held meanwhile.
    pub(super) fn start_fetch(&mut self, cx: &mut Cx<'_>, object: Option<String>) {
        self.withdraw(cx, TrustReason::Snapshotting);
        self.cancel(cx);
        let ask = Ask::Due(self.pace.next(cx.now));
        let fetch = Fetch { ask, object, intro: None, records: 0, ended: false, fruitless: 0 };
        self.enter(Phase::Snapshotting(fetch));
        self.ask_if_due(cx);
    }

    pub(super) fn fetch_part(&mut self, cx: &mut Cx<'_>, part: AnswerPart) {
        let deadline = cx.now.plus(self.settings.limits.replay_deadline_ms);
        let Phase::Snapshotting(fetch) = &mut self.phase else { return };
        if let Ask::Open { attempt, .. } = fetch.ask {
            fetch.ask = Ask::Open { attempt, deadline };
        }
        match part {
            AnswerPart::SnapshotIntro(intro) => fetch.intro = Some(intro),
            AnswerPart::SnapshotRecords(count) => {
                fetch.records = fetch.records.saturating_add(count)
            }
            AnswerPart::SnapshotEnd => fetch.ended = true,
            AnswerPart::Busy | AnswerPart::SnapshotRefused(SnapshotRefusal::Busy) => {
                cx.record(Fact::Busy);
                return self.fetch_again(cx);
            }
            AnswerPart::SnapshotRefused(SnapshotRefusal::Unavailable) => {
                return self.fetch_failed(cx);
            }
            AnswerPart::SnapshotRefused(SnapshotRefusal::Inconsistent) => {
                cx.record(Fact::Inconsistent);
                return self.fetch_again(cx);
            }
            AnswerPart::SnapshotRefused(SnapshotRefusal::TooLarge) => {
                cx.record(Fact::TooLarge);
                return self.fetch_failed(cx);
            }
            AnswerPart::Failed | AnswerPart::Truncated => return self.fetch_again(cx),
            AnswerPart::Batch(_)
            | AnswerPart::Continues(_)
            | AnswerPart::FromTwin(_)
            | AnswerPart::End => {
                return cx.record(Fact::StaleAnswer);
            }
        }
        self.try_install(cx);
    }

    /// Installs once the record count is right and the barrier was seen on the live stream.
    pub(super) fn try_install(&mut self, cx: &mut Cx<'_>) {
        let Phase::Snapshotting(fetch) = &self.phase else { return };
        let (Some(intro), true) = (fetch.intro, fetch.ended) else { return };
        if fetch.records != intro.record_count {
            cx.record(Fact::Short);
            return self.fetch_again(cx);
        }
        if intro.epoch.is_some_and(|epoch| epoch < self.cursor.epoch) {
            cx.record(Fact::StaleEpoch);
            return self.fetch_again(cx);
        }
        // The header may come long after the barrier: what is held is searched, not only what
        // comes.
        if let Some(barrier) = intro.barrier
            && self.held.digest_of(barrier).is_none()
        {
            if self.highest_live.is_some_and(|highest| highest >= barrier) {
                cx.record(Fact::BarrierMissed);
                self.fetch_again(cx);
            }
            return;
        }
        self.install(cx, intro);
    }

    fn install(&mut self, cx: &mut Cx<'_>, intro: SnapshotIntro) {
        let Some(attempt) = self.phase.open_attempt() else { return };
        cx.record(Fact::Installed);
        if let Some(epoch) = intro.epoch {
            self.cursor.epoch = epoch;
        }
        cx.act(Action::Install { attempt, epoch: self.cursor.epoch, resume_seq: intro.resume_seq });
        self.cursor.next_seq = intro.resume_seq;
        self.vouched.start_over();
        self.ring.clear();
        if let Some(digest) = intro.last_digest
            && intro.resume_seq > Seq(0)
        {
            let last = intro.resume_seq.minus(1);
            self.ring.push(last, digest, self.settings.limits.digest_ring);
        }
        self.audit_from = intro.resume_seq.minus(1);
        self.cap = Cap::default();
        self.poison = None;
        let support = self.settings.capabilities.snapshot;
        let complete = support.is_some_and(|support| support.complete())
            || self.planted(Planted::IncompleteInstallsExact);
        self.lineage = match (complete && intro.trust.device == Trust::Exact, intro.trust.host) {
            (true, Trust::Exact) => Lineage::Proven(Scope::All),
            (true, _) => Lineage::Proven(Scope::Tiers(vec![Tier::Device])),
            (false, _) => Lineage::Since { anchored: true, reason: TrustReason::PartialSnapshot },
        };
        self.held.drop_below(intro.resume_seq);
        if support.is_none_or(|support| support.barrier) || !self.can_replay() {
            self.proven(cx);
            return self.follow_held(cx);
        }
        // Nothing in the live stream proves that the cut is of now: a stored one may be long past,
        // and a quiet stream would never show it. What came behind it is asked for first; a second
        // snapshot of the same age would not help.
        self.snapshot_failed = true;
        self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
        self.ask_if_due(cx);
    }

    /// Once more, later; at the limit another way is taken.
    pub(super) fn fetch_again(&mut self, cx: &mut Cx<'_>) {
        self.cancel(cx);
        let attempts_max = self.settings.limits.attempts_max;
        let next_at = self.pace.next(cx.now);
        let Phase::Snapshotting(fetch) = &mut self.phase else { return };
        fetch.fruitless += 1;
        if fetch.fruitless >= attempts_max {
            return self.fetch_failed(cx);
        }
        fetch.reopen(Ask::Due(next_at));
        self.ask_if_due(cx);
    }

    fn fetch_failed(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::SnapshotFailed);
        self.cancel(cx);
        self.snapshot_failed = true;
        if self.can_replay() {
            self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
            self.ask_if_due(cx);
        } else {
            self.no_history_without_snapshot(cx);
        }
    }

    /// A bridge tells what its hop lost: take its snapshot, or clear; never ask for those seqs.
    pub(super) fn reset(&mut self, cx: &mut Cx<'_>, batch: &Batch) {
        cx.record(Fact::Reset(batch.seq));
        let object = batch.events.iter().find_map(|event| match event {
            Event::Reset(reset) => reset.snapshot.clone(),
            Event::Stored(_)
            | Event::Removed(_)
            | Event::Cleared(_)
            | Event::Moved(_)
            | Event::Trust(_)
            | Event::Unknown(_) => None,
        });
        if object.is_some() && self.can_snapshot() {
            return self.start_fetch(cx, object);
        }
        self.go_on_behind(cx, batch);
    }
}
