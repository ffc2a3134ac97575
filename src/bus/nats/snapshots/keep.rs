//! What a bridge does for readers that come late: it stores its views now and then, and when asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use futures::{StreamExt, stream::SelectAll};
use kvbridge_schemas::{BusSeq, Cursor, Epoch, ReplicaKey, Seq, Trust, subject};
use tokio::time::timeout;
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
    clock::Clock,
    config::{
        NatsConfig,
        limits::{
            BUS_CUT_DEADLINE, BUS_SNAPSHOT_AGAIN, BUS_SNAPSHOT_GRACE, BUS_SNAPSHOT_PUBLISHED,
        },
    },
    pipeline::{Fleet, ReplicaHandle, ViewCut},
    recovery::Tick,
    shared_log::Pointer,
    telemetry::BusSnapshotMetrics,
};

/// How often replicas are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often objects that nobody is sent to are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The name under which bridges share requests: each is answered once.
const QUEUE_GROUP: &str = "kvbridge";

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
#[derive(Clone)]
struct Kept {
    at: Tick,
    pointer: Pointer,
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
    let mut kept = BTreeMap::new();
    loop {
        let session = sessions.borrow_and_update().clone();
        tokio::select! {
            () = stop.cancelled() => return,
            () = keep.session(session, &mut kept) => (),
            changed = sessions.changed() => if changed.is_err() { return },
        }
    }
}

impl Keep {
    async fn session(&self, session: Option<Session>, kept: &mut BTreeMap<ReplicaKey, Kept>) {
        let Some(session) = session else { return std::future::pending().await };
        let mut store = None;
        let mut asked = BTreeSet::new();
        let mut requests = SelectAll::new();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut swept_at = self.clock.now();
        loop {
            tokio::select! {
                () = session.lost.cancelled() => return,
                Some(request) = requests.next() => self.answer(&session, &store, request, kept).await,
                _ = looks.tick() => {
                    for key in self.keys().filter(|key| !asked.contains(key)).collect::<Vec<_>>() {
                        let group = QUEUE_GROUP.to_owned();
                        let subscribed =
                            session.client.queue_subscribe(subject::snapshot(&key), group).await;
                        if let Ok(subscribed) = subscribed {
                            asked.insert(key);
                            requests.push(subscribed);
                        }
                    }
                    if store.is_none() {
                        match Snapshots::ensure(&session.context, &self.plan, &self.config).await {
                            Ok(opened) => store = Some(opened),
                            Err(error) => debug!(%error, "buckets of snapshots"),
                        }
                    }
                    let Some(store) = &store else { continue };
                    self.store_due(&session, store, kept).await;
                    if self.clock.now() >= swept_at.plus(ms(SWEEP_EVERY)) {
                        swept_at = self.clock.now();
                        let keys: Vec<ReplicaKey> = self.keys().collect();
                        match store.sweep(&keys, BUS_SNAPSHOT_GRACE).await {
                            Ok(count) => self.metrics.deleted.increment(count),
                            Err(error) => debug!(%error, "old snapshots not deleted"),
                        }
                    }
                }
            }
        }
    }

    /// The replicas that this process publishes.
    fn bridged(&self) -> impl Iterator<Item = (ReplicaKey, ReplicaHandle)> {
        self.fleet.replicas().filter(|(_, handle)| handle.is_bridged)
    }

    fn keys(&self) -> impl Iterator<Item = ReplicaKey> {
        self.bridged().map(|(key, _)| key)
    }

    async fn store_due(
        &self,
        session: &Session,
        store: &Snapshots,
        kept: &mut BTreeMap<ReplicaKey, Kept>,
    ) {
        let replicas: Vec<_> = self.bridged().collect();
        kept.retain(|key, _| replicas.iter().any(|(known, _)| known == key));
        for (key, handle) in replicas {
            if self.is_due(kept.get(&key), &handle) {
                self.store_and_note((session, store), (&key, &handle), kept, false).await;
            }
        }
    }

    fn is_due(&self, kept: Option<&Kept>, handle: &ReplicaHandle) -> bool {
        let status = handle.status.borrow();
        if status.trust.device == Trust::None || status.cursor.next_seq == Seq(0) {
            return false;
        }
        let Some(Kept { at, pointer }) = kept else { return true };
        let age = self.clock.now().0.saturating_sub(at.0);
        let moved = status.cursor.next_seq.0.saturating_sub(pointer.resume_seq.0);
        let every = ms(self.config.snapshots.interval);
        // Its newest message must not age out before what leads past it is stored.
        let aging = ms(self.config.streams.retention) / 4;
        bus_epoch(handle, status.cursor.epoch) != Some(pointer.epoch)
            || status.trust.device > pointer.trust
            || (moved > 0 && age >= every)
            || moved >= self.config.snapshots.batch_count
            || age >= aging
    }

