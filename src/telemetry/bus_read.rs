//! What the reading side of the bus counts, and the views that are kept there.

use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, counter};

use super::{label, name};

/// Handles of one replica's log, read.
#[derive(Clone)]
pub struct BusReadMetrics {
    key: ReplicaKey,
    /// See [`name::BUS_READ`].
    pub read: Counter,
    /// See [`name::BUS_READ_OVERFLOWED`].
    pub overflowed: Counter,
    /// See [`name::BUS_LOG_BREAKS`]: deleted, made anew, or without what it had.
    pub log_reset: Counter,
    /// See [`name::BUS_LOG_BREAKS`]: messages went before they were read.
    pub retention_passed: Counter,
}

impl BusReadMetrics {
    /// Registers the handles of a replica.
    pub fn register(key: &ReplicaKey) -> BusReadMetrics {
        let broke = |reason: &'static str| {
            let key = key.to_string();
            counter!(name::BUS_LOG_BREAKS, label::REPLICA => key, label::REASON => reason)
        };
        BusReadMetrics {
            key: key.clone(),
            read: counter!(name::BUS_READ, label::REPLICA => key.to_string()),
            overflowed: counter!(name::BUS_READ_OVERFLOWED, label::REPLICA => key.to_string()),
            log_reset: broke("reset"),
            retention_passed: broke("retention_passed"),
        }
    }

    /// A message could not be read.
    pub fn unreadable(&self, reason: &'static str) {
        let key = self.key.to_string();
        counter!(name::BUS_UNREADABLE, label::REPLICA => key, label::REASON => reason).increment(1);
    }
}

/// Something on the bus is not read: a limit is reached, or it is not ours.
pub fn bus_read_refused(what: &'static str) {
    counter!(name::BUS_READ_REFUSED, label::REASON => what).increment(1);
}

/// Handles of the views that a bridge keeps on the bus.
pub struct BusSnapshotMetrics {
    /// See [`name::BUS_SNAPSHOTS_STORED`].
    pub stored: Counter,
    /// See [`name::BUS_SNAPSHOTS_FAILED`].
    pub failed: Counter,
    /// See [`name::BUS_SNAPSHOTS_ASKED`].
    pub asked: Counter,
    /// See [`name::BUS_SNAPSHOTS_BUSY`].
    pub busy: Counter,
    /// See [`name::BUS_SNAPSHOTS_DELETED`].
    pub deleted: Counter,
}

impl BusSnapshotMetrics {
    /// Registers the handles.
    pub fn register() -> BusSnapshotMetrics {
        BusSnapshotMetrics {
            stored: counter!(name::BUS_SNAPSHOTS_STORED),
            failed: counter!(name::BUS_SNAPSHOTS_FAILED),
            asked: counter!(name::BUS_SNAPSHOTS_ASKED),
            busy: counter!(name::BUS_SNAPSHOTS_BUSY),
            deleted: counter!(name::BUS_SNAPSHOTS_DELETED),
        }
    }
}
