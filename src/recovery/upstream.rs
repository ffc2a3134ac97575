//! A log's own writers: what they believe caps what we may, and how far they are says whether we
//! missed the end.

use kvbridge_adapters_api::Upstream;
use kvbridge_schemas::{Seq, TierTrust, Trust};

use super::{
    Action, Cx, Fact, Recovery, Tick, TrustReason,
    lag::Lag,
    phase::{Asking, Phase, Probe},
};

/// We and those who write the log.
const BOTH_LOWER: (Trust, Trust) = (Trust::LowerBound, Trust::LowerBound);

/// What is known of those who write the log that this view is folded from.
#[derive(Debug, Default)]
pub(super) struct Vouched {
    /// `None` = the source follows no log, and nobody's word is needed.
    said: Option<Upstream>,
    /// The view was once as far as they said within this life: it is not merely the beginning.
    reached: bool,
    /// What they believe of a place that we have passed: it caps what we may.
    granted: Trust,
    /// They believe more from this place on. What lies before it may be what they could not
    /// believe, so a view that is still there may not either.
    rise: Option<(Seq, Trust)>,
    /// They are further than we are, since then.
    behind: Option<(Seq, Tick)>,
    /// What they have and the log lacks. It stays through reconnects and fetched views, which are
    /// as old as the log that they are of.
    lag: Lag,
    /// A reset emptied the view, which says nothing of theirs.
    emptied: bool,
    /// No view is fetched anew before.
    refetch_at: Tick,
}

impl Vouched {
    /// The view starts over.
    pub(super) fn start_over(&mut self) {
        self.break_off();
        self.emptied = false;
    }

    /// A reset took from the view what the bridges may still have.
    pub(super) fn emptied(&mut self) {
        self.emptied = true;
    }

    /// The stream broke: what was reached says nothing any more.
    pub(super) fn break_off(&mut self) {
        self.reached = false;
        self.granted = Trust::None;
        self.rise = None;
        self.behind = None;
    }

    /// Lower counts at once, more when we stand where they stood.
    fn hear(&mut self, (theirs, trust): (Seq, Trust), ours: Option<Seq>) {
        if trust <= self.granted {
            (self.granted, self.rise) = (trust, None);
            return;
        }
        let rise = self.rise.filter(|(_, before)| *before == trust).unwrap_or((theirs, trust));
        self.rise = Some(rise);
        if ours.is_some_and(|ours| ours >= rise.0) {
            (self.granted, self.rise) = (trust, None);
        }
    }
}

impl Recovery {
    pub(super) fn upstream(&mut self, cx: &mut Cx<'_>, said: Upstream) {
        let silent = |said: Option<Upstream>| said == Some(Upstream::Silent);
        match (silent(self.vouched.said), silent(Some(said))) {
            (false, true) => cx.record(Fact::BridgeSilent),
            (true, false) => cx.record(Fact::Vouched),
            (true, true) | (false, false) => (),
        }
        self.vouched.said = Some(said);
    }

    /// After every step: compares how far we are, and goes for a better view if there is one.
    pub(super) fn follow_vouch(&mut self, cx: &mut Cx<'_>) {
        let Some((theirs, trust, view)) = self.vouch() else {
            (self.vouched.granted, self.vouched.rise) = (Trust::None, None);
            self.vouched.behind = None;
            self.vouched.lag.silent();
            return;
        };
        let (said, lease_ms) = ((view, trust > Trust::None), self.settings.limits.lease_ms);
        if self.vouched.lag.hear(cx.now, self.cursor, said, lease_ms) {
            cx.record(Fact::LogBehind(self.cursor.next_seq));
        }
        let stands = self.settled() && self.anchored();
        let ours = self.cursor.next_seq;
        self.vouched.hear((theirs, trust), stands.then_some(ours));
        if !stands {
            self.vouched.behind = None;
            return;
        }
        self.vouched.reached |= ours >= theirs;
        if self.vouched.behind.is_some_and(|(target, _)| ours >= target) {
            self.vouched.behind = None;
        }
        if ours < theirs && self.vouched.behind.is_none() {
            self.vouched.behind = Some((theirs, cx.now));
        }
        if self.could_be_better(trust) && self.vouched.refetch_at <= cx.now {
            self.vouched.refetch_at = cx.now.plus(self.settings.limits.refetch_ms);
            // Once: of a bridge that lost as much there is nothing to be had.
            self.vouched.emptied = false;
            cx.record(Fact::Refetched);
            self.start_fetch(cx, None);
        }
    }

