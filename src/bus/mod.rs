//! SHELL. Where envelopes travel: a log that readers elsewhere can follow.
//!
//! - [`Embedded`]: this process only; readers that are not there miss nothing.
//! - [`NatsBus`]: JetStream; kept for a while, readable from anywhere.
//! - [`ZmqBus`]: ZeroMQ sockets and a journal of this bridge; readable from anywhere, no broker.
//!
//! What is written is contiguous by construction ([`Lane`](crate::shared_log::Lane)): a seq that
//! this bridge could not deliver is covered by a reset, so a reader never waits for what will not
//! come.
//!
//! A reader of the log is a [`Source`] like any engine, so that the same recovery guards this hop
//! too. Which replicas there are to read is [`Found`] on the bus itself.

mod embedded;
mod life;
mod log;
pub mod nats;
mod spool;
mod vouch;
pub mod zmq;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use kvbridge_adapters_api::{Batch, Removal, Source};
use kvbridge_schemas::{BusSeq, Cursor, EngineKind, Envelope, Replica, ReplicaKey, Seq, Trust};
use tokio::sync::{mpsc, oneshot};

use self::nats::BusStartError;
use crate::{
    clock::Clock,
    config::SpoolFull,
    pipeline::{Fleet, Signs, Tasks},
    shared_log::{Grant, LogTail, Outgoing},
};

pub use crate::shared_log::Name;
pub use embedded::Embedded;
pub use life::LogLife;
pub use log::LogWriter;
pub use nats::NatsBus;
pub use vouch::VouchWatch;
pub use zmq::ZmqBus;

/// A bus that this process writes to.
pub trait Bus: Send + Sync {
    /// Its kind, as the configuration says it.
    fn kind(&self) -> &'static str;
    /// How it stands.
    fn standing(&self) -> Standing;
    /// Opens the log of one replica. One writer for each replica: order is kept per writer.
    fn writer(&self, key: &ReplicaKey) -> Option<Box<dyn Writer>>;
    /// Makes ready for a replica's log; nothing if that is done already.
    fn prepare(&self, _replica: &Replica, _tasks: &mut Tasks) -> Result<(), BusStartError> {
        Ok(())
    }
    /// For a bus that is kept beyond this process: the bridge's name in the ids of resets, and what
    /// happens when the spool is full.
    fn keeps(&self) -> Option<(Arc<str>, SpoolFull)> {
        None
    }
    /// For a bus that names lives: begins to look after a replica, whose view stands here. Called
    /// before its writer is opened.
    fn life(&self, _replica: &Replica, _content: String, _at: Cursor) -> Option<Arc<LogLife>> {
        None
    }
    /// For a bus that names lives: the log of a replica as a second journal of its engine.
    fn past(&self, _replica: &Replica, _clock: Clock, _tasks: &mut Tasks) -> Option<Box<dyn Past>> {
        None
    }
    /// Looks after a replica no more.
    fn forget(&self, _replica: &Replica) {}
    /// A replica has no source here any more: whoever publishes it as well is told of as new.
    fn find_anew(&self, _replica: &Replica) {}
    /// Where it can be reached, for people.
    fn place(&self) -> Option<String> {
        None
    }
    /// Where the log of a replica ends that an earlier process of this bridge wrote.
    fn tail(&self, _key: &ReplicaKey) -> Option<LogTail> {
        None
    }
    /// Begins to read: which replicas there are, and their logs. For a process that reads a bus.
    fn follow(&self, _found: mpsc::Sender<Found>, _clock: Clock, _tasks: &mut Tasks) {}
    /// One replica's log, to be read, on a bus that is followed. What happens to the log is noted.
    fn source(
        &self,
        _replica: &Replica,
        _removal: Removal,
        _signs: &Arc<Signs>,
    ) -> Option<Box<dyn Source>> {
        None
    }
    /// For a bus that bridges share: the right to drain an engine, by a name of that engine.
    fn lease(&self, _engine: &str) -> Option<Box<dyn Lease>> {
        None
    }
    /// One replica's log, to be read by a bridge that may publish it later.
    fn follower(
        &self,
        _replica: &Replica,
        _removal: Removal,
        _signs: &Arc<Signs>,
        (_clock, _tasks): (Clock, &mut Tasks),
    ) -> Option<Box<dyn Source>> {
        None
    }
    /// Whether everything that was handed over is stored.
    fn is_flushed(&self) -> bool {
        true
    }
    /// Begins to store views of the replicas that this process publishes, for readers that come
    /// late.
    fn keep_snapshots(&self, _fleet: &Arc<Fleet>, _clock: Clock, _tasks: &mut Tasks) {}
    /// Brings counts that are only looked at on demand up to date.
    fn refresh_metrics(&self) {}
}

