//! `bus.heartbeat` and `bus.heartbeat_ttl`: how often bridges say how they stand, and for how long
//! that counts.

use std::time::Duration;

use super::{file::BusFile, limits, validate::Check};

/// The same in every process of a bus: a reader counts what a bridge sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// Time between two.
    pub every: Duration,
    /// How long one counts.
    pub ttl: Duration,
}

impl Default for HeartbeatConfig {
    fn default() -> HeartbeatConfig {
        HeartbeatConfig { every: limits::BUS_HEARTBEAT, ttl: limits::BUS_STATUS_TTL }
    }
}

/// Least time between two: what has run out is looked for every 200 ms, within the least that one
/// counts.
const EVERY_MIN: Duration = Duration::from_millis(100);

/// So many fit into the time for which one counts: two may be lost before trust is.
const BEATS_MIN: u32 = 3;

impl Check<'_> {
    pub(super) fn heartbeat(&mut self, file: &BusFile) -> HeartbeatConfig {
        let heartbeat = HeartbeatConfig {
            every: self.span("bus.heartbeat", file.heartbeat, limits::BUS_HEARTBEAT),
            ttl: self.span("bus.heartbeat_ttl", file.heartbeat_ttl, limits::BUS_STATUS_TTL),
        };
        if heartbeat.every < EVERY_MIN {
            self.note("bus.heartbeat", "must be at least 100ms");
        }
        if heartbeat.ttl < heartbeat.every.saturating_mul(BEATS_MIN) {
            let message = format!("must be at least {BEATS_MIN} times bus.heartbeat");
            self.note("bus.heartbeat_ttl", message);
        }
        heartbeat
    }
}
