//! GET /healthz, /readyz, /metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use kvbridge_schemas::{ReplicaKey, Trust};
use serde::Serialize;

use super::{
    Api, Grant, Problem, Shared, json,
    readiness::{Mode, Seen},
};
use crate::{
    bus::Standing,
    telemetry::{self, cursor_age},
};

#[derive(Serialize)]
struct Alive {
    alive: bool,
}

/// The process runs and answers.
pub(super) async fn alive() -> Response {
    json(&Alive { alive: true })
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    mode: &'static str,
    /// How many replicas are in each state of trust, to look at; not part of being ready.
    trust: BTreeMap<&'static str, u64>,
    /// How the bus stands. While it is away views go on being true: also not part of being ready.
    bus: BusJson,
}

#[derive(Serialize)]
struct BusJson {
    kind: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
}

/// Replicas were proven once, or long enough waited for, and the program does not stop.
pub(super) async fn ready(State(Api(api)): State<Api>) -> Result<Response, Problem> {
    if api.stop.is_cancelled() {
        let detail = "the program stops";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail));
    }
    let (mode, ready, seen) = look(&api);
    if !ready {
        let reason = if mode == Mode::Starting { "starting" } else { "not_converged" };
        let detail = format!("{} of {} replicas proven", seen.proven_count, seen.replica_count);
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason, detail));
    }
    let mut trust = BTreeMap::new();
    for (_, replica) in api.pipeline.fleet.replicas() {
        *trust.entry(replica.status.borrow().trust.device.as_str()).or_default() += 1;
    }
    let Standing { state, detail } = api.pipeline.bus.standing();
    let bus = BusJson { kind: api.pipeline.bus.kind(), state: state.as_str(), detail };
    Ok(json(&Ready { ready, mode: mode.as_str(), trust, bus }))
}

fn look(api: &Shared) -> (Mode, bool, Seen) {
    let mut seen = Seen { replica_count: 0, proven_count: 0, finds_more: api.finds_more };
    for (_, replica) in api.pipeline.fleet.replicas() {
        seen.replica_count += 1;
        seen.proven_count += u64::from(replica.status.borrow().trust.device > Trust::None);
    }
    let mut readiness = api.readiness.lock().unwrap_or_else(PoisonError::into_inner);
    let (mode, ready) = readiness.look(seen, api.pipeline.clock.now().0);
    (mode, ready, seen)
}

/// Prometheus text.
pub(super) async fn metrics(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Response {
    if grant.is_restricted() {
        let detail = "metrics speak of all models, the token does not";
        return Problem::new(StatusCode::FORBIDDEN, "model_restricted", detail).into_response();
    }
    refresh(&api);
    // Rendering thousands of series takes milliseconds: not on a thread that serves matches.
    let render = api.render.clone();
    let keys: BTreeSet<ReplicaKey> = api.pipeline.fleet.replicas().map(|(key, _)| key).collect();
    let text = move || {
        telemetry::without_others(render.render(), |key| keys.iter().any(|it| it.as_str() == key))
    };
    match tokio::task::spawn_blocking(text).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
            .into_response(),
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "render_failed", "no metrics")
            .into_response(),
    }
}

/// Sets what is only looked at: ages, turns, the bus, socket counts, the queue.
fn refresh(api: &Shared) {
    let now = api.pipeline.clock.now();
    let mut ages = api.ages.lock().unwrap_or_else(PoisonError::into_inner);
    ages.retain(|key, _| api.pipeline.fleet.has(key));
    for (key, replica) in api.pipeline.fleet.replicas() {
        let age_ms = now.0.saturating_sub(replica.status.borrow().moved_at.0);
        let age = ages.entry(key).or_insert_with_key(cursor_age);
        age.set(Duration::from_millis(age_ms).as_secs_f64());
    }
    let (mode, ..) = look(api);
    for (it, gauge) in &api.metrics.ready_modes {
        gauge.set(f64::from(u8::from(*it == mode)));
    }
    api.feedback.refresh(api);
    api.pipeline.bus.refresh_metrics();
    for (_, sources) in api.pipeline.sources.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        sources.refresh();
    }
    let queued = u32::try_from(api.pipeline.writers.queued_count()).unwrap_or(u32::MAX);
    api.metrics.index_queue.set(f64::from(queued));
}
