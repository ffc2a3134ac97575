//! What the fan-out counts.

use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, Gauge, counter, gauge};

use super::{label, name};
use crate::sink_line::FanCounts;

/// Handles of its queue.
pub struct FanQueueMetrics {
    /// See [`name::FAN_OUT_MISSED`].
    pub missed: Counter,
}

impl FanQueueMetrics {
    /// Registers the handles.
    pub fn register() -> FanQueueMetrics {
        FanQueueMetrics { missed: counter!(name::FAN_OUT_MISSED) }
    }
}

/// Handles of one replica.
pub struct FanMetrics {
    /// See [`name::FAN_OUT_REFUSED`].
    pub refused: Counter,
    events: Counter,
    behind: Counter,
    forgotten: Counter,
    consumers: Gauge,
}

impl FanMetrics {
    /// Registers the handles.
    pub fn register(key: &ReplicaKey) -> FanMetrics {
        let of = |name: &'static str| counter!(name, label::REPLICA => key.to_string());
        FanMetrics {
            refused: of(name::FAN_OUT_REFUSED),
            events: of(name::FAN_OUT_EVENTS),
            behind: of(name::FAN_OUT_BEHIND),
            forgotten: of(name::FAN_OUT_FORGOTTEN),
            consumers: gauge!(name::FAN_OUT_CONSUMERS, label::REPLICA => key.to_string()),
        }
    }

    /// A consumer was told so many events.
    pub fn told(&self, events: usize) {
        self.events.increment(u64::try_from(events).unwrap_or(u64::MAX));
    }

    /// What was counted, and how many consumers there are.
    pub fn show(&self, counts: FanCounts, consumers: usize) {
        self.behind.increment(counts.behind);
        self.forgotten.increment(counts.forgotten);
        self.consumers.set(u32::try_from(consumers).unwrap_or(u32::MAX));
    }
}
