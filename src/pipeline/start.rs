//! Builds what a configuration names: index, writers, and a source with its driver for each
//! replica.

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use kvbridge_adapters_api::Source;
use kvbridge_schemas::{EngineKind, Epoch, Replica, ReplicaKey};
use tokio::sync::{mpsc, watch};

use super::{
    Driver, DriverParts, Fed, Fleet, FleetEvent, HashWatch, IndexWriters, Leases, News, Outputs,
    ReplicaHandle, ReplicaStatus, Signs, Tasks,
    budget::{Budget, Budgeted},
    kept::{fold, kept, restore},
    registry::{self, Drains, OpenError},
};
use crate::{
    bus::{
        Embedded, Found, LogWriter, NatsBus, SharedBus, ZmqBus, nats::BusStartError,
        zmq::ZmqStartError,
    },
    checkpoint::{Kept, StateDir},
    clock::{Clock, millis},
    config::{BusConfig, Config, RecoveryConfig, SourceConfig, limits},
    engine_metrics::Poll,
    fan_out::{self, FanOut},
    index::Index,
    recovery::{self, Recovery, Settings, Tick},
    sinks::{self, SinkBoard},
    telemetry::SourceMetrics,
    view::{View, ViewSettings},
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
    pub sources: Arc<Mutex<Vec<(ReplicaKey, SourceMetrics)>>>,
    /// Where envelopes travel.
    pub bus: SharedBus,
    /// Engines that are asked.
    pub drains: Arc<Drains>,
    /// Those that bridges take turns at.
    pub leases: Arc<Leases>,
    /// How many engines are asked for history at once.
    pub budget: Arc<Budget>,
    /// How routers are fed.
    pub sinks: Arc<SinkBoard>,
    /// Events for consumers that ask as they would ask an engine; absent = none are kept.
    pub fan_out: Option<Arc<FanOut>>,
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
    /// Its engine's metrics could not be asked for.
    #[error("metrics of replica {key}")]
    Client {
        /// Whose.
        key: ReplicaKey,
        /// Why.
        source: reqwest::Error,
    },
    /// The ZeroMQ bus could not be started.
    #[error(transparent)]
    ZmqBus(#[from] ZmqStartError),
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
pub async fn start(
    config: &Config,
    state: Option<&Arc<StateDir>>,
    tasks: &mut Tasks,
    clock: Clock,
    found: mpsc::Sender<Found>,
) -> Result<Pipeline, StartError> {
    let index = Arc::new(Index::new());
    let writer_count = usize::try_from(config.index.writer_count).unwrap_or(1);
    let writer_count = NonZeroUsize::new(writer_count).unwrap_or(NonZeroUsize::MIN);
    let writers = Arc::new(IndexWriters::start(&index, writer_count)?);
    let fleet = Arc::new(Fleet::new(usize::try_from(config.limits.events_queue).unwrap_or(1)));
    let bus: SharedBus = match &config.bus {
        BusConfig::Embedded => Arc::new(Embedded::new(fleet.events_sender())),
        BusConfig::Nats(nats) => Arc::new(NatsBus::new(nats)),
        BusConfig::Zmq(zmq) => {
            let publishes = config.has_sources();
            Arc::new(ZmqBus::start(zmq, publishes, &fleet, clock, tasks).await?)
        }
    };
    let sinks = sinks::start(&config.sinks, &fleet, clock, tasks);
    let fan_out = fan_out::start(config.compat.kv_cache_events.as_ref(), &fleet, clock, tasks);
    let (sources, drains, leases) = (Arc::default(), Arc::default(), Arc::default());
    let budget = Arc::new(Budget::new(config.recovery.parallel));
    let pipeline = Pipeline {
        fleet,
        index,
        writers,
        sources,
        bus,
        drains,
        leases,
        budget,
        sinks,
        fan_out,
        clock,
    };
    let terms = Terms { config, state, floor: Epoch(0) };
    for source in &config.sources {
        pipeline.open(source, terms, tasks).await?;
    }
    if config.has_sources() {
        pipeline.bus.keep_snapshots(&pipeline.fleet, clock, tasks);
    }
    if config.bus.is_read() {
        pipeline.bus.follow(found, clock, tasks);
    }
    Ok(pipeline)
}

/// A replica whose task can be started.
struct Begun {
    replica: Replica,
    engine: EngineKind,
    signs: Arc<Signs>,
    source: Box<dyn Source>,
    recovery: Recovery,
    view: ViewSettings,
    kept: Option<View>,
    fold: String,
    log: Option<LogWriter>,
    hashes: Option<HashWatch>,
    flush: Option<String>,
}

/// What a replica is opened under.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The configuration as a whole.
    pub config: &'a Config,
    /// Where views are kept.
    pub state: Option<&'a Arc<StateDir>>,
    /// Its lives are named above this one, whatever is kept.
    pub floor: Epoch,
}

impl Pipeline {
    /// Begins to read one replica, with the view that was kept of it, if there is one. An engine
    /// that bridges take turns at is asked when it is this one's turn.
    pub async fn open(
        &self,
        source: &SourceConfig,
        terms: Terms<'_>,
        tasks: &mut Tasks,
    ) -> Result<(), StartError> {
        // It may have been read from the bus so far; its engine is nearer.
        self.close(&source.replica.key()).await;
        if self.takes_turns(source, terms.config, tasks) {
            return Ok(());
        }
        self.open_engine(source, (terms, None), tasks).await
    }

    /// Begins to read one replica from its engine, with that view or the one that was kept.
    pub(super) async fn open_engine(
        &self,
        source: &SourceConfig,
        (terms, view): (Terms<'_>, Option<Kept>),
        tasks: &mut Tasks,
    ) -> Result<(), StartError> {
        let Terms { config, state, floor } = terms;
        let key = source.replica.key();
        let tail = self.bus.tail(&key);
        // The log knows lives that no checkpoint may know: none of them is begun again.
        let floor = floor.max(tail.as_ref().map_or(Epoch(0), |tail| tail.cursor.epoch));
        let may_ask = self.may_ask(source);
        let mut opened = registry::open(source, config, (&self.drains, may_ask))
            .map_err(|error| StartError::Source { key: key.clone(), source: error })?;
        opened.view.describes = config.describes();
        opened.view.told_singly = config.feeds();
        let (fold, drain) = (fold(source, opened.view), opened.source.capabilities().drain);
        let mut kept = match state {
            _ if view.is_some() => view.unwrap_or_default(),
            Some(state) => kept(state, source, (opened.view, drain), &fold).await,
            None => Kept::default(),
        };
        kept.floor = kept.floor.max(floor);
        let mut settings = self.settings(&source.replica, &*opened.source, config);
        settings.epoch_floor = floor;
        let (recovery, view) = restore(&key, settings, kept);
        let engine = Box::new(Budgeted::new(opened.source, &source.replica, &self.budget));
        self.bus.prepare(&source.replica, tasks)?;
        let at = recovery.cursor();
        let digests: Vec<_> = recovery.digests().collect();
        let log = self.log(source, tail, (at, digests));
        let begun = Begun {
            replica: source.replica.clone(),
            engine: source.engine.clone(),
            signs: Arc::new(Signs::new(source.pool_blocks)),
            source: self.with_twin(engine, &source.replica, log.as_ref(), tasks),
            recovery,
            view: opened.view,
            kept: view,
            fold,
            log,
            hashes: registry::hash_watch(source),
            flush: source.flush.clone(),
        };
        let handle = self.begin(begun, config, tasks);
        let (signs, commands) = (Arc::clone(&handle.signs), handle.commands.clone());
        if source.polled.is_some() {
            signs.is_drained(Arc::clone(&opened.counters));
        }
        let poll = Poll::new(source, signs, commands);
        let poll = poll.map_err(|error| StartError::Client { key: key.clone(), source: error })?;
        if let Some(poll) = poll {
            let stop = handle.stop.clone();
            tasks.spawn_until(format!("metrics of {key}"), stop.clone(), poll.run(stop));
        }
        let metrics = SourceMetrics::register(&key, opened.counters);
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push((key.clone(), metrics));
        self.fleet.add(key, handle);
        Ok(())
    }

    fn settings(&self, replica: &Replica, source: &dyn Source, config: &Config) -> Settings {
        let mut settings = Settings::new(source.capabilities(), self.clock.unix_ms_of(Tick(0)));
        settings.jitter_seed = jitter_seed(replica);
        settings.limits = recovery_limits(&config.recovery);
        settings
    }

    /// Starts the task of one replica.
    fn begin(&self, begun: Begun, config: &Config, tasks: &mut Tasks) -> ReplicaHandle {
        let (commands_tx, commands) =
            mpsc::channel(usize::try_from(limits::COMMAND_QUEUE).unwrap_or(1));
        let (status, status_rx) = watch::channel(ReplicaStatus::starting());
        let replica = Arc::new(begun.replica);
        let signs = begun.signs;
        let is_bridged = begun.log.is_some();
        let life = begun.log.as_ref().and_then(LogWriter::life);
        let parts = DriverParts {
            kept_max: config.view.clone(),
            signs: Arc::clone(&signs),
            replica: Arc::clone(&replica),
            engine: begun.engine.clone(),
            source: begun.source,
            recovery: begun.recovery,
            view: begun.view,
            kept: begun.kept,
            fold: begun.fold,
            commands,
            status,
            log: begun.log,
            hashes: begun.hashes,
        };
        let driver = Driver::new(parts, self.outputs());
        let stop = tasks.stop_token().child_token();
        let name = format!("driver {}", replica.key());
        tasks.spawn_until(name, stop.clone(), driver.run(stop.clone()));
        ReplicaHandle {
            replica,
            status: status_rx,
            commands: commands_tx,
            signs,
            engine: begun.engine,
            flush: begun.flush,
            is_bridged,
            life,
            stop,
        }
    }

    /// Reads a replica no more and forgets its view. Returns when its source is closed.
    pub async fn close(&self, key: &ReplicaKey) {
        let Some(handle) = self.fleet.remove(key) else { return };
        handle.stop.cancel();
        handle.commands.closed().await;
        self.bus.forget(&handle.replica);
        self.index.drop_replica(self.index.register(Replica::clone(&handle.replica)));
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|(of, _)| of != key);
        drop(sources);
        let replica = Arc::clone(&handle.replica);
        self.fleet.feeds().tell(&Fed { key: key.clone(), replica, news: News::Gone });
        // Without a reader nothing is missed.
        drop(self.fleet.events_sender().send(FleetEvent::Removed(key.clone(), handle.replica)));
    }

    fn outputs(&self) -> Outputs {
        Outputs {
            index: Arc::clone(&self.index),
            writers: Arc::clone(&self.writers),
            events: self.fleet.events_sender(),
            feeds: Arc::clone(self.fleet.feeds()),
            clock: self.clock,
        }
    }
}

/// Any number that differs between replicas and is the same at every start.
fn jitter_seed(replica: &Replica) -> u64 {
    xxhash_rust::xxh3::xxh3_64(replica.key().as_str().as_bytes())
}

fn recovery_limits(config: &RecoveryConfig) -> recovery::Limits {
    recovery::Limits {
        held_batches_max: usize::try_from(config.held_batch_count_max).unwrap_or(usize::MAX),
        held_bytes_max: config.held_bytes_max,
        replay_deadline_ms: millis(config.replay_deadline),
        attempts_max: config.attempt_count_max,
        probe_after_ms: millis(config.idle_probe),
        audit_ms: millis(config.audit),
        lease_ms: millis(config.lease),
        ..recovery::Limits::default()
    }
}

#[path = "start_log.rs"]
mod log;
#[path = "start_read.rs"]
mod read;
#[path = "start_turns.rs"]
mod turns;
