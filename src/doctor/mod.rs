//! PURE. What is wrong with an engine's events, with a bridge that reads them, or with the names
//! between it and a router: from what was seen to findings in plain words.
//!
//! [`EngineSight`] and [`BridgeSight`] are what was seen, [`engine()`] and [`bridge()`] judge.
//! Every finding is a row of one table, [`ALL`], which `docs/doctor.md` repeats; a test holds them
//! together. Why an engine that is drained yields nothing is asked in one place, [`drain_cause`],
//! for the command and for the alarm.

mod bridge;
mod drain;
mod engine;
mod finding;
mod names;
mod replay;
mod sight;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub use bridge::{AlarmSight, BridgeSight, ReplicaSight, bridge};
pub use drain::{DrainCause, DrainCounts, DrainSight, DrainWatch, HELD_MS, drain_cause};
pub use engine::engine;
pub use finding::{About, Finding, Severity, worst};
pub use names::names;
pub use replay::{JournalSight, ReplaySight};
pub use sight::{DrainLook, EngineSight, ProbeSight, RankSight, ServerSight};
pub use stream::{HashesSight, StreamSight};
pub use table::ALL;
