//! PURE. Which replica goes when memory is short, and when one may come back.
//!
//! Memory that a view frees is not always given back to the system: the allocator keeps it for the
//! views that stay. So a level that stands still above the limit is no reason for a second replica
//! to go; only growth beyond the level at which the last one went is.

use std::collections::BTreeMap;

use kvbridge_schemas::ReplicaKey;

use crate::recovery::Tick;

/// Time that freeing takes effect in. Shorter: two replicas go for one excess.
const SETTLE_MS: u64 = 10_000;

/// First wait before a replica may come back; doubles each time it had to go again.
const RETURN_MS: u64 = 60_000;

/// Where the doubling ends.
const RETURN_MS_MAX: u64 = 3_600_000;

/// A replica comes back below this share of the limit, so that its return does not reach it at
/// once.
const RETURN_PERCENT: u64 = 80;

/// Growth beyond the last level that is growth and no noise.
const GROWTH_PERCENT: u64 = 2;

/// One replica, as heavy as its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Which.
    pub key: ReplicaKey,
    /// Its blocks, all tiers.
    pub blocks: u64,
    /// It was given up.
    pub over_limit: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Give this one up.
    Shed(ReplicaKey),
    /// Learn this one again.
    Release(ReplicaKey),
}

/// A replica that went because of memory.
#[derive(Clone, Copy, Debug)]
struct Gone {
    away: bool,
    /// When it last went or came back.
    moved_at: Tick,
    wait_ms: u64,
}

/// Decides from measurements.
#[derive(Debug)]
pub struct Policy {
    limit: u64,
    gone: BTreeMap<ReplicaKey, Gone>,
    /// Memory when the last one went, until it was below the limit again.
    level: Option<u64>,
    acted_at: Option<Tick>,
}

impl Policy {
    /// A policy for a limit in bytes.
    pub fn new(limit: u64) -> Policy {
        Policy { limit, gone: BTreeMap::new(), level: None, acted_at: None }
    }

    /// At most one decision a measurement.
    pub fn decide(&mut self, now: Tick, resident: u64, weights: &[Weight]) -> Option<Decision> {
        if resident <= self.limit {
            self.level = None;
        }
        if self.acted_at.is_some_and(|at| now < at.plus(SETTLE_MS)) {
            return None;
        }
        self.forget_returned(weights);
        let decision = if resident > self.limit {
            self.shed(now, resident, weights)
        } else if resident < self.limit / 100 * RETURN_PERCENT {
            self.release(now)
        } else {
            None
        };
        if decision.is_some() {
            self.acted_at = Some(now);
        }
        decision
    }

    /// The decision could not be handed over; it is made again later.
    pub fn refused(&mut self, key: &ReplicaKey) {
        self.level = None;
        if let Some(gone) = self.gone.get_mut(key) {
            gone.away = !gone.away;
        }
    }

    fn shed(&mut self, now: Tick, resident: u64, weights: &[Weight]) -> Option<Decision> {
        if self.level.is_some_and(|level| resident <= level + level / 100 * GROWTH_PERCENT) {
            return None;
        }
        let present = weights.iter().filter(|weight| weight.blocks > 0 && !weight.over_limit);
        let largest = present.max_by_key(|weight| weight.blocks)?;
        self.level = Some(resident);
        let wait_ms = match self.gone.get(&largest.key) {
            // It stayed long enough to be a new story.
            Some(gone) if now >= gone.moved_at.plus(RETURN_MS_MAX) => RETURN_MS,
            Some(gone) => (gone.wait_ms * 2).min(RETURN_MS_MAX),
            None => RETURN_MS,
        };
        self.gone.insert(largest.key.clone(), Gone { away: true, moved_at: now, wait_ms });
        Some(Decision::Shed(largest.key.clone()))
    }

    fn release(&mut self, now: Tick) -> Option<Decision> {
        let due = |gone: &Gone| gone.away && now >= gone.moved_at.plus(gone.wait_ms);
        let (key, gone) = self.gone.iter_mut().find(|(_, gone)| due(gone))?;
        gone.away = false;
        gone.moved_at = now;
        Some(Decision::Release(key.clone()))
    }

