//! Snapshots: asked for, counted, proven by their barrier, swapped in at once.

use kvbridge_adapters_api::{AnswerPart, Batch, Loss, SnapshotIntro, SnapshotRefusal};
use kvbridge_schemas::{Event, Scope, Seq, Tier, Trust};

use super::{
    Action, Cx, Fact, Recovery, TrustReason,
    phase::{Ask, Asking, Fetch, Phase},
    planted::Planted,
    standing::{Cap, Lineage},
};

/// Stored cuts that are installed in a row. A log that evicts is at the next one's place by then;
/// more than a few mean that views are stored less often than messages go.
const STORED_INSTALLS_MAX: u32 = 3;

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
        let support = self.settings.capabilities.snapshot;
        let usable = support.is_some_and(|support| !(support.plain && self.plain.disproved));
        usable && !self.snapshot_failed
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
        let (Some(intro), true) = (fetch.intro.clone(), fetch.ended) else { return };
        if fetch.records != intro.record_count {
            cx.record(Fact::Short);
            return self.fetch_again(cx);
        }
        if intro.epoch.is_some_and(|epoch| epoch < self.cursor.epoch) {
            cx.record(Fact::StaleEpoch);
            return self.fetch_again(cx);
        }
        if let Some(theirs) = &intro.incarnation {
            if self.closed.contains(theirs) {
                cx.record(Fact::StaleEpoch);
                return self.fetch_again(cx);
            }
            if self.incarnation.as_ref().is_some_and(|ours| ours != theirs) {
                // It restarted, and its live stream says so only with its next batch.
                return self.new_epoch(cx, None, None);
            }
        }
        match self.barrier_seen(&intro) {
            Some(true) => self.install(cx, intro),
            Some(false) => {
                cx.record(Fact::BarrierMissed);
                self.fetch_again(cx);
            }
            None => (),
        }
    }

    /// Whether the marker came on the live stream; `None` = it may still. The header may come long
    /// after it: what is held is searched, not only what comes.
    fn barrier_seen(&self, intro: &SnapshotIntro) -> Option<bool> {
        let Some(barrier) = intro.barrier else { return Some(true) };
        let Some(marker) = self.held.get(barrier) else {
            let passed = self.highest_live.is_some_and(|highest| highest >= barrier);
            return passed.then_some(false);
        };
        // The number alone may be that of another life: without names it is at least one of which
        // nothing is told, as markers are.
        let named = intro.incarnation.as_ref().zip(marker.incarnation.as_ref());
        let tells_nothing = marker.events.is_empty() && marker.loss == Loss::Nothing;
        Some(named.map_or(tells_nothing, |(theirs, its)| theirs == its))
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
        if intro.incarnation.is_some() {
            self.incarnation = intro.incarnation;
        }
        self.ring.clear();
        // A barrier is often the last batch of the cut, and then its bytes are known.
        let last = intro.resume_seq.minus(1);
        let digest = intro.last_digest.or_else(|| self.held.digest_of(last));
        if let Some(digest) = digest.filter(|_| intro.resume_seq > Seq(0)) {
            self.ring.push(last, digest, self.settings.limits.digest_ring);
        }
        self.audit_from = intro.resume_seq.minus(1);
        self.cap = Cap::default();
        self.poison = None;
        let support = self.settings.capabilities.snapshot;
        self.plain.relied_on = self.promised_plain() && intro.trust.device == Trust::Exact;
        let complete = self.plain.relied_on
            || support.is_some_and(|support| support.complete())
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
        self.stored_installs += 1;
        self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
        self.ask_if_due(cx);
    }

    /// What a stored cut led to was gone when it was asked for: by now a newer one may be stored.
    pub(super) fn fetch_newer(&mut self, cx: &mut Cx<'_>) -> bool {
        let newer = (1..STORED_INSTALLS_MAX).contains(&self.stored_installs);
        if newer {
            self.start_fetch(cx, None);
        }
        newer
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
        self.stored_installs = STORED_INSTALLS_MAX;
        if self.can_replay() {
            self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
            self.ask_if_due(cx);
        } else {
            self.no_history_without_snapshot(cx);
        }
    }

    /// A bridge tells what its hop lost: take its snapshot, or clear; never ask for those seqs.
    /// What the bridge still has is fetched once the view stands again
    /// ([`Recovery::follow_vouch`]).
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
        self.vouched.emptied();
    }
}
