//! All replicas of this process: how they stand, how to ask something of them, and what they
//! applied.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use kvbridge_schemas::{
    Cursor, EngineKind, Envelope, Replica, ReplicaKey, SnapshotHeader, Tier, TierTrust, Trust,
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{Feeds, HashStanding, Signs};
use crate::{
    bus::LogLife,
    clock::Clock,
    jobs::Performed,
    recovery::{Tick, TrustReason},
    view::View,
};

/// How one replica stands: published by its driver after every step that changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// What may be believed.
    pub trust: TierTrust,
    /// Why it is no better.
    pub reason: &'static str,
    /// When trust or reason last changed, unix ms.
    pub since_ms: u64,
    /// Where the view stands.
    pub cursor: Cursor,
    /// When the cursor last moved or was proven.
    pub moved_at: Tick,
    /// Distinct blocks by tier.
    pub blocks: BTreeMap<Tier, u64>,
    /// Physical blocks on the device, to compare with the engine's pool.
    pub device_copies: u64,
    /// What came of computing the engine's hashes again.
    pub hashes: Option<HashStanding>,
    /// What was done of what was asked deliberately.
    pub performed: Performed,
}

impl ReplicaStatus {
    /// How a replica stands before its first step.
    pub fn starting() -> ReplicaStatus {
        ReplicaStatus {
            trust: TierTrust::default(),
            reason: TrustReason::Detached.as_str(),
            since_ms: Clock::unix_ms(),
            cursor: Cursor::default(),
            moved_at: Tick(0),
            blocks: BTreeMap::new(),
            device_copies: 0,
            hashes: None,
            performed: Performed::default(),
        }
    }
}

/// Asked of a driver. It answers between two inputs, so an answer is of one cursor.
pub enum Command {
    /// Return to a proven state.
    Resync,
    /// Give the view up: the process needs its memory.
    OverLimit,
    /// Learn it again, if it was given up.
    Release,
    /// A member of the engine started anew.
    Restarted,
    /// Whether other ranks of the instance deliver and this one never did.
    RankMissing(bool),
    /// Tell sinks the whole view.
    Tell,
    /// The whole view, as it stands now.
    Snapshot(oneshot::Sender<ViewCut>),
    /// The whole view with what it rests on: what a later process needs.
    Checkpoint(oneshot::Sender<ViewCut>),
    /// Read no more. What was read is in the view when this is answered; commands go on.
    Halt(oneshot::Sender<()>),
}

/// A view at one cursor.
pub struct ViewCut {
    /// What it is of.
    pub header: SnapshotHeader,
    /// The view.
    pub view: View,
}

impl ViewCut {
    /// The cut for others to believe. A checkpoint has the trust of a view whose life is proven,
    /// and that may be under way: what is believed now, of the same life, was true of the cut as
    /// well. `None` = nobody may believe it.
    pub fn as_believed(mut self, now: &ReplicaStatus) -> Option<ViewCut> {
        let trust = self.header.trust.min(now.trust.device);
        if trust == Trust::None || now.cursor.epoch != self.header.epoch {
            return None;
        }
        self.header.trust = trust;
        if let Some(state) = &mut self.header.state {
            state.host = state.host.min(now.trust.host);
        }
        Some(self)
    }
}

/// Something that readers of events are told.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A batch was applied.
    Applied(Arc<Envelope>),
    /// A replica's trust, its reason or its epoch changed.
    Standing(ReplicaKey, Arc<Replica>, ReplicaStatus),
    /// A replica is read no more.
    Removed(ReplicaKey, Arc<Replica>),
}

/// One replica, from outside its task.
#[derive(Clone)]
pub struct ReplicaHandle {
    /// Whose cache.
    pub replica: Arc<Replica>,
    /// How it stands.
    pub status: watch::Receiver<ReplicaStatus>,
    /// Asks its driver something.
    pub commands: mpsc::Sender<Command>,
    /// What is noted of it.
    pub signs: Arc<Signs>,
    /// Whose events are folded.
    pub engine: EngineKind,
    /// Where its engine is asked to empty its cache, if that is known.
    pub flush: Option<String>,
    /// This process publishes it.
    pub is_bridged: bool,
    /// Its life on a bus that names lives.
    pub life: Option<Arc<LogLife>>,
    /// Ends its task.
    pub stop: CancellationToken,
}

/// Why a replica cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Too many requests wait for its driver.
    #[error("too many requests wait for this replica")]
    Busy,
    /// Its task has ended.
    #[error("the replica's task has ended")]
    Stopped,
}