    async fn store_and_note(
        &self,
        (session, store): (&Session, &Snapshots),
        (key, handle): (&ReplicaKey, &ReplicaHandle),
        kept: &mut BTreeMap<ReplicaKey, Kept>,
        asked: bool,
    ) -> Option<Pointer> {
        match self.store_one(session, store, (key, handle), asked).await {
            Ok(pointer) => {
                self.metrics.stored.increment(1);
                kept.insert(key.clone(), Kept { at: self.clock.now(), pointer: pointer.clone() });
                Some(pointer)
            }
            Err(NotKept::Server(error)) => {
                self.metrics.failed.increment(1);
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
        session: &Session,
        store: &Snapshots,
        (key, handle): (&ReplicaKey, &ReplicaHandle),
        asked: bool,
    ) -> Result<Pointer, NotKept> {
        let name = self.plan.name_of(&handle.replica);
        let stream = session.context.get_stream(&name).await;
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
            object: Pointer::object_name(key, epoch, resume_seq, &self.bridge),
        };
        // Whoever asks may have been where readers are sent, and it did not help.
        let there = there.filter(|there| !asked || there.object == pointer.object);
        self.upload(store, cut, &pointer, there).await?;
        let led = store.advance(key, &pointer).await?;
        Ok(if asked { pointer } else { led })
    }

    /// Stores the object, if readers are not sent to the same or a better one.
    async fn upload(
        &self,
        store: &Snapshots,
        cut: ViewCut,
        pointer: &Pointer,
        there: Option<Pointer>,
    ) -> Result<(), NotKept> {
        if there.is_some_and(|there| there.object == pointer.object || !pointer.supersedes(&there))
        {
            return Ok(());
        }
        Ok(store.put(&pointer.object, &mut bytes_of(cut)).await?)
    }

    /// Whether the log holds everything below that seq.
    async fn published(
        &self,
        stream: &Stream,
        key: &ReplicaKey,
        epoch: Epoch,
        resume_seq: Seq,
    ) -> bool {
        let until = self.clock.now().plus(ms(BUS_SNAPSHOT_PUBLISHED));
        loop {
            let newest = newest_end(stream, key).await.ok().flatten();
            if newest.is_some_and(|end| end.epoch == epoch && end.next_seq >= resume_seq) {
                return true;
            }
            if self.clock.now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Answers who asks for a fresh one: with where it is, or with a word why there is none.
    async fn answer(
        &self,
        session: &Session,
        store: &Option<Snapshots>,
        request: async_nats::Message,
        kept: &mut BTreeMap<ReplicaKey, Kept>,
    ) {
        let Some(reply) = request.reply else { return };
        let replica = subject::parse_snapshot(&request.subject).ok();
        let found = replica.and_then(|replica| self.fleet.replica(replica.key().as_str()));
        let ours = found.filter(|(_, handle)| handle.is_bridged);
        let text = match (ours, store) {
            (Some((key, handle)), Some(store)) => {
                self.metrics.asked.increment(1);
                let own = format!("/{}", self.bridge);
                let recent = kept
                    .get(&key)
                    .filter(|kept| self.is_recent(kept) && kept.pointer.object.ends_with(&own));
                let pointer = recent.map(|kept| kept.pointer.clone());
                // Readers that start together ask together.
                match pointer {
                    Some(pointer) if self.leads_on(session, &handle, &pointer).await => {
                        Some(pointer)
                    }
                    _ => self.store_and_note((session, store), (&key, &handle), kept, true).await,
                }
            }
            _ => None,
        };
        let text = text.map_or_else(|| "refused".to_owned(), |pointer| pointer.to_string());
        // Whoever asked has a deadline of its own.
        drop(session.client.publish(reply, text.into()).await);
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
        self.clock.now() < kept.at.plus(ms(BUS_SNAPSHOT_AGAIN))
    }

    /// Whether everything behind a stored snapshot is still on the stream.
    async fn leads_on(&self, session: &Session, of: &ReplicaHandle, pointer: &Pointer) -> bool {
        let stream = session.context.get_stream(&self.plan.name_of(&of.replica)).await;
        stream.is_ok_and(|stream| pointer.leads_on(ends(stream.cached_info()), None))
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
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
