//! SHELL. The engine's HTTP side: completions, metrics, reset, and what no engine has: truth,
//! control.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{
    Model, Ports,
    control::{Ask, Fault},
    engine::{Finished, Request},
    http_sources,
    http_text::{completion_request, metrics_text, start_text, truth_lines},
    settings::FakeSettings,
};
use crate::clock::{Clock, millis};

/// Header by which a caller picks a rank.
const RANK_HEADER: &str = "x-data-parallel-rank";

/// Between two looks for events that wait.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) struct Shared {
    pub(super) settings: Arc<FakeSettings>,
    pub(super) ports: Ports,
    asks: Vec<mpsc::Sender<Ask>>,
    turn: AtomicUsize,
    clock: Clock,
    /// Requests at the last quiet answer: until there are more the next ones are empty.
    quiet_at: Mutex<Option<u64>>,
    /// Not even then.
    is_stuck: AtomicBool,
}

pub(super) type Fake = State<Arc<Shared>>;

/// A refusal in the form of the OpenAI API.
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl Refusal {
    fn bad(text: impl Into<String>) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, text.into())
    }

    /// The rank ended, or its life did while it worked on the answer.
    fn gone() -> Refusal {
        Refusal(StatusCode::SERVICE_UNAVAILABLE, "the engine is gone".to_owned())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = self.0.as_u16();
        let mut response = json_response(&json!({"error": {"message": self.1, "code": code}}));
        *response.status_mut() = self.0;
        response
    }
}

pub(super) fn router(
    settings: Arc<FakeSettings>,
    ports: Ports,
    asks: Vec<mpsc::Sender<Ask>>,
    clock: Clock,
) -> Router {
    let (turn, quiet_at) = (AtomicUsize::new(0), Mutex::new(None));
    let is_stuck = AtomicBool::new(false);
    let shared = Arc::new(Shared { settings, ports, asks, turn, clock, quiet_at, is_stuck });
    Router::new()
        .route("/health", get(async || ""))
        .route("/ports", get(ports_json))
        .merge(http_sources::router())
        .route("/metrics", get(metrics))
        .route("/members/{tp_rank}/metrics", get(member))
        .route("/kv_cache_events", post(drain))
        .route("/truth", get(truth))
        .route("/v1/completions", post(completions))
        .route("/reset_prefix_cache", post(reset))
        .route("/flush_cache", post(reset))
        .route("/control", post(control))
        .with_state(shared)
}

impl Shared {
    async fn ask<T>(
        &self,
        rank: usize,
        ask: impl FnOnce(oneshot::Sender<T>) -> Ask,
    ) -> Result<T, Refusal> {
        let (done, answer) = oneshot::channel();
        let queue = self.asks.get(rank).ok_or_else(|| Refusal::bad("there is no such rank"))?;
        queue.send(ask(done)).await.map_err(|_| Refusal::gone())?;
        answer.await.map_err(|_| Refusal::gone())
    }

    async fn requests(&self) -> Result<u64, Refusal> {
        let mut sum = 0;
        for rank in 0..self.asks.len() {
            sum += self.ask(rank, Ask::Requests).await?;
        }
        Ok(sum)
    }

    /// The ranks a request is for: the one of `?rank=`, else all.
    fn ranks(&self, uri: &Uri) -> Result<Vec<usize>, Refusal> {
        match query(uri, "rank") {
            None => Ok((0..self.asks.len()).collect()),
            Some(text) => {
                let rank = text.parse().map_err(|_| Refusal::bad("rank is no number"))?;
                Ok(vec![rank])
            }
        }
    }
}

async fn completions(
    State(fake): Fake,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked: Value =
        serde_json::from_slice(&body).map_err(|error| Refusal::bad(error.to_string()))?;
    let request: Request =
        completion_request(&asked, &fake.settings.model).map_err(Refusal::bad)?;
    let rank = match headers.get(RANK_HEADER) {
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Refusal::bad("the rank header is no number"))?,
        None => fake.turn.fetch_add(1, Ordering::Relaxed) % fake.asks.len().max(1),
    };
    let model = request.lora.clone().unwrap_or_else(|| fake.settings.model.clone());
    let finished: Finished = fake.ask(rank, |done| Ask::Complete(request, done)).await?;
    if finished.output.is_empty() {
        return Err(Refusal::bad("prompt and output are longer than the cache"));
    }
    let (prompt, output) = (finished.prompt_tokens, finished.output.len());
    Ok(json_response(&json!({
        "id": format!("cmpl-{}", finished.id),
        "object": "text_completion",
        "model": model,
        "choices": [{
            "index": 0, "text": "", "token_ids": finished.output, "finish_reason": "length",
        }],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": finished.cached_tokens},
        },
    })))
}