impl ReplicaHandle {
    /// Queues a command.
    pub fn ask(&self, command: Command) -> Result<(), AskError> {
        self.commands.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AskError::Busy,
            mpsc::error::TrySendError::Closed(_) => AskError::Stopped,
        })
    }

    /// The view as it stands.
    pub async fn cut(&self) -> Result<ViewCut, AskError> {
        let (answer, cut) = oneshot::channel();
        self.ask(Command::Snapshot(answer))?;
        cut.await.map_err(|_| AskError::Stopped)
    }

    /// The view as it stands, with what a later process needs to prove it.
    pub async fn checkpoint(&self) -> Result<ViewCut, AskError> {
        let (answer, cut) = oneshot::channel();
        self.ask(Command::Checkpoint(answer))?;
        cut.await.map_err(|_| AskError::Stopped)
    }

    /// Stops the reading. Waits for a place among the commands; a task that has ended reads no
    /// more.
    pub async fn halt(&self) {
        let (answer, halted) = oneshot::channel();
        if self.commands.send(Command::Halt(answer)).await.is_ok() {
            // Gone instead of halted is as good.
            drop(halted.await);
        }
    }
}

/// All replicas. They come and go with the configuration.
pub struct Fleet {
    replicas: RwLock<BTreeMap<ReplicaKey, ReplicaHandle>>,
    events: broadcast::Sender<FleetEvent>,
    feeds: Arc<Feeds>,
}

impl Fleet {
    /// A fleet without replicas. A reader that falls more than `events_queue` behind is told how
    /// many it missed; drivers never wait for readers.
    pub fn new(events_queue: usize) -> Fleet {
        let events = broadcast::channel(events_queue.max(1)).0;
        Fleet { replicas: RwLock::default(), events, feeds: Arc::default() }
    }

    /// Adds a replica.
    pub fn add(&self, key: ReplicaKey, handle: ReplicaHandle) {
        // Single inserts and removals: nothing in them can panic half-way.
        self.replicas.write().unwrap_or_else(PoisonError::into_inner).insert(key, handle);
    }

    /// Forgets a replica.
    pub fn remove(&self, key: &ReplicaKey) -> Option<ReplicaHandle> {
        self.replicas.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// The replica of that key.
    pub fn replica(&self, key: &str) -> Option<(ReplicaKey, ReplicaHandle)> {
        self.replicas().find(|(known, _)| known.as_str() == key)
    }

    /// The replica of that name.
    pub fn get(&self, key: &ReplicaKey) -> Option<ReplicaHandle> {
        self.replicas.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Whether it is there.
    pub fn has(&self, key: &ReplicaKey) -> bool {
        self.replicas.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// All replicas, by key, as they are now.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaKey, ReplicaHandle)> + use<> {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner).clone();
        replicas.into_iter()
    }

    /// What is applied from now on.
    pub fn events(&self) -> broadcast::Receiver<FleetEvent> {
        self.events.subscribe()
    }

    /// What drivers tell sinks.
    pub fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }

    /// Where drivers say what they applied.
    pub(crate) fn events_sender(&self) -> broadcast::Sender<FleetEvent> {
        self.events.clone()
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_adapters_api::Removal;
    use kvbridge_schemas::{Epoch, Projection, Seq};

    use super::*;
    use crate::view::ViewSettings;

    /// The trust of a cut that is exact once its life is proven, to whoever asks now.
    fn believed(trust: Trust, epoch: u64) -> Option<Trust> {
        let header = SnapshotHeader {
            replica: Replica { model: "m".into(), instance: "h:1".into(), rank: 0 },
            epoch: Epoch(1),
            resume_seq: Seq(5),
            bus_seq: None,
            last_digest: None,
            trust: Trust::Exact,
            block_count: 0,
            state: None,
        };
        let view = View::new(ViewSettings::of(Projection::Last8, Removal::PerCopy, 8));
        let now = ReplicaStatus {
            trust: TierTrust { device: trust, host: Trust::None },
            cursor: Cursor { epoch: Epoch(epoch), next_seq: Seq(5) },
            ..ReplicaStatus::starting()
        };
        ViewCut { header, view }.as_believed(&now).map(|cut| cut.header.trust)
    }

    #[test]
    fn a_cut_is_believed_no_more_than_its_bridge_believes_now() {
        assert_eq!(believed(Trust::Exact, 1), Some(Trust::Exact));
        assert_eq!(believed(Trust::LowerBound, 1), Some(Trust::LowerBound));
        assert_eq!(believed(Trust::None, 1), None);
        assert_eq!(believed(Trust::Exact, 2), None, "another life");
    }
}
