//! How sinks stand, for people and tests.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, RwLock},
};

use kvbridge_schemas::ReplicaKey;

/// One replica's line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineStanding {
    /// Which router reads it.
    pub preset: &'static str,
    /// Where it is published; absent while the port is taken.
    pub live: Option<String>,
    /// Where its past is asked for.
    pub replay: Option<String>,
    /// Its topic; often empty.
    pub topic: String,
    /// The number of the next batch.
    pub next_seq: u64,
    /// Readers have what is held; else they were told that nothing is there, or soon will be.
    pub is_shown: bool,
    /// Blocks that readers have.
    pub shown_count: u64,
    /// Blocks that are held and not told.
    pub hidden_count: u64,
    /// The readers that the sink connects to.
    pub readers: Vec<ReaderStanding>,
}

/// A reader that is connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderStanding {
    /// Where it binds.
    pub endpoint: String,
    /// It is there and listens.
    pub is_listening: bool,
    /// How often it was told a whole line.
    pub told_whole_count: u64,
}

/// All lines, by sink and replica.
#[derive(Default)]
pub struct SinkBoard(RwLock<BTreeMap<(String, ReplicaKey), LineStanding>>);

impl SinkBoard {
    /// All of them.
    pub fn lines(&self) -> Vec<((String, ReplicaKey), LineStanding)> {
        let lines = self.0.read().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(name, line)| (name.clone(), line.clone())).collect()
    }

    pub(super) fn set(&self, sink: &str, key: &ReplicaKey, standing: LineStanding) {
        let mut lines = self.0.write().unwrap_or_else(PoisonError::into_inner);
        lines.insert((sink.to_owned(), key.clone()), standing);
    }

    pub(super) fn remove(&self, sink: &str, key: &ReplicaKey) {
        let mut lines = self.0.write().unwrap_or_else(PoisonError::into_inner);
        lines.remove(&(sink.to_owned(), key.clone()));
    }
}
