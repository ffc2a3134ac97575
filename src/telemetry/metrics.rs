//! Names, labels and handles of all metrics. Handles are made once per replica and kept: looking
//! one up costs more than counting with it.

use std::{collections::BTreeMap, time::Duration};

use kvbridge_adapters_api::Loss;
use kvbridge_schemas::{ReplicaKey, Tier, Trust};
use metrics::{Counter, Gauge, Histogram, Label, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio_util::sync::CancellationToken;

use super::{Backfills, Foreign, feedback, label, name};
use crate::{http::Mode, route::By};

/// From a microsecond in-process match to a resync of minutes.
const SECONDS_BUCKETS: [f64; 14] =
    [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// How often samples are folded into buckets: a few thousand samples each time.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The label value of every tier this version has no word for: theirs is not a closed set.
const TIER_OTHER: &str = "other";

/// Why metrics could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The exporter refused.
    #[error("cannot set metrics up")]
    Exporter(#[from] BuildError),
}

/// Makes the recorder of the whole process and returns what renders it. Once per process.
pub fn install_metrics() -> Result<PrometheusHandle, MetricsError> {
    let handle = builder()?.install_recorder()?;
    describe();
    Ok(handle)
}

/// A recorder that is not installed, for tests.
pub fn build_metrics() -> Result<PrometheusRecorder, MetricsError> {
    Ok(builder()?.build_recorder())
}

/// Without upkeep, histograms that nobody scrapes grow without bound.
pub async fn upkeep(render: PrometheusHandle, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(UPKEEP_EVERY) => render.run_upkeep(),
        }
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    // Without buckets a histogram would render as a summary, which cannot be added up.
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)
}

fn describe() {
    feedback::describe();
    for (metric, text) in [
        (name::BATCHES_RECEIVED, "live batches received from the source"),
        (name::BATCHES_APPLIED, "batches folded into the view"),
        (name::BATCHES_LOSSY, "batches of which something could not be read"),
        (name::FACTS, "facts of the state machine"),
        (name::GAPS, "gaps in the live stream"),
        (name::MISSING_BATCHES, "batches missing in gaps"),
        (name::RESYNCS, "returns to a settled state"),
        (name::EPOCH_CHANGES, "new lives of a replica's cache"),
        (name::SOURCE_FRAMES, "live messages received"),
        (name::SOURCE_BYTES, "bytes of live messages received"),
        (name::SOURCE_MALFORMED, "messages of a wrong shape"),
        (name::SOURCE_OVERFLOWED, "live messages dropped because our queue was full"),
        (name::SOURCE_ATTACHED, "live connections made"),
        (name::SOURCE_CONNECT_FAILED, "live connections that could not be made"),
        (
            name::SOURCE_RECEIVE_FAILED,
            "live connections that ended by a reset or by bytes that are not the protocol",
        ),
        (name::SOURCE_REPLAYS, "replay requests started"),
        (name::SOURCE_REPLAYS_FAILED, "replays that ended without an end marker"),
        (name::CHECKPOINTS_WRITTEN, "checkpoints written"),
        (name::CHECKPOINTS_FAILED, "checkpoints that could not be written"),
        (name::CHECKPOINTS_LOADED, "checkpoint files found at a start"),
        (name::MATCHES, "match requests"),
        (name::ROUTES, "route decisions"),
        (name::EVENTS_LAGGED, "envelopes that slow readers of events missed"),
        (name::HTTP_REFUSED, "connections closed because there were too many"),
        (name::HTTP_DENIED, "requests without the right to what they ask"),
        (name::EVENTS_READERS_REFUSED, "readers of events that were refused"),
        (name::ENGINE_POLLS_FAILED, "looks at an engine's metrics that told nothing"),
        (name::BUS_PUBLISHED, "messages the bus has"),
        (name::BUS_DUPLICATES, "messages the bus had already"),
        (name::BUS_RETRIES, "messages sent again"),
        (name::BUS_TOO_LARGE, "batches that do not fit into a message of the server"),
        (name::BUS_RESETS, "resets written into a log"),
        (name::BUS_LEFT_OUT, "times a log fell behind because the spool was full"),
    ] {
        metrics::describe_counter!(metric, text);
    }
    for (metric, text) in [
        (name::READINESS, "1 for the trust state the replica is in"),
        (name::VIEW_BLOCKS, "blocks in the view"),
        (name::LEASE_HELD, "1 while this process asks the engine, 0 while another bridge does"),
        (name::ALARM, "1 while the alarm rings"),
        (name::MEMORY, "resident memory of the process"),
        (name::MEMORY_LIMIT, "soft limit of the process"),
        (name::INDEX_QUEUE, "index updates that wait"),
        (name::BUS_SPOOL_MESSAGES, "messages without an acknowledgement"),
        (name::BUS_SPOOL_BYTES, "their bytes"),
        (name::BUS_LAG, "seconds from queue to acknowledgement"),
        (name::BUS_STATE, "1 for the state the stream is in"),
    ] {
        metrics::describe_gauge!(metric, text);
    }
    metrics::describe_gauge!(
        name::CURSOR_AGE,
        Unit::Seconds,
        "time since the view last changed or was proven"
    );
    let durations = [
        name::RESYNC_DURATION,
        name::MATCH_DURATION,
        name::ROUTE_DURATION,
        name::CHECKPOINT_DURATION,
    ];
    for metric in durations {
        metrics::describe_histogram!(metric, Unit::Seconds, "duration");
    }
}