/// As the engine: the answer does not say whether anything was emptied, and events leave only with
/// the next step.
async fn reset(State(fake): Fake, uri: Uri) -> Result<Response, Refusal> {
    let put_back_running = query(&uri, "reset_running_requests") == Some("true");
    for rank in 0..fake.asks.len() {
        fake.ask(rank, |done| Ask::Reset { put_back_running, done }).await?;
    }
    Ok(StatusCode::OK.into_response())
}

async fn control(State(fake): Fake, uri: Uri, body: Bytes) -> Result<Response, Refusal> {
    let fault: Fault =
        serde_json::from_slice(&body).map_err(|error| Refusal::bad(error.to_string()))?;
    if let Fault::Latch { on } = fault {
        fake.is_stuck.store(on, Ordering::Relaxed);
        return Ok(json_response(&json!({"done": true})));
    }
    for rank in fake.ranks(&uri)? {
        let done = fake.ask(rank, |done| Ask::Fault(fault.clone(), done)).await?;
        done.map_err(|text| Refusal(StatusCode::CONFLICT, text))?;
    }
    Ok(json_response(&json!({"done": true})))
}

async fn truth(State(fake): Fake, uri: Uri) -> Result<Response, Refusal> {
    let mut lines = String::new();
    for rank in fake.ranks(&uri)? {
        let cut = fake.ask(rank, Ask::Truth).await?;
        truth_lines(&mut lines, rank, &cut, &fake.settings);
    }
    Ok(with_type(lines, "application/x-ndjson"))
}

/// As the engine's server: an answer ends only when nothing came for a while, and after a quiet end
/// the next ones are empty at once until another request is made. Who hangs up has lost what was
/// taken for the answer.
async fn drain(State(fake): Fake) -> Result<Response, Refusal> {
    // What is published instead is not kept for whoever asks, and nothing says so.
    let (Model::Drained(_) | Model::Native(_)) = fake.settings.engine else {
        return Err(Refusal(StatusCode::NOT_FOUND, "nothing waits here".to_owned()));
    };
    let wait_ms = millis(fake.settings.drain_wait);
    let mut events = Vec::new();
    let mut requests = fake.requests().await?;
    let quiet_at = *fake.quiet_at.lock().unwrap_or_else(PoisonError::into_inner);
    let is_stuck = quiet_at.is_some() && fake.is_stuck.load(Ordering::Relaxed);
    let is_latched = is_stuck || quiet_at == Some(requests);
    let mut quiet_since = fake.clock.now();
    while !is_latched && fake.clock.now() < quiet_since.plus(wait_ms) {
        // Counted before the events are taken, so that none of a later request is left behind.
        requests = fake.requests().await?;
        let before = events.len();
        for rank in 0..fake.asks.len() {
            events.extend(fake.ask(rank, Ask::Drain).await?);
        }
        if events.len() > before {
            quiet_since = fake.clock.now();
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
    *fake.quiet_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    Ok(with_type(format!("[{}]", events.join(",")), "application/json"))
}

async fn metrics(State(fake): Fake) -> Result<Response, Refusal> {
    let mut ranks = Vec::new();
    for rank in 0..fake.asks.len() {
        ranks.push(fake.ask(rank, Ask::Stats).await?);
    }
    let text = metrics_text(&ranks, &fake.settings);
    Ok(with_type(text, METRICS_TYPE))
}

/// What a tensor-parallel member's own process would say: of rank 0, or of `?rank=`.
async fn member(
    State(fake): Fake,
    Path(member): Path<usize>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let ranks = fake.ranks(&uri)?;
    let stats = fake.ask(ranks.first().copied().unwrap_or(0), Ask::Stats).await?;
    let started_ms = stats.started_ms.get(member);
    let started_ms = started_ms.ok_or_else(|| Refusal::bad("there is no such member"))?;
    Ok(with_type(start_text(*started_ms), METRICS_TYPE))
}

async fn ports_json(State(fake): Fake) -> Response {
    json_response(&json!(fake.ports))
}

fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

pub(super) fn json_response(value: &Value) -> Response {
    with_type(value.to_string(), "application/json")
}

fn with_type(text: String, kind: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
