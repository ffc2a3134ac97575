//! What the socket tasks counted, as metrics. They count by themselves, because an adapter knows no
//! exporter; a scrape copies their counts over.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kvbridge_adapters_zmq::Counters;
use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, counter};

use super::{label, name};

/// The sockets of one replica.
pub struct SourceMetrics {
    counters: Arc<Counters>,
    handles: Vec<(Counter, Field)>,
}

/// One of the counts.
type Field = fn(&Counters) -> &AtomicU64;

impl SourceMetrics {
    /// Registers the handles of a replica's sockets.
    pub fn register(key: &ReplicaKey, counters: Arc<Counters>) -> SourceMetrics {
        let of = |metric: &'static str, field: Field| {
            (counter!(metric, label::REPLICA => key.to_string()), field)
        };
        let handles = vec![
            of(name::SOURCE_FRAMES, |counters| &counters.frames),
            of(name::SOURCE_BYTES, |counters| &counters.bytes),
            of(name::SOURCE_MALFORMED, |counters| &counters.malformed),
            of(name::SOURCE_OVERFLOWED, |counters| &counters.overflowed),
            of(name::SOURCE_ATTACHED, |counters| &counters.attached),
            of(name::SOURCE_CONNECT_FAILED, |counters| &counters.connect_failed),
            of(name::SOURCE_RECEIVE_FAILED, |counters| &counters.receive_failed),
            of(name::SOURCE_REPLAYS, |counters| &counters.replays),
            of(name::SOURCE_REPLAYS_FAILED, |counters| &counters.replays_failed),
        ];
        SourceMetrics { counters, handles }
    }

    /// Copies the counts over.
    pub fn refresh(&self) {
        for (handle, field) in &self.handles {
            handle.absolute(field(&self.counters).load(Ordering::Relaxed));
        }
    }
}
