//! The running program between its start and its end: reloads, and the order in which things stop.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{ConfigArgs, ConfigError, Environment, RunError, added};
use crate::{
    alarms::{Alarms, Watch},
    bus::Found,
    checkpoint::{self, Keeper, StateDir},
    clock::Clock,
    config::{Config, Flags, SourceFile, limits},
    http::{self, Api, ApiParts, ReloadRequest, Security, SourceRequest},
    lookout::{Lookout, Watched},
    memory,
    pipeline::{self, Pipeline, ReloadError, Reloaded, Shift, Tasks},
    telemetry,
};

/// Everything that runs.
pub(super) struct Service {
    /// What runs: as configured, and what was found.
    pub(super) config: Config,
    /// What file, variables and flags say.
    pub(super) base: Config,
    /// What was added over HTTP.
    pub(super) added: Vec<SourceFile>,
    /// The two together.
    pub(super) configured: Config,
    /// Engines that are looked for.
    pub(super) lookout: Watched,
    pub(super) pipeline: Pipeline,
    pub(super) tasks: Tasks,
    pub(super) reloads: mpsc::Receiver<ReloadRequest>,
    pub(super) source_requests: mpsc::Receiver<SourceRequest>,
    /// Replicas that come and go on the bus.
    pub(super) found: mpsc::Receiver<Found>,
    /// Leases that come and go.
    pub(super) shifts: mpsc::Receiver<Shift>,
    api: Api,
    /// Cancelled first of all: the program is not ready any more.
    draining: CancellationToken,
    pub(super) state: Option<Arc<StateDir>>,
    keeper: Option<Arc<Keeper>>,
    checkpoint_every: watch::Sender<Duration>,
    tls: watch::Sender<Option<TlsAcceptor>>,
}

/// Where the configuration came from, to read it again.
pub(super) struct Origin<'a> {
    pub(super) args: ConfigArgs,
    pub(super) environment: &'a Environment,
    pub(super) flags: Flags,
}

impl Origin<'_> {
    pub(super) fn load(&self) -> Result<Config, ConfigError> {
        self.args.load(self.environment, self.flags.clone())
    }
}

impl Service {
    /// Starts all tasks. The listener answers from here on.
    pub(super) async fn start(
        base: Config,
        security: Security,
        listener: TcpListener,
        render: PrometheusHandle,
    ) -> Result<Service, RunError> {
        let state = base.state.dir.as_deref().map(StateDir::open).transpose()?.map(Arc::new);
        let added = added::kept(state.as_deref())?;
        let config = base.with_added(&added).map_err(RunError::Added)?;
        let (mut tasks, clock) = (Tasks::new(), Clock::start());
        let (found_tx, found) = mpsc::channel(limits::BUS_FOUND_QUEUE);
        let started = pipeline::start(&config, state.as_ref(), &mut tasks, clock, found_tx);
        let pipeline = started.await?;
        let (task, lookout) = Lookout::new(&config.discovery, &config.engines, clock);
        tasks.spawn("lookout", task.run(tasks.stop_token()));
        let draining = CancellationToken::new();
        let alarms = watch_over(&config, &pipeline, &mut tasks);
        let api = Api::new(ApiParts {
            pipeline: pipeline.clone(),
            limits: config.limits.clone(),
            body_deadline: config.http.body_deadline,
            access: security.access,
            alarms,
            render: render.clone(),
            ready: config.ready.clone(),
            backfill: config.backfill,
            finds_more: config.bus.is_read() || !config.engines.is_empty(),
            stop: draining.clone(),
        });
        let shifts = pipeline.leases.shifts().unwrap_or_else(|| mpsc::channel(1).1);
        let reloads = api.reloads().unwrap_or_else(|| mpsc::channel(1).1);
        let source_requests = api.source_requests().unwrap_or_else(|| mpsc::channel(1).1);
        let (router, stop) = (api.clone().router(), tasks.stop_token());
        let (tls, acceptor) = watch::channel(security.tls);
        let service = http::Service::new(router, acceptor, config.http.clone(), stop);
        tasks.spawn("http", service.serve(listener));
        let stop = tasks.stop_token();
        tasks.spawn("metrics upkeep", telemetry::upkeep(render, stop));
        let (checkpoint_every, every) = watch::channel(config.state.interval);
        let keeper = state.as_ref().map(|dir| {
            let fleet = Arc::clone(&pipeline.fleet);
            let keeper = Arc::new(Keeper::new(Arc::clone(dir), fleet, clock));
            let stop = tasks.stop_token();
            tasks.spawn("checkpoints", checkpoint::keep(Arc::clone(&keeper), every, stop));
            keeper
        });
        Ok(Service {
            source_requests,
            base,
            added,
            configured: config.clone(),
            lookout,
            config,
            pipeline,
            tasks,
            reloads,
            found,
            shifts,
            api,
            draining,
            state,
            keeper,
            checkpoint_every,
            tls,
        })
    }

