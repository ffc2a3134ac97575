//! PURE. Whether the condition of an alarm holds, from what was seen of one replica.

use super::Alarm;
use crate::recovery::TrustReason;

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

/// Failures in a row before views on the bus count as out of reach. One is tried again by itself.
pub const SNAPSHOT_FAILURES: u64 = 3;

/// Hashes that do not follow from their tokens. Fewer could be blocks of which an engine tells
/// less than it hashed.
const HASHES_WRONG_MIN: u64 = 3;

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
    /// Views on the bus that failed in a row, and the time since the last one.
    pub snapshot_failures: u64,
    /// See there.
    pub snapshot_failed_ms: Option<u64>,
    /// Blocks of this life that show another hash function, or other tokens.
    pub hashes_wrong: u64,
}

/// Whether the condition of `alarm` holds.
pub fn holds(alarm: Alarm, sight: &Sight) -> bool {
    let because = |reason: TrustReason| sight.reason == reason.as_str();
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
        Alarm::BridgeSilent => {
            because(TrustReason::BridgeSilent) && sight.reason_ms >= BRIDGE_SILENT_MS
        }
        Alarm::BusReset => news(sight.log_reset_ms),
        Alarm::BusRetentionPassed => news(sight.retention_passed_ms),
        Alarm::TailLoss => news(sight.tail_loss_ms),
        Alarm::SnapshotFailed => {
            sight.snapshot_failures >= SNAPSHOT_FAILURES && news(sight.snapshot_failed_ms)
        }
        Alarm::HashSchemeMismatch => sight.hashes_wrong >= HASHES_WRONG_MIN,
        Alarm::RankMissing => because(TrustReason::RankMissing),
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
        device_copies: 10,
        pool_blocks: Some(10),
        replay_unusable: false,
        rival_ms: None,
        log_reset_ms: None,
        retention_passed_ms: None,
        tail_loss_ms: None,
        snapshot_failures: 0,
        snapshot_failed_ms: None,
        hashes_wrong: HASHES_WRONG_MIN - 1,
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
        ] {
            assert_eq!(held(&Sight { reason, reason_ms: 0, ..CALM }), [name]);
        }
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
        for (sight, name) in [
            (&reset as &dyn Fn(u64) -> Sight, "bus_reset"),
            (&passed, "bus_retention_passed"),
            (&lost, "tail_loss"),
            (&|ago| failed(SNAPSHOT_FAILURES, ago), "snapshot_failed"),
        ] {
            assert_eq!(held(&sight(NEWS_MS - 1)), [name]);
            assert!(held(&sight(NEWS_MS)).is_empty(), "{name} is no news any more");
        }
        assert!(held(&failed(SNAPSHOT_FAILURES - 1, 0)).is_empty());
    }
}
