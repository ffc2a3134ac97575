//! Builds everything that a configuration names: index, writers, sources, one driver for each.

use std::{io, num::NonZeroUsize, sync::Arc, time::Duration};

use kvbridge_schemas::{EngineKind, Replica, ReplicaKey};
use tokio::sync::{mpsc, watch};

use super::{
    Driver, DriverParts, Fleet, IndexWriters, Outputs, ReplicaHandle, ReplicaStatus, Signs, Tasks,
    registry::{self, OpenError},
};
use crate::{
    bus::{Embedded, Lane, LogWriter, NatsBus, SharedBus, nats::BusStartError},
    clock::Clock,
    config::{BusConfig, Config, RecoveryConfig, SpoolFull, limits},
    index::Index,
    recovery::{self, Recovery, Settings, Tick},
    telemetry::{BusLogMetrics, SourceMetrics},
};

/// The running pipeline, as the rest of the program sees it.
#[derive(Clone)]
pub struct Pipeline {
    /// All replicas.
    pub fleet: Arc<Fleet>,
    /// All views together.
    pub index: Arc<Index>,
    /// The threads that write it.
    pub writers: Arc<IndexWriters>,
    /// What the sockets count.
    pub sources: Arc<Vec<SourceMetrics>>,
    /// Where envelopes travel.
    pub bus: SharedBus,
    /// Time.
    pub clock: Clock,
}

/// Why the pipeline did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A writer thread could not be made.
    #[error("cannot start an index writer")]
    Writer(#[from] io::Error),
    /// The bus could not be started.
    #[error(transparent)]
    Bus(#[from] BusStartError),
    /// A source could not be opened.
    #[error("source of replica {key}")]
    Source {
        /// Whose.
        key: ReplicaKey,
        /// Why.
        source: OpenError,
    },
}

/// Starts everything. Must be called inside a tokio runtime.
pub fn start(config: &Config, tasks: &mut Tasks, clock: Clock) -> Result<Pipeline, StartError> {
    let index = Arc::new(Index::new());
    let writer_count = usize::try_from(config.index.writer_count).unwrap_or(1);
    let writer_count = NonZeroUsize::new(writer_count).unwrap_or(NonZeroUsize::MIN);
    let writers = Arc::new(IndexWriters::start(&index, writer_count)?);
    let mut fleet = Fleet::new(usize::try_from(config.limits.events_queue).unwrap_or(1));
    let outputs = Outputs {
        index: Arc::clone(&index),
        writers: Arc::clone(&writers),
        events: fleet.events_sender(),
        clock,
    };
    let bus = Buses::start(config, tasks, &outputs)?;
    let mut sources = Vec::with_capacity(config.sources.len());
    for source in &config.sources {
        let key = source.replica.key();
        let opened = registry::open(source, config)
            .map_err(|error| StartError::Source { key: key.clone(), source: error })?;
        sources.push(SourceMetrics::register(&key, opened.counters));
        let mut settings = Settings::new(opened.source.capabilities(), clock.unix_ms_of(Tick(0)));
        settings.jitter_seed = jitter_seed(&source.replica);
        settings.limits = recovery_limits(&config.recovery);
        let (commands_tx, commands) =
            mpsc::channel(usize::try_from(limits::COMMAND_QUEUE).unwrap_or(1));
        let (status, status_rx) = watch::channel(ReplicaStatus::starting());
        let replica = Arc::new(source.replica.clone());
        let signs = Arc::new(Signs::default());
        let parts = DriverParts {
            blocks_max: config.view.blocks_max(source.pool_blocks),
            signs: Arc::clone(&signs),
            replica: Arc::clone(&replica),
            engine: source.engine.clone(),
            source: opened.source,
            recovery: Recovery::new(settings),
            view: opened.view,
            commands,
            status,
            log: bus.log(&replica, &source.engine),
        };
        let driver = Driver::new(parts, outputs.clone());
        tasks.spawn(format!("driver {key}"), driver.run(tasks.stop_token()));
        let handle = ReplicaHandle {
            replica,
            status: status_rx,
            commands: commands_tx,
            signs,
            pool_blocks: source.pool_blocks,
        };
        fleet.add(key, handle);
    }
    Ok(Pipeline {
        fleet: Arc::new(fleet),
        index,
        writers,
        sources: Arc::new(sources),
        bus: bus.shared,
        clock,
    })
}

/// The bus of the configuration, and what its logs are made with.
struct Buses {
    shared: SharedBus,
    /// How logs are kept; `None` for a bus that ends with the process.
    kept: Option<(Arc<str>, SpoolFull)>,
}

impl Buses {
    fn start(config: &Config, tasks: &mut Tasks, outputs: &Outputs) -> Result<Buses, StartError> {
        let BusConfig::Nats(nats) = &config.bus else {
            let shared = Arc::new(Embedded::new(outputs.events.clone()));
            return Ok(Buses { shared, kept: None });
        };
        let replicas = config.sources.iter().map(|source| &source.replica);
        let bus = NatsBus::start(nats, replicas, tasks)?;
        let kept = Some((bus.bridge(), nats.spool_full));
        Ok(Buses { shared: Arc::new(bus), kept })
    }

    fn log(&self, replica: &Replica, engine: &EngineKind) -> Option<LogWriter> {
        let (bridge, full) = self.kept.as_ref()?;
        let key = replica.key();
        let lane = Lane::new(replica.clone(), engine.clone(), Arc::clone(bridge));
        let metrics = BusLogMetrics::register(&key);
        Some(LogWriter::new(lane, self.shared.writer(&key)?, *full, metrics))
    }
}

/// Any number that differs between replicas and is the same at every start.
fn jitter_seed(replica: &Replica) -> u64 {
    xxhash_rust::xxh3::xxh3_64(replica.key().as_str().as_bytes())
}

fn recovery_limits(config: &RecoveryConfig) -> recovery::Limits {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    recovery::Limits {
        held_batches_max: usize::try_from(config.held_batch_count_max).unwrap_or(usize::MAX),
        held_bytes_max: config.held_bytes_max,
        replay_deadline_ms: ms(config.replay_deadline),
        attempts_max: config.attempt_count_max,
        probe_after_ms: ms(config.idle_probe),
        audit_ms: ms(config.audit),
        lease_ms: ms(config.lease),
        ..recovery::Limits::default()
    }
}
