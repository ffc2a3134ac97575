//! One replica's line, and where it is published.

use bytes::Bytes;
use kvbridge_schemas::{Replica, ReplicaKey};

use crate::{
    clock::millis,
    config::{SinkConfig, limits},
    sink_line::{Line, LineSettings, Moment, Numbers, topic_of},
    telemetry::SinkLineMetrics,
};

/// A line that somebody can read.
pub(super) struct PublishedLine {
    pub(super) key: ReplicaKey,
    pub(super) line: Line,
    pub(super) metrics: SinkLineMetrics,
    /// What it knows may be old: only a whole view counts.
    pub(super) wants_whole: bool,
    pub(super) spot: Spot,
}

/// Where a line is published.
pub(super) struct Spot {
    pub(super) topic: String,
    /// Which of the sink's ports; 0 where there is one for all, or none.
    pub(super) port: u32,
    /// Of which model it tells.
    #[cfg(feature = "sink-smg")]
    pub(super) model: std::sync::Arc<str>,
}

impl Spot {
    pub(super) fn of(config: &SinkConfig, replica: &Replica) -> Spot {
        Spot {
            topic: topic_of(&config.topic, replica),
            port: if config.shares_sockets() { 0 } else { replica.rank },
            #[cfg(feature = "sink-smg")]
            model: replica.model.as_str().into(),
        }
    }
}

impl PublishedLine {
    pub(super) fn new(
        config: &SinkConfig,
        replica: &Replica,
        spot: Spot,
        at: Moment,
    ) -> PublishedLine {
        let profile = config.preset.profile();
        let settings = LineSettings {
            profile,
            rank: replica.rank,
            tiers: config.tiers.clone(),
            sizes: config.sizes,
            grace_ms: millis(config.grace),
            heartbeat_ms: millis(config.heartbeat),
            journal_batches_max: limits::SINK_JOURNAL_BATCHES,
            journal_bytes_max: limits::SINK_JOURNAL_BYTES,
            renumber_after: limits::SINK_RENUMBER_AFTER,
        };
        let first_seq = match profile.numbers {
            Numbers::FromZero => 0,
            // Microseconds: no line has a million batches a second for long.
            Numbers::FromClock => at.unix_ms.saturating_mul(1000),
        };
        let key = replica.key();
        PublishedLine {
            line: Line::new(settings, first_seq, at.now),
            metrics: SinkLineMetrics::register(&config.name, &key),
            wants_whole: true,
            spot,
            key,
        }
    }

    pub(super) fn topic_frame(&self) -> Bytes {
        Bytes::copy_from_slice(self.spot.topic.as_bytes())
    }
}
