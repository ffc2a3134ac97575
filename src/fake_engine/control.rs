//! What can be made to go wrong, and the messages between the HTTP side and a rank's task.

use kvbridge_adapters_zmq::ServeError;
use tokio::sync::oneshot;

use super::{
    cache::Resident,
    engine::{Counts, Finished, Request},
};

/// A fault on demand: the body of `POST /control`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// A new process at the same ports: connections close, seq from 0, empty cache and journal.
    Restart,
    /// The same behind connections that stay open.
    SilentRestart,
    /// The next batches are not published; the journal has them.
    Drop {
        /// How many.
        count: u64,
    },
    /// So many steps at once.
    Burst {
        /// How many.
        count: u64,
    },
    /// Neither steps nor messages for a while.
    Stall {
        /// How long.
        ms: u64,
    },
    /// The next batches are missing in replay answers; with `drop` they are nowhere.
    Hole {
        /// How many.
        count: u64,
    },
    /// The next batches fail to encode: their seqs are used up.
    Burn {
        /// How many.
        count: u64,
    },
    /// The next batches have a body that is no batch.
    Poison {
        /// How many.
        count: u64,
    },
    /// The stores of the next steps are left out, as those above the native stream's bound are: no
    /// seq is missing, and a step with nothing else to say has no batch.
    LeaveOut {
        /// How many.
        count: u64,
    },
    /// The next batch holds one more event, a store that cannot be read.
    UndecodableEvent,
    /// The next batch holds one more event, of an unknown type.
    UnknownTag,
    /// Empties the device cache now and says so at once, in a step of its own.
    Clear,
    /// Batches carry the same time from now on.
    FreezeClock {
        /// Whether.
        on: bool,
    },
    /// Replay answers have no end marker.
    EndLost {
        /// Whether.
        on: bool,
    },
    /// Replay answers are cut after so many replies, end marker included, as a full pipe to a slow
    /// reader cuts them (1000 to 2000 before 0.33); null = whole again.
    SlowReader {
        /// How many.
        count: Option<usize>,
    },
    /// So many requests for a snapshot are refused: another one is under way.
    SnapshotBusy {
        /// How many.
        count: u64,
    },
    /// So many snapshots lack their last record.
    SnapshotShort {
        /// How many.
        count: u64,
    },
    /// So many snapshots hold a chunk that is none.
    SnapshotGarbled {
        /// How many.
        count: u64,
    },
    /// After a quiet answer the next ones are empty at once, and no request wakes the server: of
    /// an engine whose events are taken.
    Latch {
        /// Whether.
        on: bool,
    },
    /// A tensor-parallel member restarts; the leader and its stream go on.
    RestartTpRank {
        /// Which member.
        tp_rank: usize,
    },
}

/// A rank's cache at a seq, taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Seq of the next batch: the cache reflects all batches below it.
    pub next_seq: u64,
    /// Lives since the start of the program, from 0.
    pub life: u64,
    /// Something happened that leaves only with the next step.
    pub pending: bool,
    /// What is resident.
    pub resident: Vec<Resident>,
}

/// What `/metrics` shows of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sums of this life.
    pub counts: Counts,
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Device blocks in use or cached.
    pub used_blocks: usize,
    /// Unix milliseconds at which each tensor-parallel member started; the first is the leader.
    pub started_ms: Vec<u64>,
}

/// What a rank's task is asked.
#[derive(Debug)]
pub(super) enum Ask {
    Complete(Request, oneshot::Sender<Finished>),
    Reset {
        put_back_running: bool,
        done: oneshot::Sender<bool>,
    },
    Truth(oneshot::Sender<Cut>),
    /// How many requests it was given so far.
    Requests(oneshot::Sender<u64>),
    /// Takes the events that wait.
    Drain(oneshot::Sender<Vec<String>>),
    Stats(oneshot::Sender<Stats>),
    Fault(Fault, oneshot::Sender<Result<(), String>>),
}

/// Why a fault could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum FaultError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("blocks are in use")]
    InUse,
    #[error("there is no such member")]
    NoMember,
    #[error("it is the server's, not a rank's")]
    NoRanks,
    #[error("there is no snapshot socket")]
    NoSnapshots,
    #[error("it leaves nothing out")]
    LeavesNothingOut,
}
