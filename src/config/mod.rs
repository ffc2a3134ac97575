//! Configuration: file as typed → [`Config`] as proven. Pure: validating opens nothing.
//!
//! Flags win over `KVBRIDGE__SECTION__FIELD`, which wins over the file. [`load`] reports every
//! problem at once. A `[[sources]]` list out of flags replaces the file's list: mixing two lists
//! entry by entry would name engines that nobody meant.

pub mod limits;
#[cfg(feature = "sink-smg")]
pub mod stream_limits;

mod adapted;
mod added;
mod bus;
mod bus_limits;
mod bus_zmq;
mod compat;
mod compat_limits;
mod diff;
mod discovery_file;
mod endpoint;
mod engines;
mod file;
mod flags;
mod heartbeat;
mod http;
mod instance;
mod layers;
mod problem;
mod reach;
mod secret;
mod shown;
mod sinks;
mod sinks_file;
mod sinks_guard;
mod source_file;
mod sources;
mod validate;

#[cfg(test)]
mod default_tests;
#[cfg(test)]
#[cfg(feature = "vllm")]
mod sources_tests;
#[cfg(test)]
#[cfg(feature = "vllm")]
mod tests;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use kvbridge_adapters_zmq::Transport;
use kvbridge_schemas::{EngineKind, Replica};

pub use adapted::AdaptedConfig;
pub use added::{AddedError, read_added, write_added};
pub use bus::{
    BusConfig, NatsAuth, NatsConfig, NatsTls, Shards, SnapshotsConfig, SpoolFull, StreamsConfig,
};
pub use bus_zmq::ZmqConfig;
pub use compat::{
    CompatConfig, CompatFile, DynamoConfig, DynamoFile, KvEventsConfig, KvEventsFile,
};
pub use diff::{Changes, changes};
pub use endpoint::{Endpoint, EndpointError};
pub use engines::{EngineConfig, FoundEngine, Told, Unusable};
pub use file::{BusFile, DiscoverFile, File};
pub use flags::Flags;
pub use heartbeat::HeartbeatConfig;
pub use http::{HttpConfig, TlsConfig};
pub(crate) use instance::ip_text;
pub use instance::{InstanceError, InstanceTemplate};
pub use layers::{ENV_PREFIX, FileText};
pub use limits::Limits;
pub use problem::{Problem, Problems};
pub use secret::Secret;
pub use shown::shown;
pub use sinks::{SinkConfig, for_rank};
pub use sinks_file::SinkFile;
pub use sinks_guard::SinkGuard;
pub use source_file::SourceFile;

pub use crate::adapters::Options;
use crate::{
    adapters::Adapters,
    index::{BackfillMode, SPECULATIVE_TTL_MS},
    jobs::OnUnrecoverable,
};

/// Everything the program needs to know, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where the HTTP API listens.
    pub listen: SocketAddr,
    /// Who is let in there, and how.
    pub http: HttpConfig,
    /// One per replica; no two speak of the same one.
    pub sources: Vec<SourceConfig>,
    /// What reads engines that are not built in. Of the program, not of any file.
    pub adapters: Adapters,
    /// Engines that are asked where their events are.
    pub engines: Vec<EngineConfig>,
    /// What names the two above.
    pub entries: Vec<EntryConfig>,
    /// How engines are looked for.
    pub discovery: DiscoveryConfig,
    /// Where envelopes travel.
    pub bus: BusConfig,
    /// The index.
    pub index: IndexConfig,
    /// How much is kept.
    pub view: ViewConfig,
    /// The state machine.
    pub recovery: RecoveryConfig,
    /// Bounds.
    pub limits: Limits,
    /// What outlives the process.
    pub state: StateConfig,
    /// When `/readyz` says so.
    pub ready: ReadyConfig,
    /// When guesses of routers are taken.
    pub backfill: BackfillConfig,
    /// The orderly end.
    pub shutdown: ShutdownConfig,
    /// Routers to feed.
    pub sinks: Vec<SinkConfig>,
    /// APIs of other programs that are answered.
    pub compat: CompatConfig,
}

impl Config {
    /// Whether views keep what only other routers need.
    pub fn describes(&self) -> bool {
        let told = self.compat.kv_cache_events.as_ref().is_some_and(|events| events.tokens);
        told || !self.sinks.is_empty()
    }

    /// Whether others are fed than the index.
    pub fn feeds(&self) -> bool {
        self.compat.kv_cache_events.is_some() || !self.sinks.is_empty()
    }

    /// Whether there is an engine to read, or to look for.
    pub fn has_sources(&self) -> bool {
        !self.entries.is_empty()
    }
}

/// One entry of `[[sources]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryConfig {
    /// What it is called: its own name, else where its engine is.
    pub name: String,
    /// Who may take it away again.
    pub origin: EntryOrigin,
    /// Where it says that its engine is.
    pub place: String,
    /// Whom it speaks of, where nobody needs to be asked.
    pub replicas: Vec<Replica>,
}

/// Where an entry came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryOrigin {
    /// That file, a variable or the command line.
    File(String),
    /// `POST /v1/sources`.
    Http,
}

/// How engines are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Time between two requests to an engine that answers.
    pub refresh: Duration,
    /// Time between two looks at a name.
    pub resolve: Duration,
    /// How long a name may leave an engine out before its replicas are closed.
    pub grace: Duration,
    /// Who is asked for names; absent = as the system has it.
    pub nameserver: Option<SocketAddr>,
}

/// How guesses of routers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillConfig {
    /// When at all.
    pub mode: BackfillMode,
    /// How long each is believed.
    pub ttl: Duration,
}

