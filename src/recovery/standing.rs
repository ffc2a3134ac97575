//! What may be believed: derived from phase, lineage and losses, announced in the right order.

use kvbridge_schemas::{Scope, Seq, Tier, TierTrust, Trust};

use super::{Action, Cx, Fact, Finding, Recovery, TrustReason, phase::Phase};

/// What the view rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lineage {
    /// Nothing is applied in this epoch.
    Empty,
    /// Contiguous since a point at which the engine's tiers in this scope were known to be empty,
    /// or since a complete snapshot. Tiers outside it are lower bounds.
    Proven(Scope),
    /// Contiguous since a point; the view was cleared there. Not yet anchored = no batch since.
    Since { anchored: bool, reason: TrustReason },
}

/// Losses that stick until the view is cleared, flushed or installed anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cap {
    pub(super) stores: Option<TrustReason>,
    pub(super) removals: bool,
}

impl Recovery {
    /// Announces what follows from the state, if it is not what was said last.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>) {
        let now = self.derive();
        if now != self.announced {
            self.announced = now;
            cx.act(Action::Announce { trust: now.0, reason: now.1 });
        }
    }

    /// Takes trust back at once, ahead of the data that would make it false.
    pub(super) fn withdraw(&mut self, cx: &mut Cx<'_>, reason: TrustReason) {
        self.doubt = reason;
        if self.announced.0 != TierTrust::default() {
            self.announced = (TierTrust::default(), reason);
            cx.act(Action::Announce { trust: TierTrust::default(), reason });
        }
    }

    /// Lowers, never raises: for use ahead of an Apply.
    pub(super) fn announce_lower(&mut self, cx: &mut Cx<'_>) {
        let (trust, reason) = self.derive();
        let low = self.announced.0.min(trust);
        if low != self.announced.0 {
            self.announced = (low, reason);
            cx.act(Action::Announce { trust: low, reason });
        }
    }

    fn derive(&self) -> (TierTrust, TrustReason) {
        let none = |reason| (TierTrust::default(), reason);
        let set_aside = matches!(self.phase, Phase::Quarantined { .. } | Phase::Shed { .. });
        if self.rank_missing && !set_aside {
            // Nothing was ever folded, so nothing is lost: a view that may be empty only because
            // nobody speaks is worth nothing.
            return none(TrustReason::RankMissing);
        }
        match &self.phase {
            Phase::Detached => none(TrustReason::Detached),
            Phase::Quarantined { .. } => none(TrustReason::TwoPublishers),
            Phase::Shed { .. } => none(TrustReason::OverLimit),
            Phase::Joining { .. } => none(TrustReason::Joining),
            Phase::Verifying(_) => none(TrustReason::Verifying),
            Phase::Replaying(_) => none(self.doubt),
            Phase::Snapshotting(_) => none(TrustReason::Snapshotting),
            Phase::Live(_) | Phase::Partial(_) if self.lapsed => none(TrustReason::Unproven),
            Phase::Live(_) | Phase::Partial(_) => self.capped(self.derive_proven()),
        }
    }

    /// What may be believed of a view whose life is proven.
    pub(super) fn derive_proven(&self) -> (TierTrust, TrustReason) {
        if self.cap.removals {
            return (TierTrust::default(), TrustReason::RemovalUndecodable);
        }
        self.derive_settled()
    }

    fn derive_settled(&self) -> (TierTrust, TrustReason) {
        let (trust, reason) = match &self.lineage {
            Lineage::Empty => (TierTrust::default(), TrustReason::Joining),
            Lineage::Since { reason, .. } => (TierTrust::all(Trust::LowerBound), *reason),
            Lineage::Proven(scope) => {
                let of = |tier| {
                    if scope.contains(&tier) { Trust::Exact } else { Trust::LowerBound }
                };
                let trust = TierTrust { device: of(Tier::Device), host: of(Tier::Host) };
                let whole = trust == TierTrust::all(Trust::Exact);
                let reason = if whole { TrustReason::Contiguous } else { TrustReason::Flushed };
                (trust, reason)
            }
        };
        let unannounced = self.unannounced.then_some(TrustReason::Unannounced);
        match self.cap.stores.or(unannounced) {
            Some(cap) if trust.device == Trust::Exact || trust.host == Trust::Exact => {
                (trust.min(TierTrust::all(Trust::LowerBound)), cap)
            }
            Some(_) | None => (trust, reason),
        }
    }

    /// What the view found while it folded a batch.
    pub(super) fn finding(&mut self, cx: &mut Cx<'_>, finding: Finding) {
        let (fact, reason) = match finding {
            Finding::CountBelowZero | Finding::HostCountBelowZero => {
                (Fact::Anomaly, TrustReason::Anomaly)
            }
            Finding::ParkingOverflow => (Fact::ParkingOverflow, TrustReason::ParkingOverflow),
            Finding::SecondCopy => return self.second_copy(cx),
            Finding::StoreMissing => (Fact::StoreMissing, TrustReason::Unannounced),
        };
        // A view that began late is told of removals of blocks it never knew, and so is a tier that
        // a flush did not cover: that is no contradiction.
        let known = |tier| matches!(&self.lineage, Lineage::Proven(scope) if scope.contains(&tier));
        let legal = match finding {
            Finding::CountBelowZero | Finding::StoreMissing => !known(Tier::Device),
            Finding::HostCountBelowZero => !known(Tier::Host),
            Finding::ParkingOverflow | Finding::SecondCopy => false,
        };
        if !legal {
            self.plain.disproved |= self.plain.relied_on;
            cx.record(fact);
            self.cap.stores.get_or_insert(reason);
        }
    }

    /// What the shell sees of all ranks together. It counts only where nothing was delivered yet.
    pub(super) fn rank_missing(&mut self, cx: &mut Cx<'_>, missing: bool) {
        let missing = missing && !self.has_delivered();
        if missing && !self.rank_missing {
            cx.record(Fact::RankMissing);
            self.withdraw(cx, TrustReason::RankMissing);
        }
        self.rank_missing = missing;
    }

    /// Whether a batch of this epoch was seen.
    pub(super) fn has_delivered(&self) -> bool {
        self.highest_live.is_some() || self.cursor.next_seq > Seq(0) || !self.held.is_empty()
    }

    /// Whether batches are applied as they come. A probe that waits for its turn holds nothing up.
    pub(super) fn settled(&self) -> bool {
        match &self.phase {
            Phase::Live(_) | Phase::Partial(_) => self.phase.open_attempt().is_none(),
            Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. }
            | Phase::Verifying(_)
            | Phase::Replaying(_)
            | Phase::Snapshotting(_) => false,
        }
    }
}