/// Handles of one replica.
pub struct ReplicaMetrics {
    /// See [`name::BATCHES_RECEIVED`].
    pub received: Counter,
    /// See [`name::BATCHES_APPLIED`].
    pub applied: Counter,
    /// See [`name::GAPS`].
    pub gaps: Counter,
    /// See [`name::MISSING_BATCHES`].
    pub missing_batches: Counter,
    /// See [`name::EPOCH_CHANGES`].
    pub epoch_changes: Counter,
    key: ReplicaKey,
    lossy: [Counter; 3],
    readiness: [(Trust, Gauge); 3],
    resyncs: [(Trust, Counter, Histogram); 2],
    facts: BTreeMap<&'static str, Counter>,
    blocks: BTreeMap<&'static str, Gauge>,
}

impl ReplicaMetrics {
    /// Registers the handles of a replica.
    pub fn register(key: &ReplicaKey) -> ReplicaMetrics {
        let replica = || vec![Label::new(label::REPLICA, key.to_string())];
        let with = |label: &'static str, value: &'static str| {
            vec![Label::new(label::REPLICA, key.to_string()), Label::new(label, value)]
        };
        ReplicaMetrics {
            received: counter!(name::BATCHES_RECEIVED, replica()),
            applied: counter!(name::BATCHES_APPLIED, replica()),
            gaps: counter!(name::GAPS, replica()),
            missing_batches: counter!(name::MISSING_BATCHES, replica()),
            epoch_changes: counter!(name::EPOCH_CHANGES, replica()),
            key: key.clone(),
            lossy: ["stores", "may_remove", "body"]
                .map(|loss| counter!(name::BATCHES_LOSSY, with(label::LOSS, loss))),
            readiness: [Trust::None, Trust::LowerBound, Trust::Exact]
                .map(|trust| (trust, gauge!(name::READINESS, with(label::STATE, trust.as_str())))),
            resyncs: [Trust::LowerBound, Trust::Exact].map(|trust| {
                (
                    trust,
                    counter!(name::RESYNCS, with(label::RESOLUTION, trust.as_str())),
                    histogram!(name::RESYNC_DURATION, label::RESOLUTION => trust.as_str()),
                )
            }),
            facts: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// Counts what a received batch lost.
    pub fn lossy(&self, loss: Loss) {
        let [stores, may_remove, body] = &self.lossy;
        match loss {
            Loss::Nothing => (),
            Loss::Stores => stores.increment(1),
            Loss::MayRemove => may_remove.increment(1),
            Loss::Body => body.increment(1),
        }
    }

    /// Counts a fact by its word.
    pub fn fact(&mut self, word: &'static str) {
        self.facts
            .entry(word)
            .or_insert_with(|| {
                let labels = vec![
                    Label::new(label::REPLICA, self.key.to_string()),
                    Label::new(label::FACT, word),
                ];
                counter!(name::FACTS, labels)
            })
            .increment(1);
    }

    /// Shows the state the replica is in.
    pub fn readiness(&self, trust: Trust) {
        for (state, gauge) in &self.readiness {
            gauge.set(if *state == trust { 1.0 } else { 0.0 });
        }
    }

    /// Counts a return of trust after so many milliseconds without.
    pub fn resynced(&self, trust: Trust, blind_ms: u64) {
        for (resolution, count, duration) in &self.resyncs {
            if *resolution == trust {
                count.increment(1);
                duration.record(Duration::from_millis(blind_ms));
            }
        }
    }

    /// Shows the blocks of each tier; a tier that is gone shows 0.
    pub fn blocks(&mut self, counts: &BTreeMap<Tier, u64>) {
        let mut by_word: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (tier, count) in counts {
            *by_word.entry(tier_word(tier)).or_default() += count;
        }
        for word in by_word.keys() {
            self.blocks.entry(word).or_insert_with(|| {
                let labels = vec![
                    Label::new(label::REPLICA, self.key.to_string()),
                    Label::new(label::TIER, *word),
                ];
                gauge!(name::VIEW_BLOCKS, labels)
            });
        }
        for (word, gauge) in &self.blocks {
            let count = by_word.get(word).copied().unwrap_or(0);
            gauge.set(u32::try_from(count).map_or(f64::from(u32::MAX), f64::from));
        }
    }
}

fn tier_word(tier: &Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
        Tier::External => "external",
        Tier::Other(_) => TIER_OTHER,
    }
}

/// Handles of match requests.
pub struct Matches {
    /// Some replica was usable.
    pub usable: Counter,
    /// None was.
    pub fallback: Counter,
    /// The question could not be answered.
    pub refused: Counter,
    /// See [`name::MATCH_DURATION`].
    pub duration: Histogram,
}

/// Handles of route decisions.
pub struct Routes {
    prefix: Counter,
    load: Counter,
    tie: Counter,
    fallback: Counter,
    /// The question could not be read.
    pub refused: Counter,
    /// See [`name::ROUTE_DURATION`].
    pub duration: Histogram,
}

impl Routes {
    fn register() -> Routes {
        let by = |word: &'static str| counter!(name::ROUTES, label::OUTCOME => word);
        Routes {
            prefix: by(By::Prefix.as_str()),
            load: by(By::Load.as_str()),
            tie: by(By::Tie.as_str()),
            fallback: by(By::Fallback.as_str()),
            refused: by("refused"),
            duration: histogram!(name::ROUTE_DURATION),
        }
    }

