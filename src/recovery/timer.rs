//! Time: what is due, how requests are paced, when a proof runs out.

use kvbridge_adapters_api::Attempt;
use kvbridge_schemas::Seq;

use super::{
    Action, Cx, Fact, Limits, Recovery, Tick, TrustReason,
    phase::{Ask, Asking, Phase, Probe},
    planted::Planted,
};

/// Spaces requests to one engine: the first at once, then ever rarer while trouble lasts.
#[derive(Debug)]
pub(super) struct Pace {
    asked_at: Tick,
    allowed_at: Tick,
    interval_ms: u64,
    base_ms: u64,
    max_ms: u64,
    jitter: u64,
}

impl Pace {
    pub(super) fn new(seed: u64, limits: &Limits) -> Pace {
        Pace {
            asked_at: Tick(0),
            allowed_at: Tick(0),
            interval_ms: limits.replay_interval_ms,
            base_ms: limits.replay_interval_ms,
            max_ms: limits.replay_interval_ms_max,
            jitter: seed,
        }
    }

    /// The earliest moment for a request.
    pub(super) fn next(&self, now: Tick) -> Tick {
        self.allowed_at.max(now)
    }

    fn asked(&mut self, now: Tick) {
        let quiet = now.0.saturating_sub(self.allowed_at.0) > self.max_ms;
        self.interval_ms =
            if quiet { self.base_ms } else { (self.interval_ms * 2).min(self.max_ms) };
        // A multiplicative hash is all the randomness that spreading out needs, and it replays.
        self.jitter = self.jitter.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let spread = (self.jitter >> 33) % (self.interval_ms / 2 + 1);
        (self.asked_at, self.allowed_at) = (now, now.plus(self.interval_ms + spread));
    }

    /// The answer found nothing wrong. A look that is asked for more often than the longest
    /// interval would else make a repair wait for that long.
    pub(super) fn found_nothing(&mut self) {
        self.interval_ms = self.base_ms;
        self.allowed_at = self.allowed_at.min(self.asked_at.plus(self.base_ms));
    }
}

impl Recovery {
    /// Does all that is due now.
    pub(super) fn deadline(&mut self, cx: &mut Cx<'_>) {
        if let Some((seq, at)) = self.tail
            && at <= cx.now
        {
            self.tail = None;
            cx.record(Fact::TailLoss(seq));
        }
        self.expire_lease(cx);
        self.vouch_due(cx);
        if self.phase.deadline().is_none_or(|at| at > cx.now) {
            return;
        }
        match &self.phase {
            Phase::Detached | Phase::Shed { .. } => (),
            Phase::Quarantined { .. } => {
                self.quarantine_until = None;
                self.births.clear();
                self.join(cx);
            }
            Phase::Joining { .. } => self.start_join(cx),
            Phase::Live(Probe::At(_)) | Phase::Partial(Probe::At(_)) => self.open_probe(cx),
            Phase::Live(Probe::Off) | Phase::Partial(Probe::Off) => (),
            Phase::Verifying(_) if self.is_resuming() => self.wait_to_resume(cx),
            Phase::Verifying(Asking { ask, .. })
            | Phase::Replaying(Asking { ask, .. })
            | Phase::Live(Probe::Open(Asking { ask, .. }))
            | Phase::Partial(Probe::Open(Asking { ask, .. })) => match ask {
                Ask::Due(_) => self.ask_if_due(cx),
                Ask::Open { .. } => {
                    cx.record(Fact::Silent);
                    self.answer_lost(cx);
                }
            },
            Phase::Snapshotting(fetch) => match fetch.ask {
                Ask::Due(_) => self.ask_if_due(cx),
                Ask::Open { .. } => {
                    cx.record(Fact::Silent);
                    self.fetch_again(cx);
                }
            },
        }
    }

    fn open_probe(&mut self, cx: &mut Cx<'_>) {
        if !self.anchored() {
            return self.look_for_a_start(cx);
        }
        cx.record(if self.settings.unproven() { Fact::Audit } else { Fact::Idle });
        let asking = Asking::due(self.pace.next(cx.now), true);
        if let Phase::Live(probe) | Phase::Partial(probe) = &mut self.phase {
            *probe = Probe::Open(asking);
        }
        self.ask_if_due(cx);
    }

    /// A lower bound that no batch has followed yet: the engine may have restarted and gone idle,
    /// and then its journal holds the whole of its new life. The view is empty, so nothing is
    /// risked.
    fn look_for_a_start(&mut self, cx: &mut Cx<'_>) {
        cx.record(Fact::Idle);
        self.replay_unusable_until = None;
        self.withdraw(cx, TrustReason::JoinedLate);
        self.enter(Phase::Replaying(Asking::due(self.pace.next(cx.now), false)));
        self.ask_if_due(cx);
    }

