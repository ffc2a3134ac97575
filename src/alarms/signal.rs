//! PURE. What is seen of one replica's signal beside its trust: whether it holds anything, whether
//! prompts and names of routers fit it, and what its engine did wrong of late.

use std::collections::VecDeque;

use super::{
    TRAFFIC_WINDOW_SECONDS,
    asks::{Counts, OfReplica},
    growth::{News, Window},
};
use crate::{
    doctor::{DrainCounts, DrainSight, DrainWatch},
    recovery::Tick,
};

/// Looks with batches that a skew must have lasted: fewer could be one batch that was late.
const SKEW_LOOKS_MIN: usize = 5;

/// Counts and figures of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SignalCounts {
    /// Blocks of the view, of all tiers.
    pub(super) blocks: u64,
    /// Of its model.
    pub(super) of_model: Counts,
    /// Of itself.
    pub(super) of_replica: OfReplica,
    /// Requests that its engine says it served; 0 where it says nothing.
    pub(super) served: u64,
    /// Requests that routers reported of it.
    pub(super) told: u64,
    /// Rollbacks, truncated replays and permanent holes so far.
    pub(super) facts: [u64; 3],
    /// Least distance between the time of a batch and ours since the last look, if one came.
    pub(super) skew_ms: Option<u64>,
    /// Of taking its events, where they are taken.
    pub(super) drain: Option<DrainCounts>,
}

/// What the rules are asked of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSight {
    /// Time since the view holds nothing; absent = it holds something.
    pub empty_ms: Option<u64>,
    /// Requests in the window: of the replica itself where somebody tells, else of its model.
    pub own_request_count: u64,
    /// Prompts in the window that began as one before.
    pub repeated: u64,
    /// Those of them that matched anything.
    pub matched: u64,
    /// Prompts in the window in blocks of another size.
    pub other_size: u64,
    /// Time since the engine's numbers went backwards; absent = never, as below.
    pub rollback_ms: Option<u64>,
    /// Time since its journal did not reach back.
    pub truncated_ms: Option<u64>,
    /// Time since batches were lost for good.
    pub hole_ms: Option<u64>,
    /// Distance between its clock and ours that no batch in the window was below.
    pub skew_ms: Option<u64>,
    /// Times in the window that routers named an instance of its model that nobody knows.
    pub unknown: u64,
    /// Times in the window that they named this one.
    pub named: u64,
    /// How its events are taken, where they are and the view holds nothing.
    pub drain: Option<DrainSight>,
}

/// One replica's signal, over time.
#[derive(Default)]
pub(super) struct Signal {
    empty_at: Option<Tick>,
    asked: Window,
    repeated: Window,
    matched: Window,
    unknown: Window,
    named: Window,
    other_size: Window,
    served: Window,
    told: Window,
    facts: [News; 3],
    skews: VecDeque<Option<u64>>,
    drain: DrainWatch,
    /// Requests in the window at the look before.
    requested: u64,
}

impl Signal {
    /// Takes one look. The second part is what was requested in the window, by whoever tells most.
    pub(super) fn look(&mut self, now: Tick, counts: &SignalCounts) -> (SignalSight, u64) {
        let SignalCounts { of_model, of_replica, .. } = counts;
        self.empty_at = (counts.blocks == 0).then(|| self.empty_at.unwrap_or(now));
        let asked = self.asked.added(of_model.asked);
        let (served, told) = (self.served.added(counts.served), self.told.added(counts.told));
        let is_told = counts.served > 0 || counts.told > 0;
        let own_request_count = if is_told { served.max(told) } else { asked };
        let drain = counts.drain.map(|drain| self.drained(now, drain, own_request_count));
        let [rollbacks, truncations, holes] = &mut self.facts;
        let sight = SignalSight {
            empty_ms: self.empty_at.map(|at| now.0.saturating_sub(at.0)),
            own_request_count,
            repeated: self.repeated.added(of_model.repeated),
            matched: self.matched.added(of_model.matched),
            other_size: self.other_size.added(of_replica.other_size),
            rollback_ms: rollbacks.ago(counts.facts[0], now),
            truncated_ms: truncations.ago(counts.facts[1], now),
            hole_ms: holes.ago(counts.facts[2], now),
            skew_ms: self.skew(counts.skew_ms),
            unknown: self.unknown.added(of_model.unknown),
            named: self.named.added(of_replica.named),
            drain: drain.filter(|_| self.empty_at.is_some()),
        };
        (sight, asked.max(served).max(told))
    }

    fn drained(&mut self, now: Tick, counts: DrainCounts, requests: u64) -> DrainSight {
        self.drain.look(now, counts);
        if self.requested == 0 && requests > 0 {
            self.drain.begin();
        }
        self.requested = requests;
        self.drain.sight(requests)
    }

    fn skew(&mut self, latest: Option<u64>) -> Option<u64> {
        self.skews.push_back(latest);
        if self.skews.len() > TRAFFIC_WINDOW_SECONDS {
            self.skews.pop_front();
        }
        let told = self.skews.iter().flatten();
        (told.clone().count() >= SKEW_LOOKS_MIN).then(|| told.min().copied()).flatten()
    }
}
