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

/// How long an unreadable batch counts as news.
pub const UNDECODABLE_MS: u64 = 60_000;

/// How long the sight of another reader counts as news. It shows only where its answer came before
/// ours, so that one who looks now and then is seen now and then.
pub const COMPETING_MS: u64 = 60_000;

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
    /// Time since another reader was seen to take events away; absent = never.
    pub competing_ms: Option<u64>,
    /// Physical blocks of the view on the device.
    pub device_copies: u64,
    /// How many there can be, when known.
    pub pool_blocks: Option<u64>,
    /// The journal was found to be of no use.
    pub replay_unusable: bool,
    /// Blocks of this life that show another hash function, or other tokens.
    pub hashes_wrong: u64,
}

/// Whether the condition of `alarm` holds.
pub fn holds(alarm: Alarm, sight: &Sight) -> bool {
    let because = |reason: TrustReason| sight.reason == reason.as_str();
    match alarm {
        Alarm::StreamSilent => sight.request_count >= TRAFFIC_MIN && sight.silent_ms >= SILENT_MS,
        Alarm::GapOpen => because(TrustReason::GapOpen) && sight.reason_ms >= GAP_OPEN_MS,
        Alarm::UndecodableEvents => {
            sight.undecodable_ms.is_some_and(|ms| ms < UNDECODABLE_MS)
                || because(TrustReason::StoreUndecodable)
                || because(TrustReason::RemovalUndecodable)
        }
        Alarm::ViewOverCapacity => sight.pool_blocks.is_some_and(|pool| sight.device_copies > pool),
        Alarm::OverLimit => because(TrustReason::OverLimit),
        Alarm::ReplayUnusable => sight.replay_unusable,
        Alarm::TwoPublishers => because(TrustReason::TwoPublishers),
        Alarm::CompetingConsumer => sight.competing_ms.is_some_and(|ms| ms < COMPETING_MS),
        Alarm::HashSchemeMismatch => sight.hashes_wrong >= HASHES_WRONG_MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Sight = Sight {
        reason: "contiguous",
        reason_ms: 1_000_000,
        silent_ms: 0,
        request_count: 1_000,
        undecodable_ms: None,
        competing_ms: None,
        device_copies: 10,
        pool_blocks: Some(10),
        replay_unusable: false,
        hashes_wrong: HASHES_WRONG_MIN - 1,
    };

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
        assert!(held(&Sight { undecodable_ms: Some(UNDECODABLE_MS), ..CALM }).is_empty());
        let robbed = Sight { competing_ms: Some(COMPETING_MS - 1), ..CALM };
        assert_eq!(held(&robbed), ["competing_consumer"]);
        assert!(held(&Sight { competing_ms: Some(COMPETING_MS), ..CALM }).is_empty());
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
        ] {
            assert_eq!(held(&Sight { reason, reason_ms: 0, ..CALM }), [name]);
        }
    }
}
