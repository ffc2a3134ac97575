//! SHELL. The API of routers and operators. Who is let in is in `access`, how slow in `serve`.
//!
//! Ready means: the listener is up and every configured source has been started. It says nothing
//! about trust, which is per replica and revocable: a router reads it with every match. A program
//! that stops is not ready any more.

mod access;
mod admission;
mod alarms;
mod backfill;
mod body;
mod config;
mod dynamo;
mod events;
mod feedback;
mod fields;
mod foreign;
mod health;
mod jobs;
mod kv_events;
mod match_prefix;
mod page;
mod problem;
mod question;
mod readiness;
mod replicas;
mod route;
mod serve;
mod sinks;
mod snapshot;
mod sources;
mod stall;
mod tls;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod backfill_tests;
#[cfg(test)]
mod feedback_tests;
#[cfg(test)]
mod jobs_tests;
#[cfg(test)]
mod route_tests;
#[cfg(test)]
mod serve_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world_tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::{HeaderValue, header},
    middleware::from_fn_with_state,
    response::Response,
    routing::{delete, get, post},
};
use kvbridge_schemas::ReplicaKey;
use metrics::Gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use access::{Access, Grant, InForce, Scope};
pub use config::ReloadRequest;
pub use foreign::Names;
pub use problem::Problem;
pub use readiness::Mode;
use readiness::Readiness;
pub use replicas::ReplicaJson;
pub use serve::Service;
pub use sources::{EngineStanding, EntryStanding, SourceError, SourceRequest};
#[cfg(feature = "sink-smg")]
pub(crate) use tls::acceptor as tls_acceptor;

use crate::{
    alarms::Alarms,
    config::{BackfillConfig, HttpConfig, Limits, Problems, ReadyConfig, limits},
    foreman::Foreman,
    pipeline::Pipeline,
    telemetry::{self, Metrics},
};

/// What handlers share.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

/// What an API is made of.
pub struct ApiParts {
    /// What it shows.
    pub pipeline: Pipeline,
    /// Bounds.
    pub limits: Limits,
    /// How long a body may take.
    pub body_deadline: Duration,
    /// Who may do what.
    pub access: Access,
    /// By which names it is asked.
    pub names: Names,
    /// What rings.
    pub alarms: Alarms,
    /// Runs jobs.
    pub foreman: Foreman,
    /// Renders the metrics.
    pub render: PrometheusHandle,
    /// When it says that it is ready.
    pub ready: ReadyConfig,
    /// When guesses of routers are taken.
    pub backfill: BackfillConfig,
    /// Replicas appear by themselves.
    pub finds_more: bool,
    /// Ends its streams.
    pub stop: CancellationToken,
}

struct Shared {
    pipeline: Pipeline,
    limits: Limits,
    body_deadline: Duration,
    access: InForce,
    names: Names,
    alarms: Alarms,
    foreman: Foreman,
    metrics: Metrics,
    render: PrometheusHandle,
    event_readers: Arc<Semaphore>,
    snapshot_readers: Arc<Semaphore>,
    stop: CancellationToken,
    /// Made once per replica, the first time it is seen.
    ages: Mutex<BTreeMap<ReplicaKey, Gauge>>,
    /// As in `limits`, until a reload changes it.
    match_token_count_max: AtomicU32,
    readiness: Mutex<Readiness>,
    finds_more: bool,
    /// Decisions so far, to log one of many.
    routes_decided: AtomicU64,
    feedback: feedback::Feedback,
    backfill: BackfillConfig,
    reloads: mpsc::Sender<ReloadRequest>,
    reloads_taken: Mutex<Option<mpsc::Receiver<ReloadRequest>>>,
    sources: mpsc::Sender<SourceRequest>,
    sources_taken: Mutex<Option<mpsc::Receiver<SourceRequest>>>,
}

impl Shared {
    fn body_bytes_max(&self) -> usize {
        usize::try_from(self.limits.body_bytes_max).unwrap_or(usize::MAX)
    }
}

impl Api {
    /// An API over a running pipeline. `stop` ends its streams.
    pub fn new(parts: ApiParts) -> Api {
        let ApiParts { pipeline, limits, body_deadline, access, alarms, render, .. } = parts;
        let ApiParts { names, foreman, ready, backfill, finds_more, stop, .. } = parts;
        let permits = |count| Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        let reload_queue = usize::try_from(limits::RELOAD_QUEUE).unwrap_or(1);
        let (reloads, reloads_taken) = mpsc::channel(reload_queue);
        let (sources, sources_taken) = mpsc::channel(limits::SOURCE_QUEUE_REQUESTS);
        let keys = pipeline.fleet.replicas();
        let ages = keys.map(|(key, _)| (key.clone(), telemetry::cursor_age(&key))).collect();
        Api(Arc::new(Shared {
            ages: Mutex::new(ages),
            reloads,
            reloads_taken: Mutex::new(Some(reloads_taken)),
            sources,
            sources_taken: Mutex::new(Some(sources_taken)),
            match_token_count_max: AtomicU32::new(limits.match_token_count_max),
            metrics: Metrics::register(),
            readiness: Mutex::new(Readiness::new(ready)),
            finds_more,
            routes_decided: AtomicU64::new(0),
            feedback: feedback::Feedback::new(&pipeline.fleet),
            backfill,
            event_readers: permits(limits.events_reader_count_max),
            snapshot_readers: permits(limits::SNAPSHOT_READER_COUNT_MAX),
            pipeline,
            limits,
            body_deadline,
            access: InForce::new(access),
            names,
            alarms,
            foreman,
            render,
            stop,
        }))
    }