    /// A replica came or went on the bus.
    pub(super) async fn follow(&mut self, found: Found) {
        let Service { pipeline, tasks, config, .. } = self;
        pipeline.follow(found, config, tasks).await;
    }

    /// The lease on an engine came or went.
    pub(super) async fn shift(&mut self, shift: Shift) {
        let Service { pipeline, tasks, config, .. } = self;
        if let Err(error) = pipeline.shift(shift, config, tasks).await {
            warn!(%error, "a replica could not be opened");
        }
    }

    /// Opens what engines told since, and closes what is gone.
    pub(super) async fn follow_engines(&mut self) {
        // An engine that restarts tells the same again, and most news are of no source.
        let wanted = self.with_found();
        if wanted.sources != self.config.sources
            && let Err(error) = self.take_over(wanted).await
        {
            warn!(%error, "a source that was found is not opened");
        }
    }

    /// The configuration with the sources that were found.
    fn with_found(&mut self) -> Config {
        let seen = self.lookout.seen.borrow_and_update().clone();
        let found = seen.found(&self.configured);
        let (wanted, left_out) = self.configured.with_found(&self.config.sources, &found);
        for engine in left_out.into_iter().filter_map(|at| found.get(at)) {
            let (entry, address) = (&engine.entry, engine.address.authority());
            warn!(%entry, %address, "another source speaks of the same replica");
        }
        wanted
    }

    /// From now on this is what is wanted, with what is found for it.
    pub(super) async fn configure(&mut self, configured: Config) -> Result<Reloaded, ReloadError> {
        self.configured = configured;
        self.lookout.wanted.send_replace(Arc::from(self.configured.engines.as_slice()));
        let wanted = self.with_found();
        self.take_over(wanted).await
    }

    async fn take_over(&mut self, wanted: Config) -> Result<Reloaded, ReloadError> {
        let Service { config, pipeline, tasks, state, .. } = self;
        pipeline::reload(pipeline, state.as_ref(), config, wanted, tasks).await
    }

    /// Reads the configuration again and touches what changed. What is wrong with it is logged.
    pub(super) async fn reload(&mut self, origin: &Origin<'_>) -> Result<Reloaded, ReloadError> {
        let reloaded = self.try_reload(origin).await;
        if let Err(error) = &reloaded {
            warn!(%error, "configuration not taken over");
        }
        reloaded
    }

    async fn try_reload(&mut self, origin: &Origin<'_>) -> Result<Reloaded, ReloadError> {
        let wanted = origin.load().map_err(|error| match error {
            ConfigError::Wrong(problems) => ReloadError::Wrong(problems),
            error @ ConfigError::Unreadable { .. } => ReloadError::Unreadable(error.to_string()),
        })?;
        // Other files than those of the start need a new start; what is in them does not. Read
        // before anything is touched: one that is wrong changes nothing.
        let security = Security::read(&self.config.http)?;
        let configured = wanted.with_added(&self.added)?;
        self.base = wanted;
        let reloaded = self.configure(configured).await?;
        self.api.apply(&self.config.limits);
        self.tls.send_replace(security.tls);
        self.api.admit_by(security.access);
        self.checkpoint_every.send_replace(self.config.state.interval);
        Ok(reloaded)
    }

    /// Ends in order: not ready, nothing more read, views kept, tasks joined.
    pub(super) async fn end(self) {
        let timeout = self.config.shutdown.timeout;
        info!(?timeout, "stopping");
        self.draining.cancel();
        let clock = self.pipeline.clock;
        let begun = clock.elapsed();
        let kept = tokio::time::timeout(timeout, async {
            tokio::time::sleep(self.config.shutdown.drain).await;
            let halts = self.pipeline.fleet.replicas().map(|(_, replica)| async move {
                replica.halt().await;
            });
            // All at once: each may wait for an engine's last answer. Half of the time is for what
            // follows: an engine under load may answer later than anybody waits.
            if tokio::time::timeout(timeout / 2, join_all(halts)).await.is_err() {
                warn!("an engine's last answer did not come in time: what was in it is lost");
            }
            if let Some(keeper) = &self.keeper {
                keeper.save_all().await;
            }
        });
        if kept.await.is_err() {
            warn!("checkpoints did not end in time");
        }
        let left = timeout.saturating_sub(clock.elapsed().saturating_sub(begun));
        self.tasks.stop(left).await;
        info!("stopped");
    }
}

/// Starts the watch of alarms and the guard of memory.
fn watch_over(config: &Config, pipeline: &Pipeline, tasks: &mut Tasks) -> Alarms {
    let missing = config.recovery.rank_missing;
    let (watch, alarms) = Watch::new(Arc::clone(&pipeline.fleet), pipeline.clock, missing);
    let stop = tasks.stop_token();
    tasks.spawn("alarms", watch.run(stop.clone()));
    let limit = memory::limit_bytes(config.view.memory_max);
    let guard = memory::guard(Arc::clone(&pipeline.fleet), pipeline.clock, limit, stop);
    tasks.spawn("memory", guard);
    alarms
}
