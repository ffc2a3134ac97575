//! PURE. One replica's hit rates of late: predicted, observed, and what is usual for it.

use std::collections::VecDeque;

use super::rules::{HIT_EVENT_MS, HIT_TOKENS_MIN, HitSight};
use crate::recovery::Tick;

/// Time between two samples that are kept.
const SAMPLE_MS: u64 = 60_000;
/// The window in which a rate is that of now: shorter, one long prompt moves it.
const NOW_MS: u64 = 300_000;
/// What is usual is that of so long before it, and of no less than this.
const BASELINE_MS: u64 = 3_600_000;
const BASELINE_MS_MIN: u64 = 900_000;

/// What may have changed a hit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitEvent {
    /// A new life of the engine's cache.
    Epoch,
    /// The index came to be believed more or less.
    Trust,
    /// The source was opened anew.
    Source,
}

impl HitEvent {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            HitEvent::Epoch => "epoch",
            HitEvent::Trust => "trust",
            HitEvent::Source => "source",
        }
    }
}

/// Tokens, counted from some start on. Who counts may start anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Looked up in the cache: by the engine's metrics, else by what routers report.
    pub input: u64,
    /// Of these, those that it had.
    pub cached: u64,
    /// Input of requests that were reported with what a match had predicted.
    pub routed_input: u64,
    /// Of these, what the engine had.
    pub routed_cached: u64,
    /// Of these, what was predicted.
    pub routed_predicted: u64,
}

impl HitCounts {
    fn each(self, other: HitCounts, with: impl Fn(u64, u64) -> u64) -> HitCounts {
        HitCounts {
            input: with(self.input, other.input),
            cached: with(self.cached, other.cached),
            routed_input: with(self.routed_input, other.routed_input),
            routed_cached: with(self.routed_cached, other.routed_cached),
            routed_predicted: with(self.routed_predicted, other.routed_predicted),
        }
    }

    /// What was counted since `last`, also by one who started anew meanwhile.
    fn since(self, last: HitCounts) -> HitCounts {
        self.each(last, |now, last| if now >= last { now - last } else { now })
    }
}

/// The counts of an hour.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    last: HitCounts,
    sum: HitCounts,
    /// Oldest first, [`SAMPLE_MS`] apart.
    samples: VecDeque<(Tick, HitCounts)>,
    /// Epoch and trust as last seen.
    seen: Option<(u64, &'static str)>,
    event: Option<(HitEvent, Tick)>,
}

impl Hits {
    /// The source was opened anew, and whoever counts with it.
    pub fn reopened(mut self, now: Tick) -> Hits {
        self.last = HitCounts::default();
        self.seen = None;
        self.event = Some((HitEvent::Source, now));
        self
    }

    /// Takes one look.
    pub fn look(
        &mut self,
        now: Tick,
        counts: HitCounts,
        (epoch, trust): (u64, &'static str),
    ) -> HitSight {
        self.sum = self.sum.each(counts.since(self.last), |sum, new| sum.saturating_add(new));
        self.last = counts;
        match self.seen.replace((epoch, trust)) {
            Some((before, _)) if before != epoch => self.event = Some((HitEvent::Epoch, now)),
            Some((_, before)) if before != trust => self.event = Some((HitEvent::Trust, now)),
            Some(_) | None => (),
        }
        let is_due = |(at, _): &(Tick, HitCounts)| now >= at.plus(SAMPLE_MS);
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back((now, self.sum));
        }
        let oldest_ms = NOW_MS + BASELINE_MS;
        while self.samples.front().is_some_and(|(at, _)| now > at.plus(oldest_ms)) {
            self.samples.pop_front();
        }
        self.sight(now)
    }

    /// What may have changed the rate of late.
    pub fn event(&self, now: Tick) -> Option<HitEvent> {
        let (event, at) = self.event?;
        (now < at.plus(HIT_EVENT_MS)).then_some(event)
    }

    fn sight(&self, now: Tick) -> HitSight {
        let is_before = |(at, _): &&(Tick, HitCounts)| now >= at.plus(NOW_MS);
        let Some((begun_at, begun)) = self.samples.iter().rev().find(is_before).copied() else {
            return HitSight::default();
        };
        let of_now = self.sum.since(begun);
        let first = self.samples.front().filter(|(at, _)| begun_at >= at.plus(BASELINE_MS_MIN));
        let usual = first.map(|(_, first)| begun.since(*first));
        HitSight {
            predicted: permille(of_now.routed_predicted, of_now.routed_input),
            routed: permille(of_now.routed_cached, of_now.routed_input),
            observed: permille(of_now.cached, of_now.input),
            usual: usual.and_then(|usual| permille(usual.cached, usual.input)),
            event_ms: self.event.map(|(_, at)| now.0.saturating_sub(at.0)),
        }
    }
}

