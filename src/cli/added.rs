//! Sources that come and go over HTTP while the program runs.

use std::sync::Arc;

use kvbridge_schemas::Replica;
use tracing::{info, warn};

use super::{RunError, service::Service};
use crate::{
    checkpoint::StateDir,
    config::{self, EntryOrigin, SourceFile, limits},
    discovery::{Refusal, Standing},
    http::{EngineStanding, EntryStanding, SourceError, SourceRequest},
};

/// What is said of an engine whose replicas another source has.
const CONFLICT: &str = "another source speaks of the same replica, or drains the same engine";

/// The sources that were added to an earlier process of this folder.
pub(super) fn kept(state: Option<&StateDir>) -> Result<Vec<SourceFile>, RunError> {
    let Some(state) = state else { return Ok(Vec::new()) };
    let path = state.sources_file();
    let unreadable = |text: String| RunError::AddedSources { path: path.clone(), text };
    let bytes = state.load_sources().map_err(|error| unreadable(error.to_string()))?;
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    config::read_added(&bytes).map_err(|error| unreadable(error.to_string()))
}

impl Service {
    /// Answers. Whoever asked may have gone; what was done counts all the same.
    pub(super) async fn answer(&mut self, request: SourceRequest) {
        match request {
            SourceRequest::List(answer) => drop(answer.send(self.standings())),
            SourceRequest::Add(source, answer) => drop(answer.send(self.add(*source).await)),
            SourceRequest::Remove(name, answer) => drop(answer.send(self.remove(&name).await)),
        }
    }

    async fn add(&mut self, source: SourceFile) -> Result<EntryStanding, SourceError> {
        let name = source.name.clone().unwrap_or_default();
        if self.configured.entries.iter().any(|entry| entry.name == name) {
            return Err(SourceError::Exists);
        }
        if self.added.len() >= limits::ADDED_SOURCES_MAX {
            return Err(SourceError::TooMany);
        }
        let mut added = self.added.clone();
        added.push(source);
        self.change(added).await?;
        info!(source = %name, "source added");
        self.standings().into_iter().find(|entry| entry.name == name).ok_or(SourceError::Unknown)
    }

    async fn remove(&mut self, name: &str) -> Result<Vec<Replica>, SourceError> {
        let standing = self.standings().into_iter().find(|entry| entry.name == name);
        let standing = standing.ok_or(SourceError::Unknown)?;
        if let EntryOrigin::File(at) = standing.origin {
            return Err(SourceError::OfFile(at));
        }
        let mut added = self.added.clone();
        added.retain(|source| source.name.as_deref() != Some(name));
        self.change(added).await?;
        info!(source = %name, "source removed");
        let of_engines = standing.engines.into_iter().flat_map(|engine| engine.replicas);
        Ok(standing.replicas.into_iter().chain(of_engines).collect())
    }

    /// Another list of added sources: proven, kept, then opened. In that order: what is open and
    /// not kept would be gone after the next start without a word.
    async fn change(&mut self, added: Vec<SourceFile>) -> Result<(), SourceError> {
        let state = self.state.clone().ok_or(SourceError::NoStateDir)?;
        let configured = self.base.with_added(&added).map_err(SourceError::Wrong)?;
        keep(&state, &added).await?;
        let before = (std::mem::replace(&mut self.added, added), self.configured.clone());
        let Err(error) = self.configure(configured).await else { return Ok(()) };
        let (added, configured) = before;
        keep(&state, &added).await?;
        self.added = added;
        if let Err(error) = self.configure(configured).await {
            warn!(%error, "the sources of before are not all open");
        }
        Err(SourceError::NotOpened(error))
    }

    /// How every entry stands.
    fn standings(&self) -> Vec<EntryStanding> {
        let seen = self.lookout.seen.borrow().clone();
        let found = seen.found(&self.configured);
        let (_, left_out) = self.configured.with_found(&self.config.sources, &found);
        let of_engine = |standing: &Standing<config::Told>| {
            let is_it = |it: &config::FoundEngine| {
                it.entry == standing.entry && it.address == standing.address
            };
            let at = found.iter().position(is_it);
            let conflicts = at.is_some_and(|at| left_out.contains(&at));
            let conflict = || Refusal { reason: "conflict", detail: CONFLICT.to_owned() };
            let sources = at.filter(|_| !conflicts).and_then(|at| found.get(at));
            let replicas = sources.into_iter().flat_map(|it| &it.sources);
            EngineStanding {
                address: standing.address.authority(),
                state: standing.state.as_str(),
                engine: standing.told.as_ref().map(|told| told.engine.as_str().to_owned()),
                refusal: standing.refusal.clone().or_else(|| conflicts.then(conflict)),
                replicas: replicas.map(|source| source.replica.clone()).collect(),
            }
        };
        let of_entry = |entry: &config::EntryConfig| EntryStanding {
            name: entry.name.clone(),
            origin: entry.origin.clone(),
            place: entry.place.clone(),
            refusal: seen.refusals.get(&entry.name).cloned(),
            replicas: entry.replicas.clone(),
            engines: seen
                .engines
                .iter()
                .filter(|standing| standing.entry == entry.name)
                .map(of_engine)
                .collect(),
        };
        self.configured.entries.iter().map(of_entry).collect()
    }
}

async fn keep(state: &Arc<StateDir>, added: &[SourceFile]) -> Result<(), SourceError> {
    let (state, bytes) = (Arc::clone(state), config::write_added(added));
    // A disk may take its time, and drivers share these threads.
    let kept = tokio::task::spawn_blocking(move || state.save_sources(&bytes)).await;
    kept.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(SourceError::NotKept)
}
