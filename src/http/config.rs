//! POST /v1/config/reload: reads the configuration again and touches what changed.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use kvbridge_schemas::ReplicaKey;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::{Api, Grant, Problem, json};
use crate::pipeline::{ReloadError, Reloaded};

/// Someone waits for a reload.
pub type ReloadRequest = oneshot::Sender<Result<Reloaded, ReloadError>>;

#[derive(Serialize)]
struct ReloadedJson<'a> {
    added: Vec<&'a str>,
    removed: Vec<&'a str>,
    changed: Vec<&'a str>,
    applied: &'a [&'static str],
    needs_restart: &'a [&'static str],
}

pub(super) async fn reload(
    State(Api(api)): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Result<Response, Problem> {
    if grant.is_restricted() {
        let detail = "a reload is of all models, the token is not";
        return Err(Problem::new(StatusCode::FORBIDDEN, "model_restricted", detail));
    }
    let (answer, done) = oneshot::channel();
    api.reloads.try_send(answer).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "other reloads wait already")
        }
        mpsc::error::TrySendError::Closed(_) => stopping(),
    })?;
    let reloaded = done.await.map_err(|_| stopping())??;
    Ok(json(&ReloadedJson {
        added: words(&reloaded.added),
        removed: words(&reloaded.removed),
        changed: words(&reloaded.changed),
        applied: &reloaded.applied,
        needs_restart: &reloaded.needs_restart,
    }))
}

fn words(keys: &[ReplicaKey]) -> Vec<&str> {
    keys.iter().map(ReplicaKey::as_str).collect()
}

pub(super) fn stopping() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the program stops")
}

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Problem {
        let (status, reason) = match &error {
            ReloadError::Unreadable(_) => (StatusCode::CONFLICT, "unreadable_config"),
            ReloadError::Wrong(_) => (StatusCode::UNPROCESSABLE_ENTITY, "wrong_config"),
            ReloadError::Start(_) => (StatusCode::INTERNAL_SERVER_ERROR, "source_not_opened"),
        };
        Problem::new(status, reason, error.to_string())
    }
}
