//! What an operator is woken for: a registry of alarms, rules without a clock, a board that keeps
//! them calm, and the task that looks every second.
//!
//! A rule says whether its condition holds now. The board raises an alarm when it held twice in a
//! row and clears it when it has not held for [`CLEAR_AFTER_MS`]: one bad second wakes nobody, and
//! a fault that comes and goes is one alarm. The registry, the metric and `docs/runbook.md` are
//! held together by a test.

mod asks;
mod board;
mod bus_registry;
mod growth;
mod hit_registry;
#[cfg(test)]
mod hit_tests;
mod hits;
mod ranks;
mod registry;
mod rules;
mod signal;
mod signal_registry;
#[cfg(test)]
mod signal_tests;
mod watch;

pub use board::{Board, CLEAR_AFTER_MS, Change, RAISE_AFTER};
pub use hits::{HitCounts, HitEvent, Hits};
pub use ranks::{RankSight, Ranks};
pub use registry::{About, Alarm, Severity};
pub use rules::{
    BRIDGE_SILENT_MS, EMPTY_MS, GAP_OPEN_MS, HIT_EVENT_MS, HIT_TOKENS_MIN, HitSight, NEWS_MS,
    RIVAL_MS, SILENT_MS, SKEW_MS, SNAPSHOT_FAILURES, SOURCE_GONE_MS, Sight, TRAFFIC_MIN,
    TRAFFIC_WINDOW_SECONDS, holds,
};
pub use signal::SignalSight;
pub use watch::{Alarms, Raised, Watch};