    /// The word that counts: one of this very life.
    fn vouch(&self) -> Option<(Seq, Trust, Seq)> {
        match self.vouched.said? {
            Upstream::Vouched { cursor, trust, view } if cursor.epoch == self.cursor.epoch => {
                Some((cursor.next_seq, trust, view))
            }
            Upstream::Vouched { .. } | Upstream::Silent => None,
        }
    }

    /// They believe more, or as much of a view that no reset emptied.
    fn could_be_better(&self, vouched: Trust) -> bool {
        let (own, _) = self.derive_proven();
        let emptied = self.vouched.emptied && (own.device, vouched) == BOTH_LOWER;
        let better = own.device < vouched || emptied;
        self.vouched.reached && !self.lapsed && better && self.can_snapshot()
    }

    /// Never more than those who write the log believe.
    pub(super) fn capped(
        &self,
        (own, reason): (TierTrust, TrustReason),
    ) -> (TierTrust, TrustReason) {
        if self.vouched.said.is_none() {
            return (own, reason);
        }
        if self.vouch().is_none() {
            return (TierTrust::default(), TrustReason::BridgeSilent);
        }
        if !self.vouched.reached {
            return (TierTrust::default(), TrustReason::CatchingUp);
        }
        if self.vouched.lag.is_late() {
            return (TierTrust::default(), TrustReason::LogBehind);
        }
        if self.vouched.granted > Trust::None && !self.vouched.lag.has_met() {
            return (TierTrust::default(), TrustReason::CatchingUp);
        }
        let capped = own.min(TierTrust::all(self.vouched.granted));
        if capped == own { (own, reason) } else { (capped, TrustReason::Upstream) }
    }

    /// When what a bridge has and the log lacks was waited for long enough.
    pub(super) fn awaited_until(&self) -> Option<Tick> {
        let lag = &self.vouched.lag;
        let open = self.vouch().is_some() && lag.epoch() == self.cursor.epoch && !lag.is_late();
        lag.due_at(self.settings.limits.lease_ms).filter(|_| open)
    }

    /// When the end of the log counts as missed, or a better view may be fetched.
    pub(super) fn vouch_at(&self) -> Option<Tick> {
        if !self.settled() {
            return None;
        }
        let wait_ms = self.settings.limits.tail_wait_ms;
        let behind = self.vouched.behind.map(|(_, since)| since.plus(wait_ms));
        let better = self.vouch().is_some_and(|(_, trust, _)| self.could_be_better(trust));
        let refetch = better.then_some(self.vouched.refetch_at);
        [behind, refetch].into_iter().flatten().min()
    }

    /// The log is ahead for longer than a heartbeat can overtake its data: it is read, and trust
    /// stays.
    pub(super) fn vouch_due(&mut self, cx: &mut Cx<'_>) {
        let wait_ms = self.settings.limits.tail_wait_ms;
        let Some((target, since)) = self.vouched.behind else { return };
        if since.plus(wait_ms) > cx.now {
            return;
        }
        self.vouched.behind = Some((target, cx.now));
        let asking = Asking::due(self.pace.next(cx.now), true);
        if let Phase::Live(probe) | Phase::Partial(probe) = &mut self.phase
            && matches!(probe, Probe::At(_))
        {
            cx.act(Action::Record(Fact::TailBehind(self.cursor.next_seq)));
            *probe = Probe::Open(asking);
            self.ask_if_due(cx);
        }
    }
}