/// The rate; none of so few tokens that one prompt decides it.
fn permille(part: u64, whole: u64) -> Option<u64> {
    (whole >= HIT_TOKENS_MIN).then(|| part.min(whole).saturating_mul(1_000) / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::{Alarm, CLEAR_AFTER_MS, Sight, holds};

    /// Looks every second at a replica that serves a prompt of 1,000 tokens a second.
    struct Replica {
        hits: Hits,
        counts: HitCounts,
        second: u64,
        epoch: u64,
    }

    impl Replica {
        fn new() -> Replica {
            let (hits, counts) = (Hits::default(), HitCounts::default());
            Replica { hits, counts, second: 0, epoch: 1 }
        }

        /// For so many seconds: what the engine had and what was predicted, of each 1,000.
        fn serve(&mut self, seconds: u64, cached: u64, predicted: u64) -> Vec<&'static str> {
            let mut sight = HitSight::default();
            for _ in 0..seconds {
                self.second += 1;
                let HitCounts { input, routed_input, .. } = &mut self.counts;
                (*input, *routed_input) = (*input + 1_000, *routed_input + 1_000);
                self.counts.cached += cached;
                self.counts.routed_cached += cached;
                self.counts.routed_predicted += predicted;
                let now = Tick(self.second * 1_000);
                sight = self.hits.look(now, self.counts, (self.epoch, "exact"));
            }
            let sight = Sight { hits: sight, ..Sight::CALM };
            Alarm::ALL.into_iter().filter(|it| holds(*it, &sight)).map(Alarm::as_str).collect()
        }
    }

    #[test]
    fn a_prediction_that_is_wrong_either_way_rings_after_five_minutes() {
        let mut replica = Replica::new();
        assert!(replica.serve(300, 500, 900).is_empty(), "less than five minutes say nothing");
        assert_eq!(replica.serve(60, 500, 900), ["engine_hit_rate_below_prediction"]);
        assert!(replica.serve(400, 901, 900).is_empty());
        assert_eq!(replica.serve(400, 900, 0), ["prediction_below_engine"]);
        assert!(replica.serve(400, 599, 500).is_empty(), "within ten points");
    }

    #[test]
    fn a_rate_below_its_own_rings_only_soon_after_something_changed() {
        let mut replica = Replica::new();
        replica.serve(1_500, 950, 950);
        assert!(replica.serve(400, 890, 890).is_empty(), "nothing has changed beside it");
        let mut replica = Replica::new();
        replica.serve(1_500, 950, 950);
        replica.epoch = 2;
        assert_eq!(replica.serve(400, 890, 890), ["hit_rate_below_baseline"]);
        assert_eq!(replica.hits.event(Tick(replica.second * 1_000)), Some(HitEvent::Epoch));
        assert!(replica.serve(1_800, 890, 890).is_empty(), "half an hour later it is no news");
        assert_eq!(replica.hits.event(Tick(replica.second * 1_000)), None);
        let mut short = Replica::new();
        short.serve(600, 950, 950);
        short.epoch = 2;
        assert!(short.serve(400, 890, 890).is_empty(), "ten minutes are no baseline");
    }

    #[test]
    fn counts_that_start_anew_and_sources_that_are_opened_anew_go_on() {
        let mut replica = Replica::new();
        replica.serve(1_500, 950, 950);
        replica.counts = HitCounts::default();
        replica.hits = replica.hits.clone().reopened(Tick(replica.second * 1_000));
        assert_eq!(replica.serve(400, 800, 800), ["hit_rate_below_baseline"]);
        assert_eq!(replica.hits.event(Tick(replica.second * 1_000)), Some(HitEvent::Source));
        let bound = usize::try_from((NOW_MS + BASELINE_MS) / SAMPLE_MS).unwrap() + 2;
        replica.serve(8_000, 800, 800);
        assert!(replica.hits.samples.len() <= bound);
        let trust =
            |it: &mut Hits, trust| it.look(Tick(9_000_000), HitCounts::default(), (1, trust));
        let mut hits = Hits::default();
        trust(&mut hits, "none");
        assert_eq!(hits.event(Tick(9_000_000)), None, "the first look changes nothing");
        trust(&mut hits, "exact");
        assert_eq!(hits.event(Tick(9_000_000 + CLEAR_AFTER_MS)), Some(HitEvent::Trust));
    }
}
