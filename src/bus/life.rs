//! What a driver and its bus tell each other about the life that a log is of: the driver knows its
//! batches, the bus its name.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvbridge_schemas::{BusSeq, Cursor, Digest, Epoch, Replica, Seq, Status};
use tokio::sync::Notify;

use crate::shared_log::{Name, Naming, lives::Own};

/// Heard this long after a record was read, a life is not over: no buffer between an engine and us
/// holds batches for so long under traffic. Shorter: a bridge that was frozen takes what waited in
/// its sockets for news. Longer: the log stays silent where a wrong name was given.
const HEARD_LONG_MS: u64 = 10_000;

/// One replica's.
pub struct LogLife {
    replica: Replica,
    content: String,
    /// No name at or below it: what this process found on its disk.
    floor: Epoch,
    known: Mutex<Known>,
    /// The driver may want to know.
    told: Notify,
}

struct Known {
    naming: Naming,
    away: bool,
    /// Batches wait for a name.
    waits: bool,
    /// Where the newest reset ends that this bridge wrote.
    reset: Option<Cursor>,
}

impl LogLife {
    /// Of a replica whose view was restored with these batches, or of none.
    pub fn new(replica: Replica, content: String, restored: Cursor) -> LogLife {
        let naming = Naming::new(restored, HEARD_LONG_MS);
        LogLife {
            replica,
            content,
            floor: restored.epoch,
            known: Mutex::new(Known { naming, away: true, waits: false, reset: None }),
            told: Notify::new(),
        }
    }

    /// Batches of the restored view.
    pub fn restore(&self, digests: impl IntoIterator<Item = (Seq, Digest)>) {
        self.known().naming.restore(digests);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Plain writes: nothing in them can panic half-way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // === the driver's side ===

    /// Does something with what is known, and tells what waits for a name then.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Naming) -> T) -> T {
        act(&mut self.known().naming)
    }

    /// Returns when a name may have changed.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    /// Whether the bus cannot be reached, so that waiting for it is all there is to do.
    pub(super) fn is_away(&self) -> bool {
        self.known().away
    }

    /// Whether batches wait for a name.
    pub(super) fn set_waits(&self, waits: bool) {
        self.known().waits = waits;
    }

    /// A reset goes to the log, and ends there. One of what is missing below is no newer.
    pub(super) fn set_reset(&self, end: Cursor) {
        let mut known = self.known();
        known.reset = known.reset.max(Some(end));
    }

    // === the bus's side ===

    /// Where the newest reset ends that this bridge wrote.
    pub(super) fn reset(&self) -> Option<Cursor> {
        self.known().reset
    }

    pub(super) fn waits(&self) -> bool {
        self.known().waits
    }

    /// Whose log.
    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Everything beside the engine's bytes that the content of envelopes depends on.
    pub(super) fn content(&self) -> &str {
        &self.content
    }

    pub(super) fn floor(&self) -> Epoch {
        self.floor
    }

    pub(super) fn set_away(&self, away: bool) {
        self.known().away = away;
        self.told.notify_one();
    }

    /// What to compare with a registry whose newest name is this, and what the life is called now.
    pub(super) fn own(&self, newest: Epoch, now_ms: u64) -> (Epoch, Own, Name) {
        self.known().naming.own(newest, now_ms)
    }

    /// Says what the life is called; nothing if the driver has gone on to another one.
    pub(crate) fn call(&self, local: Epoch, name: Name) {
        if self.known().naming.call(local, name) {
            self.told.notify_one();
        }
    }

    /// The bus has everything below this.
    pub(super) fn acked(&self, cursor: Cursor, bus_seq: BusSeq) {
        self.known().naming.acked(cursor, bus_seq);
    }

    /// What this bridge says of the replica, once its life has a name.
    pub fn status(&self, bridge: &str, at: u64) -> Option<Status> {
        self.known().naming.status(&self.replica, bridge, at)
    }

    /// What a life of recovery's is called on the log.
    pub fn epoch_of(&self, local: Epoch) -> Option<Epoch> {
        self.known().naming.epoch_of(local)
    }

    /// What the life is or was called on the log, and its newest batch that was applied.
    pub fn newest(&self) -> Option<(Epoch, (Seq, Digest))> {
        self.known().naming.newest()
    }

    /// What the life is called now.
    pub fn name(&self) -> Name {
        self.known().naming.name().clone()
    }
}