    /// An operator's resync brought some back.
    fn forget_returned(&mut self, weights: &[Weight]) {
        for weight in weights.iter().filter(|weight| !weight.over_limit) {
            if let Some(gone) = self.gone.get_mut(&weight.key) {
                gone.away = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::Replica;

    use super::*;

    fn key(model: &str) -> ReplicaKey {
        Replica { model: model.to_owned(), instance: "h:1".to_owned(), rank: 0 }.key()
    }

    /// Replicas as (name, blocks, over limit).
    fn weights(of: &[(&str, u64, bool)]) -> Vec<Weight> {
        let weight = |(name, blocks, over_limit): &(&str, u64, bool)| Weight {
            key: key(name),
            blocks: *blocks,
            over_limit: *over_limit,
        };
        of.iter().map(weight).collect()
    }

    #[test]
    fn the_largest_goes_and_a_level_that_stands_still_takes_no_second() {
        let mut policy = Policy::new(1_000);
        let all = weights(&[("a", 5, false), ("b", 9, false), ("c", 0, false)]);
        assert_eq!(policy.decide(Tick(0), 1_000, &all), None);
        assert_eq!(policy.decide(Tick(1), 1_001, &all), Some(Decision::Shed(key("b"))));
        let left = weights(&[("a", 5, false), ("b", 0, true), ("c", 0, false)]);
        assert_eq!(policy.decide(Tick(9_000), 5_000, &left), None, "freeing takes its time");
        assert_eq!(policy.decide(Tick(20_000), 1_010, &left), None, "kept by the allocator");
        assert_eq!(policy.decide(Tick(20_001), 1_100, &left), Some(Decision::Shed(key("a"))));
        let none = weights(&[("a", 0, true), ("b", 0, true), ("c", 0, false)]);
        assert_eq!(policy.decide(Tick(40_000), 9_000, &none), None, "nothing is left to give");
    }

    #[test]
    fn below_the_limit_and_above_it_again_is_a_new_excess() {
        let mut policy = Policy::new(1_000);
        let all = weights(&[("a", 5, false), ("b", 9, false)]);
        assert!(policy.decide(Tick(0), 2_000, &all).is_some());
        let left = weights(&[("a", 5, false), ("b", 0, true)]);
        assert_eq!(
            policy.decide(Tick(20_000), 900, &left),
            None,
            "between the marks nothing moves"
        );
        assert_eq!(policy.decide(Tick(21_000), 1_001, &left), Some(Decision::Shed(key("a"))));
    }

    #[test]
    fn a_return_waits_twice_as_long_each_time() {
        let mut policy = Policy::new(1_000);
        let (here, away) = (weights(&[("a", 5, false)]), weights(&[("a", 0, true)]));
        let mut now = 0;
        for wait_ms in [RETURN_MS, 2 * RETURN_MS, 4 * RETURN_MS] {
            assert_eq!(policy.decide(Tick(now), 1_001, &here), Some(Decision::Shed(key("a"))));
            assert_eq!(policy.decide(Tick(now + wait_ms - 1), 100, &away), None);
            let back = policy.decide(Tick(now + wait_ms), 100, &away);
            assert_eq!(back, Some(Decision::Release(key("a"))));
            now += wait_ms + SETTLE_MS;
        }
        // An hour of calm, and the wait is short again.
        now += RETURN_MS_MAX;
        assert!(policy.decide(Tick(now), 1_001, &here).is_some());
        assert!(policy.decide(Tick(now + RETURN_MS), 100, &away).is_some());
    }

    #[test]
    fn what_an_operator_brought_back_or_blocks_max_took_is_not_released() {
        let mut policy = Policy::new(1_000);
        let here = weights(&[("a", 5, false), ("b", 0, true)]);
        assert!(policy.decide(Tick(0), 1_001, &here).is_some());
        assert_eq!(policy.decide(Tick(RETURN_MS), 100, &here), None);
    }
}
