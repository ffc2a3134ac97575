//! What a bridge does for readers that come late: it stores its views now and then, and when asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use kvbridge_schemas::{BusSeq, Cursor, Epoch, ReplicaKey, Seq, Trust, subject};
use tokio::{sync::Mutex as AsyncMutex, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Snapshots, StoreFault, bytes_of};
use crate::{
    bus::nats::{
        connect::reason,
        reader::{created, end_of, ends},
        session::{Session, Sessions},
        streams::Plan,
    },
    clock::{Clock, millis},
    config::{
        NatsConfig,
        limits::{BUS_CUT_DEADLINE, BUS_SNAPSHOT_AGAIN, BUS_SNAPSHOT_PUBLISHED},
    },
    pipeline::{Fleet, ReplicaHandle},
    recovery::Tick,
    shared_log::Pointer,
    telemetry::BusSnapshotMetrics,
};

/// How often replicas are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often objects that nobody is sent to are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What storing needs.
pub(in crate::bus::nats) struct Keep {
    pub(in crate::bus::nats) config: NatsConfig,
    pub(in crate::bus::nats) plan: Plan,
    pub(in crate::bus::nats) bridge: Arc<str>,
    pub(in crate::bus::nats) sessions: Sessions,
    pub(in crate::bus::nats) fleet: Arc<Fleet>,
    pub(in crate::bus::nats) clock: Clock,
    pub(in crate::bus::nats) metrics: BusSnapshotMetrics,
}

/// What was stored last of a replica.
pub(super) struct Kept {
    at: Tick,
    pub(super) pointer: Pointer,
}

/// Of each replica, behind a lock that is held while one is stored: two that store the same cut
/// would write one object at a time.
#[derive(Default)]
struct AllKept(Mutex<BTreeMap<ReplicaKey, Arc<AsyncMutex<Option<Kept>>>>>);

impl AllKept {
    fn of(&self, key: &ReplicaKey) -> Arc<AsyncMutex<Option<Kept>>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key.clone()).or_default())
    }

    fn retain(&self, known: &BTreeSet<ReplicaKey>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|key, _| known.contains(key));
    }
}

/// One connection, with what is known beyond it.
pub(super) struct Round<'a> {
    pub(super) keep: &'a Keep,
    pub(super) session: &'a Session,
    /// Once the buckets are there.
    store: OnceLock<Snapshots>,
    kept: &'a AllKept,
}

/// Why a view is stored.
#[derive(Clone, Copy, Debug)]
enum Occasion {
    /// It is time.
    Due,
    /// A reader asks, and says where the newest reset ends that it met.
    Asked(Option<Cursor>),
}

/// Why nothing was stored. The words are labels.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    /// Nobody may believe the view.
    #[error("none")]
    Untrusted,
    /// Its driver is busy or gone.
    #[error("busy")]
    Busy,
    /// The log does not hold all that the view does, yet.
    #[error("unpublished")]
    Unpublished,
    /// The log held more than the view does when its place was noted.
    #[error("behind")]
    Behind,
    /// The server.
    #[error("{0}")]
    Server(String),
}

impl From<StoreFault> for NotKept {
    fn from(fault: StoreFault) -> NotKept {
        NotKept::Server(fault.to_string())
    }
}

/// Stores snapshots until stopped.
pub(in crate::bus::nats) async fn keep(keep: Keep, stop: CancellationToken) {
    let mut sessions = keep.sessions.clone();
    let kept = AllKept::default();
    loop {
        let session = sessions.borrow_and_update().clone();
        tokio::select! {
            () = stop.cancelled() => return,
            () = keep.session(session, &kept) => (),
            changed = sessions.changed() => if changed.is_err() { return },
        }
    }
}

impl Keep {
    async fn session(&self, session: Option<Session>, kept: &AllKept) {
        let Some(session) = session else { return std::future::pending().await };
        let round = Round { keep: self, session: &session, store: OnceLock::new(), kept };
        tokio::select! {
            () = session.lost.cancelled() => (),
            () = round.store() => (),
            () = round.serve() => (),
        }
    }

