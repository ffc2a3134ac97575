//! A new configuration for a running pipeline: only what changed is touched.

use std::sync::Arc;

use kvbridge_schemas::{Epoch, ReplicaKey};
use tracing::info;

use super::{Pipeline, StartError, Tasks, Terms};
use crate::{
    checkpoint::StateDir,
    config::{Config, Problems, changes},
};

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Replicas that are read from now on.
    pub added: Vec<ReplicaKey>,
    /// Replicas that are read no more.
    pub removed: Vec<ReplicaKey>,
    /// Replicas whose source was opened anew.
    pub changed: Vec<ReplicaKey>,
    /// Fields that took effect.
    pub applied: Vec<&'static str>,
    /// Fields that differ and stay as they are until the program starts again.
    pub needs_restart: Vec<&'static str>,
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It can be read and is wrong.
    #[error(transparent)]
    Wrong(#[from] Problems),
    /// A source could not be opened; those before it were.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Makes `running` what `wanted` says, as far as that is possible without a new start.
pub async fn reload(
    pipeline: &Pipeline,
    state: Option<&Arc<StateDir>>,
    running: &mut Config,
    wanted: Config,
    tasks: &mut Tasks,
) -> Result<Reloaded, ReloadError> {
    let changes = changes(running, &wanted);
    *running = changes.merged;
    let mut reloaded = Reloaded {
        applied: changes.applied,
        needs_restart: changes.needs_restart,
        ..Reloaded::default()
    };
    for replica in changes.removed {
        let key = replica.key();
        pipeline.close(&key).await;
        // A bus may have it too, and told of it while it was read here.
        pipeline.bus.find_anew(&replica);
        reloaded.removed.push(key);
    }
    for source in &changes.changed {
        let key = source.replica.key();
        let epoch = pipeline.fleet.replica(key.as_str());
        let floor = epoch.map_or(Epoch(0), |(_, handle)| handle.status.borrow().cursor.epoch);
        pipeline.close(&key).await;
        pipeline.open(source, Terms { config: running, state, floor }, tasks).await?;
        reloaded.changed.push(key);
    }
    for source in &changes.added {
        let terms = Terms { config: running, state, floor: Epoch(0) };
        pipeline.open(source, terms, tasks).await?;
        reloaded.added.push(source.replica.key());
    }
    info!(
        added = reloaded.added.len(), removed = reloaded.removed.len(),
        changed = reloaded.changed.len(), applied = ?reloaded.applied,
        needs_restart = ?reloaded.needs_restart, "sources and settings taken over"
    );
    Ok(reloaded)
}
