//! PURE. Whether the condition of an alarm holds, from what was seen of one replica.

use super::{Alarm, signal::SignalSight};
use crate::{doctor::drain_cause, recovery::TrustReason};

/// Seconds in which requests are counted.
pub const TRAFFIC_WINDOW_SECONDS: usize = 30;

/// Requests in the window from which on a model has traffic. Fewer could be a probe.
pub const TRAFFIC_MIN: u64 = 5;

/// Silence that is too long under traffic. A serving engine stores a block every few steps.
pub const SILENT_MS: u64 = 30_000;

/// How long a gap may be open. A working replay closes one in well under a second.
pub const GAP_OPEN_MS: u64 = 10_000;

/// How long what happened once counts as news. Shorter: it clears before somebody looks. Longer: it
/// rings after it is repaired.
pub const NEWS_MS: u64 = 60_000;

/// How long no bridge may be heard beyond the time for which a heartbeat counts. A bridge that is
/// started anew is heard well within it.
pub const BRIDGE_SILENT_MS: u64 = 5_000;

/// How long a bridge may stay silent because another one reads the replica otherwise. A restart of
/// the engine that both see settles within seconds.
pub const RIVAL_MS: u64 = 30_000;

/// How long a view may hold nothing under traffic. A flush or a new life fills again within it.
pub const EMPTY_MS: u64 = 30_000;

/// How long a source may be out of reach: longer than a reconnect, shorter than a restart that
/// loads a model.
pub const SOURCE_GONE_MS: u64 = 30_000;

/// How far clocks may be apart. Less could be a queue.
pub const SKEW_MS: u64 = 5_000;

/// Failures in a row before views on the bus count as out of reach. One is tried again by itself.
pub const SNAPSHOT_FAILURES: u64 = 3;

/// Hashes that do not follow from their tokens. Fewer could be blocks of which an engine tells
/// less than it hashed.
const HASHES_WRONG_MIN: u64 = 3;

/// Points, in permille, between what was predicted and what was cached. Fewer could be whole blocks
/// and requests that were served while a match was on its way.
const HIT_PREDICTION: u64 = 100;

/// Points, in permille, below what is usual. Fewer come and go with the traffic.
const HIT_BASELINE: u64 = 50;

/// How long after a change a lower hit rate may be its doing.
pub const HIT_EVENT_MS: u64 = 1_800_000;

/// Tokens from which on a rate says something. Fewer could be one long prompt.
pub const HIT_TOKENS_MIN: u64 = 20_000;

/// Hit rates of one replica in permille; absent = of too few tokens, or too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitSight {
    /// Predicted of the requests that were reported with a prediction.
    pub predicted: Option<u64>,
    /// What the engine had of the same ones.
    pub routed: Option<u64>,
    /// What the engine had of all requests.
    pub observed: Option<u64>,
    /// The same in the hour before.
    pub usual: Option<u64>,
    /// Time since something changed; absent = never.
    pub event_ms: Option<u64>,
}

impl HitSight {
    /// Whether the first rate is so far below the second one.
    fn is_below(low: Option<u64>, high: Option<u64>, points: u64) -> bool {
        matches!((low, high), (Some(low), Some(high)) if low + points <= high)
    }
}