    /// The replicas that this process publishes.
    pub(super) fn bridged(&self) -> impl Iterator<Item = (ReplicaKey, ReplicaHandle)> {
        self.fleet.replicas().filter(|(_, handle)| handle.is_bridged)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = ReplicaKey> {
        self.bridged().map(|(key, _)| key)
    }

    fn is_due(&self, kept: Option<&Kept>, handle: &ReplicaHandle) -> bool {
        let status = handle.status.borrow();
        if status.trust.device == Trust::None || status.cursor.next_seq == Seq(0) {
            return false;
        }
        let Some(Kept { at, pointer }) = kept else { return true };
        let age = self.clock.now().0.saturating_sub(at.0);
        let moved = status.cursor.next_seq.0.saturating_sub(pointer.resume_seq.0);
        let every = millis(self.config.snapshots.interval);
        // Who reads on from a view before a reset keeps nothing of it.
        let reset = handle.life.as_ref().and_then(|life| life.reset());
        // Its newest message must not age out before what leads past it is stored.
        let aging = millis(self.config.streams.retention) / 4;
        bus_epoch(handle, status.cursor.epoch) != Some(pointer.epoch)
            || status.trust.device > pointer.trust
            || (moved > 0 && age >= every)
            || moved >= self.config.snapshots.batch_count
            || age >= aging
            || !pointer.is_behind(reset)
    }
}

impl Round<'_> {
    /// Stores what is due, for ever.
    async fn store(&self) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut sweep_at = self.keep.clock.now();
        loop {
            looks.tick().await;
            if self.store.get().is_none() {
                let Session { context, .. } = self.session;
                match Snapshots::ensure(context, &self.keep.plan, &self.keep.config).await {
                    Ok(opened) => drop(self.store.set(opened)),
                    Err(error) => debug!(%error, "buckets of snapshots"),
                }
            }
            let Some(store) = self.store.get() else { continue };
            self.store_due().await;
            if self.keep.clock.now() >= sweep_at {
                sweep_at = self.keep.clock.now().plus(millis(SWEEP_EVERY));
                self.sweep(store).await;
            }
        }
    }

    async fn store_due(&self) {
        let replicas: Vec<_> = self.keep.bridged().collect();
        self.kept.retain(&replicas.iter().map(|(key, _)| key.clone()).collect());
        for (key, handle) in replicas {
            let kept = self.kept.of(&key);
            // Whoever holds it is storing it for somebody who asked.
            let Ok(mut kept) = kept.try_lock() else { continue };
            if self.keep.is_due(kept.as_ref(), &handle) {
                self.store_and_note((&key, &handle), Occasion::Due, &mut kept).await;
            }
        }
    }

    /// A view for whoever asks, stored now if the newest one is not recent enough; `wish` is where
    /// the newest reset ends that the asker met.
    pub(super) async fn fresh(
        &self,
        (key, handle): (&ReplicaKey, &ReplicaHandle),
        wish: Option<Cursor>,
    ) -> Option<Pointer> {
        let kept = self.kept.of(key);
        let mut kept = kept.lock().await;
        // Readers that start together ask together. Where readers are sent by others is no answer:
        // whoever asks may have been there.
        let own = format!("/{}", self.keep.bridge);
        let recent = kept.as_ref().filter(|kept| self.keep.is_recent(kept));
        let recent = recent.map(|kept| kept.pointer.clone());
        let recent = recent.filter(|it| it.is_behind(wish) && it.object.ends_with(&own));
        match recent {
            Some(pointer) if self.leads_on(handle, &pointer).await => Some(pointer),
            _ => self.store_and_note((key, handle), Occasion::Asked(wish), &mut kept).await,
        }
    }

    async fn store_and_note(
        &self,
        (key, handle): (&ReplicaKey, &ReplicaHandle),
        occasion: Occasion,
        kept: &mut Option<Kept>,
    ) -> Option<Pointer> {
        match self.store_one((key, handle), occasion).await {
            Ok(pointer) => {
                self.keep.metrics.stored.increment(1);
                handle.signs.snapshot_worked();
                *kept = Some(Kept { at: self.keep.clock.now(), pointer: pointer.clone() });
                Some(pointer)
            }
            Err(NotKept::Server(error)) => {
                self.keep.metrics.failed.increment(1);
                handle.signs.snapshot_failed();
                warn!(replica = %key, error, "snapshot not stored on the bus");
                None
            }
            Err(error) => {
                debug!(replica = %key, reason = %error, "snapshot not stored on the bus");
                None
            }
        }
    }

    async fn store_one(
        &self,
        (key, handle): (&ReplicaKey, &ReplicaHandle),
        occasion: Occasion,
    ) -> Result<Pointer, NotKept> {
        let store = self.store.get().ok_or(NotKept::Busy)?;
        let name = self.keep.plan.name_of(&handle.replica);
        let stream = self.session.context.get_stream(&name).await;
        let stream = stream.map_err(|error| NotKept::Server(reason(&error)))?;
        // What this bridge stored by now was applied before the cut is made, so whatever follows
        // the cut is stored behind this place; of a twin's messages that must be looked at.
        let info = stream.cached_info();
        let place = BusSeq(info.state.last_sequence);
        let theirs = newest_end(&stream, key).await?;
        let cut = timeout(BUS_CUT_DEADLINE, handle.checkpoint()).await;
        let cut = cut.map_err(|_| NotKept::Busy)?.map_err(|_| NotKept::Busy)?;
        let now = handle.status.borrow().clone();
        let mut cut = cut.as_believed(&now).ok_or(NotKept::Untrusted)?;
        let epoch = bus_epoch(handle, cut.header.epoch).ok_or(NotKept::Unpublished)?;
        let resume_seq = cut.header.resume_seq;
        // Readers know the life by its name on the log.
        cut.header.epoch = epoch;
        if cut.header.state.is_none() || resume_seq == Seq(0) {
            return Err(NotKept::Untrusted);
        }
        if is_ahead(theirs, Cursor { epoch, next_seq: resume_seq }) {
            return Err(NotKept::Behind);
        }
        let there = store.pointer(key).await?.map(|(there, _)| there);
        // What was published before may have aged out since.
        let known = there.as_ref().is_some_and(|t| t.epoch == epoch && t.resume_seq >= resume_seq);
        if !known && !self.published(&stream, key, epoch, resume_seq).await {
            return Err(NotKept::Unpublished);
        }
        cut.header.bus_seq = Some(place);
        let pointer = Pointer {
            epoch,
            trust: cut.header.trust,
            resume_seq,
            bus_seq: place,
            created: created(info),
            engine: handle.engine.clone(),
            object: Pointer::object_name(key, epoch, resume_seq, &self.keep.bridge),
        };
        let (asked, wish) = match occasion {
            Occasion::Due => (false, None),
            Occasion::Asked(wish) => (true, wish),
        };
        let reset = handle.life.as_ref().and_then(|life| life.reset()).max(wish);
        // Whoever asks may have been where readers are sent, and it did not help.
        let stays = |there: Pointer| {
            there.object == pointer.object || (!asked && !pointer.supersedes(&there, reset))
        };
        if !there.is_some_and(stays) {
            store.put(&pointer.object, &mut bytes_of(cut)).await?;
        }
        let led = store.advance(key, &pointer, reset).await?;
        Ok(if asked { pointer } else { led })
    }

    /// Whether the log holds everything below that seq.
    async fn published(
        &self,
        stream: &Stream,
        key: &ReplicaKey,
        epoch: Epoch,
        resume_seq: Seq,
    ) -> bool {
        let until = self.keep.clock.now().plus(millis(BUS_SNAPSHOT_PUBLISHED));
        loop {
            let newest = newest_end(stream, key).await.ok().flatten();
            if newest.is_some_and(|end| end.epoch == epoch && end.next_seq >= resume_seq) {
                return true;
            }
            if self.keep.clock.now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether everything behind a stored snapshot is still on the stream.
    async fn leads_on(&self, of: &ReplicaHandle, pointer: &Pointer) -> bool {
        let name = self.keep.plan.name_of(&of.replica);
        let stream = self.session.context.get_stream(&name).await;
        stream.is_ok_and(|stream| pointer.leads_on(ends(stream.cached_info()), None))
    }
}

/// The end of the newest message of a replica.
async fn newest_end(stream: &Stream, key: &ReplicaKey) -> Result<Option<Cursor>, NotKept> {
    match stream.direct_get_last_for_subject(subject::hint(key)).await {
        Ok(message) => Ok(end_of(&message.payload)),
        Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
        Err(error) => Err(NotKept::Server(reason(&error))),
    }
}

/// Whether a log that ended there has what a cut lacks: a twin is ahead, and readers who go on
/// behind the place that was noted would never see it.
fn is_ahead(log: Option<Cursor>, cut: Cursor) -> bool {
    log.is_some_and(|log| log > cut)
}

/// What a life of recovery's is called on the log.
fn bus_epoch(handle: &ReplicaHandle, local: Epoch) -> Option<Epoch> {
    handle.life.as_ref().map_or(Some(local), |life| life.epoch_of(local))
}

impl Keep {
    fn is_recent(&self, kept: &Kept) -> bool {
        self.clock.now() < kept.at.plus(millis(BUS_SNAPSHOT_AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_that_a_twin_is_ahead_of_has_no_place() {
        let at = |epoch, next_seq| Cursor { epoch: Epoch(epoch), next_seq: Seq(next_seq) };
        assert!(!is_ahead(None, at(2, 5)));
        assert!(!is_ahead(Some(at(2, 5)), at(2, 5)));
        assert!(!is_ahead(Some(at(1, 900)), at(2, 5)));
        assert!(is_ahead(Some(at(2, 6)), at(2, 5)));
        assert!(is_ahead(Some(at(3, 1)), at(2, 5)));
    }
}