    /// Decisions that this decided.
    pub fn decided(&self, by: By) -> &Counter {
        match by {
            By::Prefix => &self.prefix,
            By::Load => &self.load,
            By::Tie => &self.tie,
            By::Fallback => &self.fallback,
        }
    }
}

/// Handles of the readers of `/v1/events`.
pub struct EventReaders {
    /// See [`name::EVENTS_LAGGED`].
    pub lagged: Counter,
    /// See [`name::EVENTS_READERS_REFUSED`].
    pub refused: Counter,
}

/// Handles that belong to no replica.
pub struct Metrics {
    /// Match requests.
    pub matches: Matches,
    /// Route decisions.
    pub routes: Routes,
    /// See [`name::READY_MODE`].
    pub ready_modes: Vec<(Mode, Gauge)>,
    /// Readers of events.
    pub readers: EventReaders,
    /// See [`name::INDEX_QUEUE`].
    pub index_queue: Gauge,
    /// See [`name::HTTP_DENIED`].
    pub denied: Counter,
    /// Requests of pages from elsewhere.
    pub foreign: Foreign,
    /// Reports that were taken.
    pub feedback_taken: Counter,
    /// Reports that could not be read, or of a replica that nobody knows.
    pub feedback_refused: Counter,
    /// What routers said that replicas computed.
    pub backfills: Backfills,
}

/// The handle of a replica's age, set at the moment of a scrape.
pub fn cursor_age(key: &ReplicaKey) -> Gauge {
    gauge!(name::CURSOR_AGE, label::REPLICA => key.to_string())
}

impl Metrics {
    /// Registers the handles.
    pub fn register() -> Metrics {
        let outcome = |word: &'static str| counter!(name::MATCHES, label::OUTCOME => word);
        Metrics {
            matches: Matches {
                usable: outcome("usable"),
                fallback: outcome("fallback"),
                refused: outcome("refused"),
                duration: histogram!(name::MATCH_DURATION),
            },
            routes: Routes::register(),
            ready_modes: Mode::ALL
                .into_iter()
                .map(|mode| (mode, gauge!(name::READY_MODE, label::MODE => mode.as_str())))
                .collect(),
            readers: EventReaders {
                lagged: counter!(name::EVENTS_LAGGED),
                refused: counter!(name::EVENTS_READERS_REFUSED),
            },
            index_queue: gauge!(name::INDEX_QUEUE),
            denied: counter!(name::HTTP_DENIED),
            foreign: Foreign::register(),
            feedback_taken: counter!(name::FEEDBACK, label::OUTCOME => "taken"),
            feedback_refused: counter!(name::FEEDBACK, label::OUTCOME => "refused"),
            backfills: Backfills::register(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    fn names(text: &str, quote: char) -> BTreeSet<&str> {
        let parts =
            text.split(quote).filter(|part| part.starts_with("kvbridge_") && part.len() > 9);
        parts.filter(|part| part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).collect()
    }

    // spec: metrics
    #[test]
    fn every_metric_is_documented_and_every_documented_one_exists() {
        let code = names(include_str!("name.rs"), '"');
        let document = names(include_str!("../../docs/specs/metrics.md"), '`');
        assert_eq!(code, document);
    }
}
