//! What a driver is made of, and what it shares with the rest of the process.

use std::sync::Arc;

use kvbridge_adapters_api::Source;
use kvbridge_schemas::{EngineKind, Replica};
use tokio::sync::{broadcast, mpsc, watch};

use crate::{
    bus::LogWriter,
    clock::Clock,
    config::ViewConfig,
    index::Index,
    pipeline::{Command, Feeds, FleetEvent, HashWatch, IndexWriters, ReplicaStatus, Signs},
    recovery::Recovery,
    view::{View, ViewSettings},
};

/// What a driver shares with the rest of the process.
#[derive(Clone)]
pub struct Outputs {
    /// The index.
    pub index: Arc<Index>,
    /// Its writers.
    pub writers: Arc<IndexWriters>,
    /// Readers of events.
    pub events: broadcast::Sender<FleetEvent>,
    /// Sinks.
    pub feeds: Arc<Feeds>,
    /// Time.
    pub clock: Clock,
}

/// What a driver is started with.
pub struct DriverParts {
    /// Whose cache.
    pub replica: Arc<Replica>,
    /// Which engine.
    pub engine: EngineKind,
    /// Its stream.
    pub source: Box<dyn Source>,
    /// Its state machine.
    pub recovery: Recovery,
    /// How events fold.
    pub view: ViewSettings,
    /// How much is kept.
    pub kept_max: ViewConfig,
    /// What is noted of it.
    pub signs: Arc<Signs>,
    /// The view of an earlier process, if recovery was restored with it.
    pub kept: Option<View>,
    /// Everything that the fold depends on beside the events, as checkpoints name it.
    pub fold: String,
    /// Requests of operators and readers.
    pub commands: mpsc::Receiver<Command>,
    /// Where its standing is shown.
    pub status: watch::Sender<ReplicaStatus>,
    /// Its log on a bus beyond this process.
    pub log: Option<LogWriter>,
    /// What computes its hashes again, where that can be done.
    pub hashes: Option<HashWatch>,
}
