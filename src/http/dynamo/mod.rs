//! The HTTP of Dynamo's standalone indexer, answered from our index and views: what its clients ask
//! at the paths of a program of its own, so it has a listener of its own.
//!
//! A client reads what is proven and no more: a replica that nobody vouches for shows nothing, as
//! one that holds nothing. `docs/dynamo.md` lists what differs.

mod dump;
mod forms;
mod query;
#[cfg(test)]
mod tests;
mod workers;

use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::{HeaderValue, StatusCode, Uri, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::{Api, Problem, admission, json, json_bytes};
use crate::config::limits;

/// The only group there is: our index knows models.
const GROUP: &str = "default";

/// A number that every reader of JSON keeps whole.
const NUMBER_MASK: u64 = (1 << 53) - 1;

/// What the routes need beside the API.
#[derive(Clone)]
pub(super) struct Dynamo {
    api: Api,
    /// Which engine a registered endpoint is.
    engine: Option<String>,
}

impl Api {
    /// The routes of Dynamo's indexer. `engine` is what a registered endpoint is where the request
    /// does not tell.
    pub fn dynamo_router(self, engine: Option<String>) -> Router {
        let body_bytes_max = self.0.body_bytes_max();
        let entry_body_max = DefaultBodyLimit::max(limits::COMPAT_BODY_BYTES_MAX);
        let read = Router::new()
            .route("/query", post(query::by_tokens))
            .route("/query_by_hash", post(query::by_hash))
            .route("/workers", get(workers::all))
            .route("/dump", get(dump::stream))
            .route("/peers", get(no_peers))
            .route_layer(from_fn_with_state(self.clone(), admission::read));
        let write = Router::new()
            .route("/register", post(workers::register).layer(entry_body_max))
            .route("/unregister", post(workers::unregister).layer(entry_body_max))
            .route("/register_peer", post(peers_refused))
            .route("/deregister_peer", post(peers_refused))
            .route("/reopen_logs", post(no_logs))
            .route_layer(from_fn_with_state(self.clone(), admission::write));
        Router::new()
            .route("/health", get(async || StatusCode::OK))
            .merge(read)
            .merge(write)
            .fallback(async || Refused::from(Problem::not_found()))
            .method_not_allowed_fallback(async || Refused::from(Problem::method()))
            .layer(DefaultBodyLimit::max(body_bytes_max))
            .with_state(Dynamo { api: self, engine })
    }
}

/// Why a request was refused: `error` is for people, as the indexer has it, `reason` for programs.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    reason: &'static str,
    detail: String,
}

#[derive(Serialize)]
struct RefusedJson<'a> {
    error: &'a str,
    reason: &'a str,
}

impl Refused {
    fn new(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Refused {
        Refused { status, reason, detail: detail.into() }
    }

    /// Nothing is known of a model in that group.
    fn no_indexer(model: &str, group: &str) -> Refused {
        let detail = format!("no indexer for model={model} routing_group={group}");
        Refused::new(StatusCode::NOT_FOUND, "unknown_model", detail)
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        let Problem { status, reason, detail } = problem;
        // The indexer tells a body that is no JSON from one that is another.
        let status = match reason {
            "missing_field" | "wrong_value" => StatusCode::UNPROCESSABLE_ENTITY,
            _ => status,
        };
        Refused { status, reason, detail }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = json_bytes(&RefusedJson { error: &self.detail, reason: self.reason });
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

#[derive(Serialize)]
struct DoneJson {
    status: &'static str,
}

fn done(status: StatusCode) -> Response {
    (status, json(&DoneJson { status: "ok" })).into_response()
}

async fn no_peers() -> Response {
    json(&Vec::<String>::new())
}

async fn peers_refused() -> Refused {
    let detail = "peers are not asked: every process reads the engines, or a bus, itself";
    Refused::new(StatusCode::NOT_IMPLEMENTED, "peers_not_asked", detail)
}

/// There is no access log, as in an indexer without `--access-log`.
async fn no_logs() -> Response {
    done(StatusCode::OK)
}

/// The indexer's number of an instance: the instance itself where that is a number, as registered
/// ones are, else a hash that is the same in every process.
fn instance_number(instance: &str) -> u64 {
    instance.parse().unwrap_or_else(|_| xxh3_64(instance.as_bytes()) & NUMBER_MASK)
}

/// A parameter of a query string.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let url = reqwest::Url::parse(&format!("http://h/?{}", uri.query()?)).ok()?;
    let found = url.query_pairs().find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}