/// What a bus that is followed tells of its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Somebody publishes it.
    Appeared {
        /// Whose cache.
        replica: Replica,
        /// The engine, as far as a message told.
        engine: Option<EngineKind>,
    },
    /// Nobody does any more, and nothing of it is left.
    Vanished {
        /// Whose cache.
        replica: Replica,
    },
}

/// The right to drain one engine, which a bus keeps for one bridge at a time.
#[async_trait]
pub trait Lease: Send + Sync {
    /// Takes it, or renews the revision that was written last.
    async fn ask(&mut self, revision: Option<u64>) -> Grant;
    /// Gives it back, so that nobody must wait until it is forgotten.
    async fn release(&mut self, revision: u64);
    /// Where the log of a replica ends now, as far as that can be known.
    async fn end_of(&mut self, replica: &Replica) -> Option<Cursor>;
}

/// What a log holds of one replica, whichever bridge wrote it.
#[async_trait]
pub trait Past: Send + Sync {
    /// Brings its batches from a seq on, of the newest life, each with what its bridge believed of
    /// its view, up to where the log ends now. What cannot be read now brings nothing.
    async fn read(&self, start_seq: Seq, batches: &mpsc::Sender<(Batch, Trust)>);
}

/// The log of one replica, for its one writer.
#[async_trait]
pub trait Writer: Send {
    /// Whether anybody would read it now. If not, the envelope need not be made.
    fn wanted(&self) -> bool;
    /// Queues a message behind the earlier ones. Never waits; full = nothing was queued.
    fn publish(&mut self, message: &Outgoing) -> Result<Receipt, Full>;
    /// Waits until there is room again. Cancel-safe.
    async fn room(&mut self);
}

/// Whether a driver may go on reading its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Yes.
    Taken,
    /// No: wait for room first.
    Blocked,
}

/// The queue takes nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus takes nothing now")]
pub struct Full;

/// Becomes [`Stored`] when the bus has the message for good. May be dropped.
pub struct Receipt(oneshot::Receiver<Stored>);

/// A message that the bus has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number on the bus, where there is one.
    pub bus_seq: Option<BusSeq>,
    /// The bus had it already, under the same id.
    pub duplicate: bool,
}

/// The process ended before the bus had the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bus ended before it had the message")]
pub struct NotStored;

impl Receipt {
    /// A receipt and what fulfils it.
    pub fn new() -> (oneshot::Sender<Stored>, Receipt) {
        let (tx, rx) = oneshot::channel();
        (tx, Receipt(rx))
    }

    /// Waits for it.
    pub async fn stored(self) -> Result<Stored, NotStored> {
        self.0.await.map_err(|_| NotStored)
    }
}

/// How a bus stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// In one word.
    pub state: BusState,
    /// What an operator needs to know beside it; never a secret.
    pub detail: String,
}

/// How a bus stands, in one word. Ordered: a later one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BusState {
    /// Takes what is written.
    Ready,
    /// Not connected yet.
    Connecting,
    /// The stream does not answer: a leader is being chosen, or it is gone.
    NoStream,
    /// The server does not store what it is sent.
    NotStoring,
    /// The server cannot be reached.
    Away,
    /// A stream is not set up as it must be.
    SettingsDiffer,
    /// The server has no JetStream for us.
    NoJetStream,
    /// The certificates do not fit.
    TlsRefused,
    /// The server does not accept our credentials.
    CredentialsRefused,
}

impl BusState {
    /// All of them, for metrics.
    pub const ALL: [BusState; 9] = [
        BusState::Ready,
        BusState::Connecting,
        BusState::NoStream,
        BusState::NotStoring,
        BusState::Away,
        BusState::SettingsDiffer,
        BusState::NoJetStream,
        BusState::TlsRefused,
        BusState::CredentialsRefused,
    ];

    /// The word in logs, metrics and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            BusState::Ready => "ready",
            BusState::Connecting => "connecting",
            BusState::NoStream => "no_stream",
            BusState::NotStoring => "not_storing",
            BusState::Away => "away",
            BusState::SettingsDiffer => "settings_differ",
            BusState::NoJetStream => "no_jetstream",
            BusState::TlsRefused => "tls_refused",
            BusState::CredentialsRefused => "credentials_refused",
        }
    }
}

impl fmt::Display for BusState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Differs between bridges that run at a time, and between runs of one.
fn made_up_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{count}", Clock::unix_ms(), std::process::id())
}

/// What a bus is shared as.
pub type SharedBus = Arc<dyn Bus>;

/// An envelope under way, shared with readers inside the process.
pub type SharedEnvelope = Arc<Envelope>;