/// What was seen of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Why trust is what it is.
    pub reason: &'static str,
    /// Since when.
    pub reason_ms: u64,
    /// Time since the last live batch.
    pub silent_ms: u64,
    /// Requests in the window: matches for its model, or what its engine says it served.
    pub request_count: u64,
    /// Time since a batch could not be read as a whole; absent = never.
    pub undecodable_ms: Option<u64>,
    /// Time since another reader was seen to take events away; absent = never.
    pub competing_ms: Option<u64>,
    /// Physical blocks of the view on the device.
    pub device_copies: u64,
    /// How many there can be, when known.
    pub pool_blocks: Option<u64>,
    /// The journal was found to be of no use.
    pub replay_unusable: bool,
    /// Time since this process is silent because another bridge speaks for another life, or by
    /// other settings; absent = it is not.
    pub rival_ms: Option<u64>,
    /// Time since the log was another one, or without what it had; absent = never, as below.
    pub log_reset_ms: Option<u64>,
    /// Time since messages went before they were read.
    pub retention_passed_ms: Option<u64>,
    /// Time since batches that a bridge vouched for did not come.
    pub tail_loss_ms: Option<u64>,
    /// Time since a sink dropped what it was to tell.
    pub sink_missed_ms: Option<u64>,
    /// Time since the fan-out did.
    pub fan_out_missed_ms: Option<u64>,
    /// Views on the bus that failed in a row, and the time since the last one.
    pub snapshot_failures: u64,
    /// See there.
    pub snapshot_failed_ms: Option<u64>,
    /// Blocks of this life that show another hash function, or other tokens.
    pub hashes_wrong: u64,
    /// Hit rates.
    pub hits: HitSight,
    /// It is trusted, if not exactly: what comes is of now.
    pub is_settled: bool,
    /// What its view holds, and how routers and engine speak of it.
    pub signal: SignalSight,
}

/// Whether the condition of `alarm` holds.
pub fn holds(alarm: Alarm, sight: &Sight) -> bool {
    let because = |reason: TrustReason| sight.reason == reason.as_str();
    let signal = &sight.signal;
    let news = |ms: Option<u64>| ms.is_some_and(|ms| ms < NEWS_MS);
    match alarm {
        Alarm::StreamSilent => sight.request_count >= TRAFFIC_MIN && sight.silent_ms >= SILENT_MS,
        Alarm::GapOpen => because(TrustReason::GapOpen) && sight.reason_ms >= GAP_OPEN_MS,
        Alarm::UndecodableEvents => {
            news(sight.undecodable_ms)
                || because(TrustReason::StoreUndecodable)
                || because(TrustReason::RemovalUndecodable)
        }
        Alarm::ViewOverCapacity => sight.pool_blocks.is_some_and(|pool| sight.device_copies > pool),
        Alarm::OverLimit => because(TrustReason::OverLimit),
        Alarm::ReplayUnusable => sight.replay_unusable,
        Alarm::TwoPublishers => {
            because(TrustReason::TwoPublishers) || sight.rival_ms.is_some_and(|ms| ms >= RIVAL_MS)
        }
        Alarm::CompetingConsumer => news(sight.competing_ms),
        Alarm::BridgeSilent => {
            because(TrustReason::BridgeSilent) && sight.reason_ms >= BRIDGE_SILENT_MS
        }
        // It has lasted for a lease by then.
        Alarm::LogBehind => because(TrustReason::LogBehind),
        Alarm::BusReset => news(sight.log_reset_ms),
        Alarm::BusRetentionPassed => news(sight.retention_passed_ms),
        Alarm::TailLoss => news(sight.tail_loss_ms),
        Alarm::SinkLagging => news(sight.sink_missed_ms),
        Alarm::FanOutLagging => news(sight.fan_out_missed_ms),
        Alarm::SnapshotFailed => {
            sight.snapshot_failures >= SNAPSHOT_FAILURES && news(sight.snapshot_failed_ms)
        }
        Alarm::HashSchemeMismatch => sight.hashes_wrong >= HASHES_WRONG_MIN,
        Alarm::RankMissing => because(TrustReason::RankMissing),
        Alarm::EngineHitRateBelowPrediction => {
            HitSight::is_below(sight.hits.routed, sight.hits.predicted, HIT_PREDICTION)
        }
        Alarm::PredictionBelowEngine => {
            HitSight::is_below(sight.hits.predicted, sight.hits.routed, HIT_PREDICTION)
        }
        Alarm::HitRateBelowBaseline => {
            sight.hits.event_ms.is_some_and(|ms| ms < HIT_EVENT_MS)
                && HitSight::is_below(sight.hits.observed, sight.hits.usual, HIT_BASELINE)
        }
        Alarm::ViewEmptyUnderTraffic => {
            // Of these an empty view follows, and each has an alarm of its own.
            let is_explained = because(TrustReason::OverLimit) || because(TrustReason::Detached);
            let is_served = signal.own_request_count >= TRAFFIC_MIN;
            let lasts = !is_explained && signal.empty_ms.is_some_and(|ms| ms >= EMPTY_MS);
            // A cause that is known needs no patience.
            is_served && (lasts || signal.drain.as_ref().and_then(drain_cause).is_some())
        }
        Alarm::ZeroMatchesOnRepeatedPrefixes => {
            signal.repeated >= TRAFFIC_MIN && signal.matched == 0 && signal.empty_ms.is_none()
        }
        Alarm::BlockSizeMismatch => signal.other_size >= TRAFFIC_MIN,
        Alarm::Rollback => news(signal.rollback_ms),
        Alarm::ReplayTruncated => news(signal.truncated_ms),
        Alarm::PermanentHole => news(signal.hole_ms),
        Alarm::SourceGone => because(TrustReason::Detached) && sight.reason_ms >= SOURCE_GONE_MS,
        Alarm::ClockSkew => sight.is_settled && signal.skew_ms.is_some_and(|ms| ms >= SKEW_MS),
        Alarm::InstanceNameMismatch => signal.unknown >= TRAFFIC_MIN && signal.named == 0,
    }
}