    /// Requests for a reload, for whoever performs them. Given once.
    pub fn reloads(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.0.reloads_taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Requests about sources, for whoever performs them. Given once.
    pub fn source_requests(&self) -> Option<mpsc::Receiver<SourceRequest>> {
        self.0.sources_taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes over the limits that may change while the program runs.
    pub fn apply(&self, limits: &Limits) {
        self.0.match_token_count_max.store(limits.match_token_count_max, Ordering::Relaxed);
    }

    /// Takes over what a reload read anew of who may do what.
    pub fn admit_by(&self, access: Access) {
        self.0.access.put(access);
    }

    /// All routes.
    pub fn router(self) -> Router {
        let body_bytes_max = self.0.body_bytes_max();
        let source_body_max = DefaultBodyLimit::max(limits::SOURCE_BODY_BYTES_MAX);
        let order_body_max = DefaultBodyLimit::max(limits::JOB_BODY_BYTES_MAX);
        let read = Router::new()
            .route("/metrics", get(health::metrics))
            .route("/v1/replicas", get(replicas::all))
            .route("/v1/replicas/{key}", get(replicas::one))
            .route("/v1/replicas/{key}/snapshot", get(snapshot::stream))
            .route("/v1/alarms", get(alarms::all))
            .route("/v1/sources", get(sources::all))
            .route("/v1/jobs", get(jobs::all))
            .route("/v1/jobs/{id}", get(jobs::one))
            .route("/v1/sinks", get(sinks::all))
            .route("/v1/match", post(match_prefix::answer))
            .route("/v1/route", post(route::answer))
            .route("/v1/events", get(events::stream))
            .route("/engines/{key}/kv_cache_events", post(kv_events::take).get(kv_events::take))
            .route_layer(from_fn_with_state(self.clone(), admission::read));
        let write = Router::new()
            .route("/v1/replicas/{key}/resync", post(replicas::resync))
            .route("/v1/resync", post(jobs::resync).layer(order_body_max))
            .route("/v1/flush", post(jobs::flush).layer(order_body_max))
            .route("/v1/jobs/{id}", delete(jobs::cancel))
            .route("/v1/config/reload", post(config::reload))
            .route("/v1/sources/{name}", delete(sources::remove))
            .route("/v1/sources", post(sources::add).layer(source_body_max))
            .route_layer(from_fn_with_state(self.clone(), admission::write));
        let report = Router::new()
            .route("/v1/feedback", post(feedback::answer))
            .route("/v1/backfill", post(backfill::answer))
            .route_layer(from_fn_with_state(self.clone(), admission::report));
        Router::new()
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .merge(page::routes())
            .merge(read)
            .merge(write)
            .merge(report)
            .fallback(async || Problem::not_found())
            .method_not_allowed_fallback(async || Problem::method())
            .layer(DefaultBodyLimit::max(body_bytes_max))
            .layer(from_fn_with_state(self.clone(), foreign::refuse))
            .with_state(self)
    }
}

/// What guards the API, read from the files that the configuration names.
pub struct Security {
    /// Who may do what.
    pub access: Access,
    /// Encryption, if any.
    pub tls: Option<TlsAcceptor>,
}

impl Security {
    /// Reads the files, or says all that is wrong with them.
    pub fn read(config: &HttpConfig) -> Result<Security, Problems> {
        let mut problems = Problems::default();
        let access = match config.tokens_file.as_deref().map(Access::read) {
            Some(Ok(access)) => access,
            None => Access::Open,
            Some(Err(found)) => {
                problems.0.extend(found.0);
                Access::Open
            }
        };
        let tls = match config.tls.as_ref().map(|tls| tls::acceptor("http.tls", tls, b"http/1.1")) {
            Some(Ok(acceptor)) => Some(acceptor),
            None => None,
            Some(Err(found)) => {
                problems.0.extend(found.0);
                None
            }
        };
        if problems.0.is_empty() { Ok(Security { access, tls }) } else { Err(problems) }
    }
}

/// Everything serialised here is a struct of texts and numbers, which cannot fail.
fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers serialise")
}

fn json(value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(json_bytes(value)));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