impl Default for BackfillConfig {
    fn default() -> BackfillConfig {
        let ttl = Duration::from_millis(SPECULATIVE_TTL_MS);
        BackfillConfig { mode: BackfillMode::Auto, ttl }
    }
}

/// When `/readyz` says 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyConfig {
    /// How many replicas must be proven once.
    pub policy: ReadyPolicy,
    /// The longest wait for them.
    pub max_wait: Duration,
    /// Whether it may say 503 again.
    pub revocable: bool,
}

impl Default for ReadyConfig {
    fn default() -> ReadyConfig {
        let policy = ReadyPolicy::default();
        ReadyConfig { policy, max_wait: limits::READY_MAX_WAIT, revocable: false }
    }
}

/// How many of the replicas must be proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadyPolicy {
    /// All of them.
    #[default]
    All,
    /// More than half.
    Quorum,
    /// One.
    Any,
}

/// What outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// Folder of the checkpoints; absent = nothing is kept.
    pub dir: Option<PathBuf>,
    /// Time between two checkpoints of a replica that moves.
    pub interval: Duration,
}

/// The orderly end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// Time for all of it.
    pub timeout: Duration,
    /// How long `/readyz` says 503 before anything else stops.
    pub drain: Duration,
}

/// One replica's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Which engine speaks.
    pub engine: EngineKind,
    /// Whose cache.
    pub replica: Replica,
    /// Where its events are published, or where it is asked for them.
    pub endpoint: Endpoint,
    /// How the engine hashes its blocks, where that is told; and its seed.
    pub hash_scheme: Option<String>,
    /// The seed of its first blocks.
    pub hash_seed: Option<String>,
    /// It publishes nothing and is asked.
    pub polled: Option<Polled>,
    /// An adapter of the program reads it.
    pub adapted: Option<AdaptedConfig>,
    /// Where its journal answers; without one a late start can only be `lower_bound`.
    pub replay: Option<Endpoint>,
    /// Where it answers what it holds; its operator says that it has one tier, and one page for
    /// each hash.
    pub snapshot: Option<Endpoint>,
    /// The engine connects to us.
    pub bind: bool,
    /// ZeroMQ topic prefix; empty = everything.
    pub topic: String,
    /// The library that reads the sockets.
    pub transport: Transport,
    /// Event tags that the operator knows to be harmless.
    pub ignore_tags: Vec<String>,
    /// How many blocks the engine's device holds, when the operator tells.
    pub pool_blocks: Option<u64>,
    /// The engine's own metrics.
    pub metrics: Option<String>,
    /// Where each process of the engine tells when it started.
    pub members: Vec<String>,
    /// Where the engine is asked to empty its cache, if that is known.
    pub flush: Option<String>,
}

/// An engine that one task asks for the events of all its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// `http://host:port`.
    pub url: String,
    /// Number of its first rank.
    pub first_rank: u32,
    /// How many follow.
    pub rank_count: u32,
}

/// The index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Writer threads.
    pub writer_count: u32,
}

/// How much is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewConfig {
    /// Blocks of one replica; absent = by the engine's pool.
    pub blocks_max: Option<u64>,
    /// Memory of the process; absent = a share of what the machine or its container has.
    pub memory_max: Option<u64>,
}

impl ViewConfig {
    /// The bound of a replica whose engine's pool has that size.
    pub fn blocks_max(&self, pool_blocks: Option<u64>) -> u64 {
        let by_pool = pool_blocks.map(|pool| pool.saturating_mul(limits::VIEW_POOLS_MAX));
        self.blocks_max.or(by_pool).unwrap_or(limits::VIEW_BLOCKS_MAX)
    }
}

/// The state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Time a replay may stay without progress.
    pub replay_deadline: Duration,
    /// Engines that are asked for a replay or snapshot at once.
    pub parallel: u32,
    /// Replays before a range counts as lost.
    pub attempt_count_max: u32,
    /// Live batches kept while a replay is open.
    pub held_batch_count_max: u32,
    /// Their payload bytes.
    pub held_bytes_max: u64,
    /// Silence before a probe.
    pub idle_probe: Duration,
    /// Time between audits of an engine that connects to us.
    pub audit: Duration,
    /// Time trust outlives the last proof.
    pub lease: Duration,
    /// Time other ranks of an instance speak before one that never did is missing.
    pub rank_missing: Duration,
    /// What to do about a replica that cannot become exact by itself.
    pub on_unrecoverable: OnUnrecoverable,
}

/// Reads and proves a configuration, or says all that is wrong with it.
pub fn load(
    file: Option<&FileText>,
    env: &[(String, String)],
    flags: Flags,
) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let layers = layers::Layers::read(file, env, &mut problems);
    let mut typed = layers.typed(&mut problems);
    let from_flags = !flags.sources.is_empty();
    if from_flags {
        typed.sources = flags.sources;
    }
    let listen_from_flags = flags.listen.is_some();
    if listen_from_flags {
        typed.http.listen = flags.listen;
    }
    if flags.insecure {
        typed.http.insecure = Some(true);
        if typed.bus.kind.as_deref() == Some("zmq") {
            typed.bus.insecure = Some(true);
        }
    }
    let server_from_flags = flags.server.url.is_some();
    flags::lay_over(&mut typed.bus, flags.server);
    let origin = |path: &str| {
        let typed_here =
            (from_flags && path.starts_with("sources")) || (server_from_flags && path == "bus.url");
        if typed_here || (listen_from_flags && path == "http.listen") {
            return Some("command line".to_owned());
        }
        layers.origin(path)
    };
    validate::validate(typed, flags.adapters, &origin, problems)
}
