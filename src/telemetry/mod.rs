//! What operators see: metric names and label keys in one place, one log line a fact.
//!
//! Never in a metric or a log: token ids, salts, hashes, topics. The label `replica` is bounded by
//! the configuration; every other label is a closed set of words.

#[cfg(test)]
mod alert_tests;
mod bus;
mod bus_read;
mod checkpoints;
mod deliberate;
mod facts;
mod fan_out;
mod feedback;
mod foreign;
mod gone;
pub mod label;
mod log;
mod metrics;
pub mod name;
mod sinks;
mod sources;

pub use bus::{BusLogMetrics, BusMetrics, BusRequestMetrics};
pub use bus_read::{BusReadMetrics, BusSnapshotMetrics, bus_read_refused};
pub use checkpoints::{CheckpointMetrics, checkpoint_loaded};
pub use deliberate::Deliberate;
pub use facts::FactLog;
pub use fan_out::{FanMetrics, FanQueueMetrics};
pub use feedback::{Backfills, EngineHits, FeedbackMetrics};
pub use foreign::Foreign;
pub use gone::without_others;
pub use log::{LOG_DEFAULT, LOG_DEFAULT_TOOLS, LOG_OFF, LOG_VARIABLE, LogError, start_log};
pub use metrics::{
    EventReaders, Matches, Metrics, MetricsError, ReplicaMetrics, build_metrics, cursor_age,
    install_metrics, upkeep,
};
#[cfg(feature = "sink-smg")]
pub use sinks::SinkStreamMetrics;
pub use sinks::{SinkLineMetrics, SinkMetrics, SinkReaderMetrics};
pub use sources::SourceMetrics;
