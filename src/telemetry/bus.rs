//! What the bus counts.

use std::time::Duration;

use kvbridge_schemas::ReplicaKey;
use metrics::{Counter, Gauge, Label, counter, gauge};

use super::{label, name};
use crate::bus::BusState;

/// Handles of one stream.
pub struct BusMetrics {
    /// See [`name::BUS_PUBLISHED`].
    pub published: Counter,
    /// See [`name::BUS_DUPLICATES`].
    pub duplicates: Counter,
    /// See [`name::BUS_RETRIES`].
    pub retries: Counter,
    /// See [`name::BUS_TOO_LARGE`].
    pub too_large: Counter,
    spool_messages: Gauge,
    spool_bytes: Gauge,
    lag: Gauge,
    states: Vec<(BusState, Gauge)>,
}

impl BusMetrics {
    /// Registers the handles of a stream.
    pub fn register(stream: &str) -> BusMetrics {
        let of = |metric: &'static str| counter!(metric, label::STREAM => stream.to_owned());
        let shown = |metric: &'static str| gauge!(metric, label::STREAM => stream.to_owned());
        let states = BusState::ALL.map(|state| {
            let labels = vec![
                Label::new(label::STREAM, stream.to_owned()),
                Label::new(label::STATE, state.as_str()),
            ];
            (state, gauge!(name::BUS_STATE, labels))
        });
        let metrics = BusMetrics {
            published: of(name::BUS_PUBLISHED),
            duplicates: of(name::BUS_DUPLICATES),
            retries: of(name::BUS_RETRIES),
            too_large: of(name::BUS_TOO_LARGE),
            spool_messages: shown(name::BUS_SPOOL_MESSAGES),
            spool_bytes: shown(name::BUS_SPOOL_BYTES),
            lag: shown(name::BUS_LAG),
            states: states.into(),
        };
        metrics.state(BusState::Connecting);
        metrics
    }

    /// Shows the state the stream is in.
    pub fn state(&self, now: BusState) {
        for (state, gauge) in &self.states {
            gauge.set(if *state == now { 1.0 } else { 0.0 });
        }
    }

    /// Shows how many messages have no acknowledgement.
    pub fn waiting(&self, count: usize) {
        self.spool_messages.set(float(count));
    }

    /// Shows how many bytes they hold.
    pub fn spool(&self, bytes: u64) {
        self.spool_bytes.set(float(usize::try_from(bytes / 1024).unwrap_or(usize::MAX)) * 1024.0);
    }

    /// Shows how long the newest acknowledged message took.
    pub fn lag(&self, ms: u64) {
        self.lag.set(Duration::from_millis(ms).as_secs_f64());
    }
}

fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// Handles of one replica's log.
pub struct BusLogMetrics {
    /// See [`name::BUS_RESETS`].
    pub resets: Counter,
    /// See [`name::BUS_LEFT_OUT`].
    pub left_out: Counter,
}

impl BusLogMetrics {
    /// Registers the handles of a replica.
    pub fn register(key: &ReplicaKey) -> BusLogMetrics {
        BusLogMetrics {
            resets: counter!(name::BUS_RESETS, label::REPLICA => key.to_string()),
            left_out: counter!(name::BUS_LEFT_OUT, label::REPLICA => key.to_string()),
        }
    }
}

/// Handles of what readers of a ZeroMQ bus ask.
pub struct BusRequestMetrics {
    /// Requests that got what they asked for.
    pub answered: Counter,
    /// Requests that were refused by a word.
    pub refused: Counter,
    /// Requests that could not be read.
    pub malformed: Counter,
    /// Requests of peers that had not read the answer before.
    pub unread: Counter,
    /// Requests for which the journal could not be read.
    pub unreadable: Counter,
}

impl BusRequestMetrics {
    /// Registers the handles.
    pub fn register() -> BusRequestMetrics {
        let of = |outcome: &'static str| counter!(name::BUS_REQUESTS, label::OUTCOME => outcome);
        BusRequestMetrics {
            answered: of("answered"),
            refused: of("refused"),
            malformed: of("malformed"),
            unread: of("unread"),
            unreadable: of("unreadable"),
        }
    }
}
