//! How far a router may believe a view.

use std::fmt;

use crate::Tier;

/// Per replica and tier, revocable. Ordered: a later one promises more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// Starting, recovering, gap open, source gone: route by load, never exclude the replica.
    #[default]
    None,
    /// Every listed block is real, some may be missing: a match is real, a miss proves nothing.
    LowerBound,
    /// The view equals the engine at the cursor.
    Exact,
}

impl Trust {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::None => "none",
            Trust::LowerBound => "lower_bound",
            Trust::Exact => "exact",
        }
    }

    /// The trust of that name. A word this version does not know promises nothing: `none`.
    pub fn from_name(name: &str) -> Trust {
        match name {
            "exact" => Trust::Exact,
            "lower_bound" => Trust::LowerBound,
            _ => Trust::None,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Trust per tier. Tiers that are hints ([`Tier::is_hint`]) have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TierTrust {
    /// The device tier; what is said of a replica as a whole.
    pub device: Trust,
    /// The host tier.
    pub host: Trust,
}

impl TierTrust {
    /// The same trust for both tiers.
    pub fn all(trust: Trust) -> TierTrust {
        TierTrust { device: trust, host: trust }
    }

    /// The trust of one tier.
    pub fn of(self, tier: &Tier) -> Trust {
        match tier {
            Tier::Device => self.device,
            Tier::Host => self.host,
            Tier::Disk | Tier::External | Tier::Other(_) => Trust::None,
        }
    }

    /// The lower of both, tier by tier.
    pub fn min(self, other: TierTrust) -> TierTrust {
        TierTrust { device: self.device.min(other.device), host: self.host.min(other.host) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_we_do_not_know_promises_nothing() {
        for trust in [Trust::None, Trust::LowerBound, Trust::Exact] {
            assert_eq!(Trust::from_name(trust.as_str()), trust);
        }
        assert_eq!(Trust::from_name("EXACT"), Trust::None);
    }

    #[test]
    fn min_is_per_tier_and_hint_tiers_have_none() {
        let own = TierTrust { device: Trust::Exact, host: Trust::None };
        let both = own.min(TierTrust::all(Trust::LowerBound));
        assert_eq!(both, TierTrust { device: Trust::LowerBound, host: Trust::None });
        assert_eq!(TierTrust::all(Trust::Exact).of(&Tier::Disk), Trust::None);
    }
}
