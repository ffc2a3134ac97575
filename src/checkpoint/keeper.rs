//! When each replica is written: every so often if it moved, at once when its epoch changed, and at
//! the end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kvbridge_schemas::{Epoch, ReplicaKey};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::StateDir;
use crate::{
    clock::Clock,
    pipeline::{Fleet, ReplicaHandle, ReplicaStatus},
    recovery::Tick,
    telemetry::CheckpointMetrics,
};

/// How often replicas are looked at. An epoch that is younger than this may be lost in a crash;
/// then the wall clock alone keeps names from coming again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Writes checkpoints, one at a time: there is never more than one copy of a view.
pub struct Keeper {
    dir: Arc<StateDir>,
    fleet: Arc<Fleet>,
    clock: Clock,
    metrics: CheckpointMetrics,
    written: Mutex<BTreeMap<ReplicaKey, Written>>,
}

/// How a replica stood when it was last written.
struct Written {
    at: Tick,
    status: ReplicaStatus,
}

impl Keeper {
    /// A keeper that has written nothing.
    pub fn new(dir: Arc<StateDir>, fleet: Arc<Fleet>, clock: Clock) -> Keeper {
        let metrics = CheckpointMetrics::register();
        Keeper { dir, fleet, clock, metrics, written: Mutex::new(BTreeMap::new()) }
    }

    /// Writes what is due: of a replica that moved since `every`, or has a new epoch.
    pub async fn save_due(&self, every: Duration) {
        self.save(|written, status| {
            let age = self.clock.now().0.saturating_sub(written.at.0);
            let due = u128::from(age) >= every.as_millis();
            let moved = (written.status.cursor, written.status.trust, written.status.reason)
                != (status.cursor, status.trust, status.reason);
            written.status.cursor.epoch != status.cursor.epoch || (due && moved)
        })
        .await;
    }

    /// Writes everything that moved.
    pub async fn save_all(&self) {
        self.save(|written, status| written.status != *status).await;
    }

    async fn save(&self, is_due: impl Fn(&Written, &ReplicaStatus) -> bool) {
        let mut written = self.written.lock().await;
        let replicas: Vec<(ReplicaKey, ReplicaHandle)> = self.fleet.replicas().collect();
        written.retain(|key, _| replicas.iter().any(|(there, _)| there == key));
        for (key, handle) in replicas {
            let status = handle.status.borrow().clone();
            let due = match written.get(&key) {
                Some(written) => is_due(written, &status),
                // Nothing is known of it: its file must not be replaced by less.
                None => status.cursor.epoch > Epoch(0),
            };
            if due && self.save_one(&key, &handle).await {
                written.insert(key, Written { at: self.clock.now(), status });
            }
        }
    }

    async fn save_one(&self, key: &ReplicaKey, handle: &ReplicaHandle) -> bool {
        // A driver that is busy or gone is asked again at the next look.
        let Ok(cut) = handle.checkpoint().await else { return false };
        let dir = Arc::clone(&self.dir);
        let begun = self.clock.elapsed();
        // Sorting and encoding a large view takes seconds: not on a thread that serves matches.
        let saved = tokio::task::spawn_blocking(move || dir.save(&cut)).await;
        match saved {
            Ok(Ok(_)) => {
                self.metrics.written.increment(1);
                self.metrics.duration.record(self.clock.elapsed().saturating_sub(begun));
                true
            }
            Ok(Err(error)) => {
                self.metrics.failed.increment(1);
                warn!(replica = %key, %error, "checkpoint not written");
                false
            }
            Err(error) => {
                self.metrics.failed.increment(1);
                warn!(replica = %key, %error, "checkpoint not written");
                false
            }
        }
    }
}

/// Writes what is due until stopped. `every` may change meanwhile.
pub async fn keep(
    keeper: Arc<Keeper>,
    every: tokio::sync::watch::Receiver<Duration>,
    stop: CancellationToken,
) {
    loop {
        let period = *every.borrow();
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY.min(period)) => keeper.save_due(period).await,
        }
    }
}