    /// Sends the request of this phase, if it is time.
    pub(super) fn ask_if_due(&mut self, cx: &mut Cx<'_>) {
        let due = |ask: Ask| matches!(ask, Ask::Due(at) if at <= cx.now);
        let attempt = Attempt(self.attempt.0.wrapping_add(1));
        let deadline = cx.now.plus(self.settings.limits.replay_deadline_ms);
        let open = Ask::Open { attempt, deadline };
        let start_seq = self.start_seq();
        let distance = self.distance();
        if let Phase::Snapshotting(fetch) = &mut self.phase {
            if !due(fetch.ask) {
                return;
            }
            fetch.reopen(open);
            cx.act(Action::RequestSnapshot { attempt, object: fetch.object.clone() });
        } else if let Some(asking) = self.phase.asking() {
            if !due(asking.ask) {
                return;
            }
            asking.reopen(open);
            asking.distance = asking.distance.min(distance);
            cx.act(Action::RequestReplay { attempt, start_seq });
        } else {
            return;
        }
        self.attempt = attempt;
        self.pace.asked(cx.now);
    }

    /// Inclusive always: the answer must begin with what we hold, or it speaks of another life.
    fn start_seq(&self) -> Seq {
        if !self.anchored() {
            return Seq(0);
        }
        let run = if self.planted(Planted::GapAsksNext) {
            0
        } else {
            self.settings.limits.verify_run.max(1)
        };
        let from = self.cursor.next_seq.minus(run).min(self.compared_from());
        self.look_from.map_or(from, |seq| seq.min(from))
    }

    /// The newest seq at which an answer may begin and still prove that the view is of one life.
    pub(super) fn compared_from(&self) -> Seq {
        let last = self.cursor.next_seq.minus(1);
        let audited = self.settings.unproven() && !self.planted(Planted::AuditComparesLast);
        if audited { self.audit_from.min(last) } else { last }
    }

    /// The next look at a settled engine.
    pub(super) fn next_probe(&self, now: Tick) -> Probe {
        let limits = &self.settings.limits;
        let wait = if self.settings.unproven() { limits.audit_ms } else { limits.probe_after_ms };
        if self.settings.has_replay() && !self.planted(Planted::NeverProbes) {
            // A replay that was of no use is tried again later: its port may have been opened
            // since.
            let unusable_until = self.replay_unusable_until.filter(|_| self.anchored());
            let usable_at = unusable_until.unwrap_or(now);
            Probe::At(now.plus(wait).max(usable_at))
        } else {
            Probe::Off
        }
    }

    pub(super) fn lease_at(&self) -> Option<Tick> {
        let settled = matches!(self.phase, Phase::Live(_) | Phase::Partial(_));
        (settled && !self.lapsed && !self.planted(Planted::NoLease))
            .then(|| self.proven_at.plus(self.settings.limits.lease_ms))
    }

    /// A probe or a complete replay proved the view.
    pub(super) fn proven(&mut self, cx: &Cx<'_>) {
        self.proven_at = cx.now;
        self.lapsed = false;
    }

    /// A lower bound begins with what is held. Where a reconnect goes unseen the life that sent it
    /// may have ended while answers were waited for: it proves no more than it did when it came.
    pub(super) fn proven_by_held(&mut self, cx: &mut Cx<'_>) {
        self.proven(cx);
        if self.settings.unproven()
            && let Some(came_at) = self.held.came_at()
        {
            self.proven_at = came_at;
        }
        self.expire_lease(cx);
    }

    /// A lease that is over is over at once, also where it was over when the view was settled: a
    /// later step would have let it be believed until then.
    pub(super) fn expire_lease(&mut self, cx: &mut Cx<'_>) {
        if self.lease_at().is_some_and(|at| at <= cx.now) {
            self.lapsed = true;
            cx.record(Fact::LeaseExpired);
        }
    }

    /// The next batch in order proves the view too, unless the source may have reconnected unseen:
    /// then its number may be right by chance, and only an audit (or a flush) proves anything.
    pub(super) fn proven_by_batch(&mut self, cx: &Cx<'_>) {
        let audited = self.settings.unproven();
        if !audited {
            self.proven(cx);
        }
        let (next, looks) = (self.next_probe(cx.now), self.look_from.is_some());
        if let Phase::Live(probe) | Phase::Partial(probe) = &mut self.phase {
            match probe {
                // An audit keeps its time under traffic; an idle probe moves on with every batch.
                Probe::At(_) if audited => (),
                // A look on behalf of a log is about batches before these.
                Probe::Open(_) if audited || looks => (),
                Probe::At(_) | Probe::Off | Probe::Open(_) => *probe = next,
            }
        }
    }
}
