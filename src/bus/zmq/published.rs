//! How far each replica's log was published: what heartbeats and the list of replicas say.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kvbridge_schemas::{Cursor, EngineKind, ReplicaKey};

/// The end of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogHead {
    pub(super) engine: EngineKind,
    pub(super) cursor: Cursor,
}

/// All logs that have something in them. As many as the configuration named so far.
#[derive(Default)]
pub(super) struct Published(Mutex<BTreeMap<ReplicaKey, LogHead>>);

impl Published {
    /// A log ends here now.
    pub(super) fn moved(&self, key: &ReplicaKey, engine: EngineKind, cursor: Cursor) {
        self.lock().insert(key.clone(), LogHead { engine, cursor });
    }

    /// Where a log ends.
    pub(super) fn head(&self, key: &ReplicaKey) -> Option<LogHead> {
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, LogHead>> {
        // Single inserts: nothing in them can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
