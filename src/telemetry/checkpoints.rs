//! Handles of the checkpoints on disk.

use metrics::{Counter, Histogram, counter, histogram};

use super::{label, name};

/// Checkpoints of all replicas.
pub struct CheckpointMetrics {
    /// See [`name::CHECKPOINTS_WRITTEN`].
    pub written: Counter,
    /// See [`name::CHECKPOINTS_FAILED`].
    pub failed: Counter,
    /// See [`name::CHECKPOINT_DURATION`].
    pub duration: Histogram,
}

impl CheckpointMetrics {
    /// Registers the handles.
    pub fn register() -> CheckpointMetrics {
        CheckpointMetrics {
            written: counter!(name::CHECKPOINTS_WRITTEN),
            failed: counter!(name::CHECKPOINTS_FAILED),
            duration: histogram!(name::CHECKPOINT_DURATION),
        }
    }
}

/// Counts what came of a file that was there at the start, by its word.
pub fn checkpoint_loaded(outcome: &'static str) {
    counter!(name::CHECKPOINTS_LOADED, label::OUTCOME => outcome).increment(1);
}
