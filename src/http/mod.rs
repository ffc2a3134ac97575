//! SHELL. The API of routers and operators. Loopback by default: it has no authentication.
//!
//! Ready means: the listener is up and every configured source has been started. It says nothing about
//! trust, which is per replica and revocable: a router reads it with every match. A program that stops
//! is not ready any more.

mod config;
mod events;
mod health;
mod match_prefix;
mod problem;
mod replicas;
mod snapshot;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::{HeaderValue, header},
    response::Response,
    routing::{get, post},
};
use kvbridge_schemas::ReplicaKey;
use metrics::Gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

pub use config::ReloadRequest;
pub use problem::Problem;
pub use replicas::ReplicaJson;

use crate::{
    config::{Limits, limits},
    pipeline::Pipeline,
    telemetry::{self, Metrics},
};

/// What handlers share.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    pipeline: Pipeline,
    limits: Limits,
    metrics: Metrics,
    render: PrometheusHandle,
    event_readers: Arc<Semaphore>,
    snapshot_readers: Arc<Semaphore>,
    stop: CancellationToken,
    /// Made once per replica, the first time it is seen.
    ages: Mutex<BTreeMap<ReplicaKey, Gauge>>,
    /// As in `limits`, until a reload changes it.
    match_token_count_max: AtomicU32,
    reloads: mpsc::Sender<ReloadRequest>,
    reloads_taken: Mutex<Option<mpsc::Receiver<ReloadRequest>>>,
}

impl Api {
    /// An API over a running pipeline. `stop` ends its streams.
    pub fn new(
        pipeline: Pipeline,
        limits: Limits,
        render: PrometheusHandle,
        stop: CancellationToken,
    ) -> Api {
        let permits = |count| Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        let reload_queue = usize::try_from(limits::RELOAD_QUEUE).unwrap_or(1);
        let (reloads, reloads_taken) = mpsc::channel(reload_queue);
        let keys = pipeline.fleet.replicas();
        let ages = keys.map(|(key, _)| (key.clone(), telemetry::cursor_age(&key))).collect();
        Api(Arc::new(Shared {
            ages: Mutex::new(ages),
            reloads,
            reloads_taken: Mutex::new(Some(reloads_taken)),
            match_token_count_max: AtomicU32::new(limits.match_token_count_max),
            metrics: Metrics::register(),
            event_readers: permits(limits.events_reader_count_max),
            snapshot_readers: permits(limits::SNAPSHOT_READER_COUNT_MAX),
            pipeline,
            limits,
            render,
            stop,
        }))
    }

    /// Requests for a reload, for whoever performs them. Given once.
    pub fn reloads(&self) -> Option<mpsc::Receiver<ReloadRequest>> {
        self.0.reloads_taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes over the limits that may change while the program runs.
    pub fn apply(&self, limits: &Limits) {
        self.0.match_token_count_max.store(limits.match_token_count_max, Ordering::Relaxed);
    }

    /// All routes.
    pub fn router(self) -> Router {
        let body_bytes_max = usize::try_from(self.0.limits.body_bytes_max).unwrap_or(usize::MAX);
        Router::new()
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/metrics", get(health::metrics))
            .route("/v1/replicas", get(replicas::all))
            .route("/v1/replicas/{key}", get(replicas::one))
            .route("/v1/replicas/{key}/snapshot", get(snapshot::stream))
            .route("/v1/replicas/{key}/resync", post(replicas::resync))
            .route("/v1/config/reload", post(config::reload))
            .route("/v1/match", post(match_prefix::answer))
            .route("/v1/events", get(events::stream))
            .fallback(async || Problem::not_found())
            .method_not_allowed_fallback(async || Problem::method())
            .layer(DefaultBodyLimit::max(body_bytes_max))
            .with_state(self)
    }
}

/// Serves until stopped.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
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
