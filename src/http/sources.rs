//! GET, POST /v1/sources; DELETE /v1/sources/{name}: what is read, beside the configuration file.
//!
//! Whoever runs the pipeline answers: what is open and what is wanted is known in one place.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use kvbridge_schemas::Replica;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::{Api, Grant, Problem, body, config::stopping, json};
use crate::{
    config::{EntryOrigin, Problems, SourceFile, limits},
    discovery::Refusal,
    pipeline::ReloadError,
};

/// Somebody asks for the sources, or for another list of them.
pub enum SourceRequest {
    /// All of them.
    List(oneshot::Sender<Vec<EntryStanding>>),
    /// One more.
    Add(Box<SourceFile>, oneshot::Sender<Result<EntryStanding, SourceError>>),
    /// One less; the answer is whom it spoke of.
    Remove(String, oneshot::Sender<Result<Vec<Replica>, SourceError>>),
}

/// How one entry stands.
#[derive(Clone, Debug)]
pub struct EntryStanding {
    /// What it is called.
    pub name: String,
    /// Who may take it away.
    pub origin: EntryOrigin,
    /// Where it says that its engine is.
    pub place: String,
    /// Why its name leads to no engine.
    pub refusal: Option<Refusal>,
    /// Whom it speaks of without asking.
    pub replicas: Vec<Replica>,
    /// Engines that are asked.
    pub engines: Vec<EngineStanding>,
}

/// How one engine stands that is asked.
#[derive(Clone, Debug)]
pub struct EngineStanding {
    /// `host:port` of its server.
    pub address: String,
    /// What is known of it.
    pub state: &'static str,
    /// Which engine it is.
    pub engine: Option<String>,
    /// Why it told nothing, or why what it told is not read.
    pub refusal: Option<Refusal>,
    /// Whom it speaks of.
    pub replicas: Vec<Replica>,
}

/// Why the list of sources stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is nowhere to keep it.
    #[error("sources that are added are kept in state.dir, and none is configured")]
    NoStateDir,
    /// The name is taken.
    #[error("there is a source of this name")]
    Exists,
    /// No more are kept.
    #[error("{} added sources are the limit", limits::ADDED_SOURCES_MAX)]
    TooMany,
    /// No source of that name.
    #[error("no source of this name; GET /v1/sources lists them")]
    Unknown,
    /// Not ours to take away.
    #[error("the source is in {0}: take it out there and reload")]
    OfFile(String),
    /// It is no source, or in conflict with another one.
    #[error(transparent)]
    Wrong(Problems),
    /// The list could not be written.
    #[error("the list of sources could not be kept")]
    NotKept(#[source] std::io::Error),
    /// It could not be opened.
    #[error(transparent)]
    NotOpened(ReloadError),
}

impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Problem {
        let (status, reason) = match &error {
            SourceError::NoStateDir => (StatusCode::CONFLICT, "no_state_dir"),
            SourceError::Exists => (StatusCode::CONFLICT, "source_exists"),
            SourceError::TooMany => (StatusCode::CONFLICT, "too_many_sources"),
            SourceError::Unknown => (StatusCode::NOT_FOUND, "unknown_source"),
            SourceError::OfFile(_) => (StatusCode::CONFLICT, "source_of_file"),
            SourceError::Wrong(_) => (StatusCode::UNPROCESSABLE_ENTITY, "wrong_config"),
            SourceError::NotKept(_) => (StatusCode::INTERNAL_SERVER_ERROR, "not_kept"),
            SourceError::NotOpened(_) => (StatusCode::INTERNAL_SERVER_ERROR, "source_not_opened"),
        };
        Problem::new(status, reason, error.to_string())
    }
}

#[derive(Serialize)]
struct EntryJson<'a> {
    name: &'a str,
    origin: &'a str,
    place: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    replicas: Vec<String>,
    engines: Vec<EngineJson<'a>>,
}

#[derive(Serialize)]
struct EngineJson<'a> {
    address: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    replicas: Vec<String>,
}

#[derive(Serialize)]
struct EntriesJson<'a> {
    sources: Vec<EntryJson<'a>>,
}

#[derive(Serialize)]
struct RemovedJson<'a> {
    name: &'a str,
    removed: Vec<String>,
}

impl<'a> EntryJson<'a> {
    /// With the replicas that the grant lets see.
    fn of(entry: &'a EntryStanding, grant: &Grant) -> EntryJson<'a> {
        let engine = |engine: &'a EngineStanding| EngineJson {
            address: &engine.address,
            state: engine.state,
            engine: engine.engine.as_deref(),
            reason: engine.refusal.as_ref().map(|refusal| refusal.reason),
            detail: engine.refusal.as_ref().map(|refusal| refusal.detail.as_str()),
            replicas: keys(&engine.replicas, grant),
        };
        EntryJson {
            name: &entry.name,
            origin: match &entry.origin {
                EntryOrigin::File(at) => at,
                EntryOrigin::Http => "http",
            },
            place: &entry.place,
            reason: entry.refusal.as_ref().map(|refusal| refusal.reason),
            detail: entry.refusal.as_ref().map(|refusal| refusal.detail.as_str()),
            replicas: keys(&entry.replicas, grant),
            engines: entry.engines.iter().map(engine).collect(),
        }
    }

    /// An entry of other models, or of none yet, is as if it were not there for whoever may see
    /// only some.
    fn is_shown(&self, grant: &Grant) -> bool {
        let of_engines = self.engines.iter().any(|engine| !engine.replicas.is_empty());
        !grant.is_restricted() || of_engines || !self.replicas.is_empty()
    }
}

fn keys(replicas: &[Replica], grant: &Grant) -> Vec<String> {
    let seen = replicas.iter().filter(|replica| grant.sees(&replica.model));
    seen.map(|replica| replica.key().to_string()).collect()
}

pub(super) async fn all(
    State(api): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Result<Response, Problem> {
    let entries = api.ask_sources(SourceRequest::List).await?;
    let shown = entries.iter().map(|entry| EntryJson::of(entry, &grant));
    let sources = shown.filter(|entry| entry.is_shown(&grant)).collect();
    Ok(json(&EntriesJson { sources }))
}

pub(super) async fn add(
    State(api): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, Problem> {
    unrestricted(&grant)?;
    let bytes = body::read(&api.0, request, limits::SOURCE_BODY_BYTES_MAX).await?;
    let source: SourceFile = body::parse(&bytes)?;
    let add = |answer| SourceRequest::Add(Box::new(source), answer);
    let entry = api.ask_sources(add).await??;
    let body = json(&EntryJson::of(&entry, &grant));
    Ok((StatusCode::CREATED, body).into_response())
}

pub(super) async fn remove(
    State(api): State<Api>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    unrestricted(&grant)?;
    let wanted = name.clone();
    let removed = api.ask_sources(|answer| SourceRequest::Remove(wanted, answer)).await??;
    Ok(json(&RemovedJson { name: &name, removed: keys(&removed, &grant) }))
}

pub(super) fn unrestricted(grant: &Grant) -> Result<(), Problem> {
    if grant.is_restricted() {
        let detail = "sources may be of any model, the token is not";
        return Err(Problem::new(StatusCode::FORBIDDEN, "model_restricted", detail));
    }
    Ok(())
}

impl Api {
    pub(super) async fn ask_sources<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> SourceRequest,
    ) -> Result<T, Problem> {
        let (answer, done) = oneshot::channel();
        self.0.sources.try_send(request(answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                let detail = "other requests for sources wait already";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            }
            mpsc::error::TrySendError::Closed(_) => stopping(),
        })?;
        done.await.map_err(|_| stopping())
    }
}
