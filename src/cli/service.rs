//! The running program between its start and its end: reloads, and the order in which things stop.

use std::{net::SocketAddr, sync::Arc};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{ConfigArgs, ConfigError, Environment, RunError, added};
use crate::{
    alarms::{Alarms, Watch},
    bridge::Running,
    checkpoint::StateDir,
    config::{Config, Flags, SourceFile},
    http::{self, Api, ApiParts, Names, ReloadRequest, Security, SourceRequest},
    memory,
    pipeline::{Pipeline, ReloadError, Reloaded, Tasks},
    telemetry,
};

/// What runs, and who is answered.
pub(super) struct Service {
    pub(super) running: Running,
    /// What file, variables and flags say.
    pub(super) base: Config,
    /// What was added over HTTP.
    pub(super) added: Vec<SourceFile>,
    pub(super) reloads: mpsc::Receiver<ReloadRequest>,
    pub(super) source_requests: mpsc::Receiver<SourceRequest>,
    /// Where the HTTP of Dynamo's indexer is answered.
    pub(super) dynamo: Option<SocketAddr>,
    api: Api,
    /// Cancelled first of all: the program is not ready any more.
    draining: CancellationToken,
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
        let compat = dynamo_listener(&config).await?;
        let mut running = Running::start(config, state).await?;
        let Running { config, pipeline, tasks, foreman, .. } = &mut running;
        let draining = CancellationToken::new();
        let alarms = watch_over(config, pipeline, tasks);
        let api = Api::new(ApiParts {
            pipeline: pipeline.clone(),
            limits: config.limits.clone(),
            body_deadline: config.http.body_deadline,
            access: security.access,
            names: Names::of(&config.http, config.listen),
            alarms,
            foreman: foreman.clone(),
            render: render.clone(),
            ready: config.ready.clone(),
            backfill: config.backfill,
            finds_more: config.bus.is_read() || !config.engines.is_empty(),
            stop: draining.clone(),
        });
        let reloads = api.reloads().unwrap_or_else(|| mpsc::channel(1).1);
        let source_requests = api.source_requests().unwrap_or_else(|| mpsc::channel(1).1);
        let (router, stop) = (api.clone().router(), tasks.stop_token());
        let (tls, acceptor) = watch::channel(security.tls);
        let service = http::Service::new(router, acceptor.clone(), config.http.clone(), stop);
        tasks.spawn("http", service.serve(listener));
        let dynamo = compat.as_ref().and_then(|listener| listener.local_addr().ok());
        if let Some(listener) = compat {
            let engine = config.compat.dynamo.as_ref().and_then(|it| it.engine.clone());
            let (router, stop) = (api.clone().dynamo_router(engine), tasks.stop_token());
            let service = http::Service::new(router, acceptor, config.http.clone(), stop);
            tasks.spawn("http of dynamo's indexer", service.serve(listener));
        }
        let stop = tasks.stop_token();
        tasks.spawn("metrics upkeep", telemetry::upkeep(render, stop));
        Ok(Service { running, base, added, reloads, source_requests, dynamo, api, draining, tls })
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
        let security = Security::read(&self.running.config.http)?;
        let configured = wanted.with_added(&self.added)?;
        self.base = wanted;
        let reloaded = self.running.configure(configured).await?;
        self.api.apply(&self.running.config.limits);
        self.tls.send_replace(security.tls);
        self.api.admit_by(security.access);
        Ok(reloaded)
    }

    /// Ends in order: not ready, nothing more read, views kept, tasks joined.
    pub(super) async fn end(self) {
        self.draining.cancel();
        let drain = self.running.config.shutdown.drain;
        self.running.end(drain).await;
    }
}

/// Listens for clients of Dynamo's indexer, if they are answered.
async fn dynamo_listener(config: &Config) -> Result<Option<TcpListener>, RunError> {
    let Some(dynamo) = &config.compat.dynamo else { return Ok(None) };
    let address = dynamo.listen;
    let bound = TcpListener::bind(address).await;
    bound.map(Some).map_err(|source| RunError::Listen { address, source })
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