#[cfg(test)]
impl Sight {
    /// A replica that is well.
    pub(super) const CALM: Sight = Sight {
        reason: "contiguous",
        reason_ms: 1_000_000,
        silent_ms: 0,
        request_count: 1_000,
        undecodable_ms: None,
        competing_ms: None,
        device_copies: 10,
        pool_blocks: Some(10),
        replay_unusable: false,
        rival_ms: None,
        log_reset_ms: None,
        retention_passed_ms: None,
        tail_loss_ms: None,
        sink_missed_ms: None,
        fan_out_missed_ms: None,
        snapshot_failures: 0,
        snapshot_failed_ms: None,
        hashes_wrong: HASHES_WRONG_MIN - 1,
        hits: HitSight {
            predicted: Some(900),
            routed: Some(900),
            observed: Some(900),
            usual: Some(900),
            event_ms: Some(0),
        },
        is_settled: true,
        signal: SignalSight {
            empty_ms: None,
            own_request_count: 1_000,
            repeated: 1_000,
            matched: 1,
            other_size: 0,
            rollback_ms: None,
            truncated_ms: None,
            hole_ms: None,
            skew_ms: Some(SKEW_MS - 1),
            unknown: 0,
            named: 0,
            drain: None,
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Sight = Sight::CALM;

    fn held(sight: &Sight) -> Vec<&'static str> {
        let holding = Alarm::ALL.into_iter().filter(|alarm| holds(*alarm, sight));
        holding.map(Alarm::as_str).collect()
    }

    #[test]
    fn each_rule_holds_at_its_bound_and_not_before() {
        assert!(held(&CALM).is_empty());
        let silent = Sight { silent_ms: SILENT_MS, request_count: TRAFFIC_MIN, ..CALM };
        assert_eq!(held(&silent), ["stream_silent"]);
        assert!(held(&Sight { request_count: TRAFFIC_MIN - 1, ..silent }).is_empty());
        assert!(held(&Sight { silent_ms: SILENT_MS - 1, ..silent }).is_empty());
        let gap = Sight { reason: "gap_open", reason_ms: GAP_OPEN_MS, ..CALM };
        assert_eq!(held(&gap), ["gap_open"]);
        assert!(held(&Sight { reason_ms: GAP_OPEN_MS - 1, ..gap }).is_empty());
        let lossy = Sight { undecodable_ms: Some(0), ..CALM };
        assert_eq!(held(&lossy), ["undecodable_events"]);
        assert!(held(&Sight { undecodable_ms: Some(NEWS_MS), ..CALM }).is_empty());
        let robbed = Sight { competing_ms: Some(NEWS_MS - 1), ..CALM };
        assert_eq!(held(&robbed), ["competing_consumer"]);
        assert!(held(&Sight { competing_ms: Some(NEWS_MS), ..CALM }).is_empty());
        assert_eq!(held(&Sight { device_copies: 11, ..CALM }), ["view_over_capacity"]);
        assert!(held(&Sight { device_copies: 11, pool_blocks: None, ..CALM }).is_empty());
        assert_eq!(held(&Sight { replay_unusable: true, ..CALM }), ["replay_unusable"]);
        let hashes_wrong = HASHES_WRONG_MIN;
        assert_eq!(held(&Sight { hashes_wrong, ..CALM }), ["hash_scheme_mismatch"]);
        for (reason, name) in [
            ("removal_undecodable", "undecodable_events"),
            ("store_undecodable", "undecodable_events"),
            ("over_limit", "over_limit"),
            ("two_publishers", "two_publishers"),
            ("rank_missing", "rank_missing"),
            ("log_behind", "log_behind"),
        ] {
            assert_eq!(held(&Sight { reason, reason_ms: 0, ..CALM }), [name]);
        }
    }

    #[test]
    fn each_rule_of_hit_rates_holds_at_its_bound_and_not_before() {
        let hits = |change: fn(&mut HitSight)| {
            let mut sight = CALM;
            change(&mut sight.hits);
            held(&sight)
        };
        assert_eq!(hits(|it| it.routed = Some(800)), ["engine_hit_rate_below_prediction"]);
        assert!(hits(|it| it.routed = Some(801)).is_empty());
        assert_eq!(hits(|it| it.predicted = Some(800)), ["prediction_below_engine"]);
        assert!(hits(|it| it.predicted = Some(801)).is_empty());
        assert!(hits(|it| it.predicted = None).is_empty());
        assert_eq!(hits(|it| it.observed = Some(850)), ["hit_rate_below_baseline"]);
        assert!(hits(|it| it.observed = Some(851)).is_empty());
        let late = |it: &mut HitSight| {
            (it.observed, it.event_ms) = (Some(0), Some(HIT_EVENT_MS));
        };
        assert!(hits(late).is_empty());
        assert!(hits(|it| (it.observed, it.event_ms) = (Some(0), None)).is_empty());
        assert!(hits(|it| (it.observed, it.usual) = (Some(0), None)).is_empty());
    }

    #[test]
    fn each_rule_of_the_bus_holds_at_its_bound_and_not_before() {
        let silent = Sight { reason: "bridge_silent", reason_ms: BRIDGE_SILENT_MS, ..CALM };
        assert_eq!(held(&silent), ["bridge_silent"]);
        assert!(held(&Sight { reason_ms: BRIDGE_SILENT_MS - 1, ..silent }).is_empty());
        assert_eq!(held(&Sight { rival_ms: Some(RIVAL_MS), ..CALM }), ["two_publishers"]);
        assert!(held(&Sight { rival_ms: Some(RIVAL_MS - 1), ..CALM }).is_empty());
        let failed = |snapshot_failures, ago| Sight {
            snapshot_failures,
            snapshot_failed_ms: Some(ago),
            ..CALM
        };
        let reset = |ago| Sight { log_reset_ms: Some(ago), ..CALM };
        let passed = |ago| Sight { retention_passed_ms: Some(ago), ..CALM };
        let lost = |ago| Sight { tail_loss_ms: Some(ago), ..CALM };
        let late = |ago| Sight { sink_missed_ms: Some(ago), ..CALM };
        let fan_late = |ago| Sight { fan_out_missed_ms: Some(ago), ..CALM };
        for (sight, name) in [
            (&reset as &dyn Fn(u64) -> Sight, "bus_reset"),
            (&passed, "bus_retention_passed"),
            (&lost, "tail_loss"),
            (&late, "sink_lagging"),
            (&fan_late, "fan_out_lagging"),
            (&|ago| failed(SNAPSHOT_FAILURES, ago), "snapshot_failed"),
        ] {
            assert_eq!(held(&sight(NEWS_MS - 1)), [name]);
            assert!(held(&sight(NEWS_MS)).is_empty(), "{name} is no news any more");
        }
        assert!(held(&failed(SNAPSHOT_FAILURES - 1, 0)).is_empty());
    }
}
