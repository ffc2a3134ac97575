//! The configuration as typed by a person: every field may be absent, none is checked beyond its
//! form.

use std::{fmt, time::Duration};

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::compat::CompatFile;
pub use super::discovery_file::DiscoverFile;
use super::discovery_file::DiscoveryFile;
use super::sinks_file::SinkFile;
use super::{ReadyPolicy, Secret, SourceFile};

/// The whole file. `validate` turns it into a [`Config`](super::Config).
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The HTTP API.
    #[serde(default)]
    pub http: HttpFile,
    /// Engines to read.
    #[serde(default)]
    pub sources: Vec<SourceFile>,
    /// How engines are looked for.
    #[serde(default)]
    pub discovery: DiscoveryFile,
    /// Where envelopes travel.
    #[serde(default)]
    pub bus: BusFile,
    /// The index.
    #[serde(default)]
    pub index: IndexFile,
    /// How much is kept.
    #[serde(default)]
    pub view: ViewFile,
    /// The state machine.
    #[serde(default)]
    pub recovery: RecoveryFile,
    /// Bounds.
    #[serde(default)]
    pub limits: LimitsFile,
    /// What outlives the process.
    #[serde(default)]
    pub state: StateFile,
    /// When `/readyz` says so.
    #[serde(default)]
    pub ready: ReadyFile,
    /// Guesses of routers.
    #[serde(default)]
    pub backfill: BackfillFile,
    /// The orderly end.
    #[serde(default)]
    pub shutdown: ShutdownFile,
    /// Routers to feed.
    #[serde(default)]
    pub sinks: Vec<SinkFile>,
    /// APIs of other programs.
    #[serde(default)]
    pub compat: CompatFile,
}

/// `[http]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpFile {
    /// `host:port`; port 0 takes a free one.
    pub listen: Option<String>,
    /// Listen beyond the loopback without asking anybody.
    pub insecure: Option<bool>,
    /// Who may do what.
    pub tokens_file: Option<String>,
    /// Encryption.
    pub tls: Option<TlsFile>,
    /// Names that the API is asked by, beside localhost and addresses.
    pub names: Option<Vec<String>>,
    /// Connections at a time.
    pub connections_max: Option<u32>,
    /// Time for the head of a request.
    pub header_deadline: Option<Span>,
    /// Time for its body.
    pub body_deadline: Option<Span>,
    /// Time a client may take nothing of an answer.
    pub stall_deadline: Option<Span>,
}

/// `[http.tls]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFile {
    /// Our certificate, PEM.
    pub cert: Option<String>,
    /// Its key, PEM.
    pub key: Option<String>,
    /// The authority of client certificates, PEM.
    pub client_ca: Option<String>,
}

/// `[view]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewFile {
    /// Blocks of one replica.
    pub blocks_max: Option<u64>,
    /// Memory of the process.
    pub memory_max: Option<Size>,
}

/// `[bus]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusFile {
    /// `embedded`, `nats` or `zmq`.
    pub kind: Option<String>,
    /// Server addresses of `nats`, with commas between.
    pub url: Option<String>,
    /// Token of `nats`.
    pub token: Option<Secret>,
    /// User name.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Seed of an nkey.
    pub nkey: Option<Secret>,
    /// Credentials file.
    pub creds: Option<String>,
    /// Refuse a server without TLS.
    pub tls: Option<bool>,
    /// What subjects of answers to us begin with.
    pub inbox: Option<String>,
    /// File of certificate authorities.
    pub tls_ca: Option<String>,
    /// File of our certificate.
    pub tls_cert: Option<String>,
    /// File of its key.
    pub tls_key: Option<String>,
    /// What stream names begin with.
    pub stream: Option<String>,
    /// `model`, or a number of streams.
    pub shards: Option<String>,
    /// Copies in a cluster.
    pub replicas: Option<u32>,
    /// How long messages are kept.
    pub retention: Option<Span>,
    /// Bytes kept in one stream.
    pub retention_bytes: Option<Size>,
    /// How long the server knows an id again.
    pub duplicate_window: Option<Span>,
    /// Name of this bridge.
    pub bridge: Option<String>,
    /// Bytes that wait for the server.
    pub spool: Option<Size>,
    /// `block` or `resync`.
    pub spool_full: Option<String>,
    /// Where `zmq` publishes.
    pub listen: Option<String>,
    /// Where it answers.
    pub requests: Option<String>,
    /// Bridges to read.
    pub connect: Option<Vec<String>>,
    /// Folder of the journal.
    pub journal: Option<String>,
    /// Bytes that it keeps.
    pub journal_bytes: Option<Size>,
    /// Listen beyond the loopback although nobody is asked who they are.
    pub insecure: Option<bool>,
    /// Read what others publish, beside the sources.
    pub read: Option<bool>,
    /// Read replicas of these models only.
    pub models: Option<Vec<String>>,
    /// Time between two snapshots of a replica.
    pub snapshot_interval: Option<Span>,
    /// Batches between two snapshots of a replica.
    pub snapshot_batches: Option<u32>,
    /// Time between two heartbeats.
    pub heartbeat: Option<Span>,
    /// How long a heartbeat counts.
    pub heartbeat_ttl: Option<Span>,
}

/// `[index]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexFile {
    /// Writer threads.
    pub writers: Option<u32>,
}

/// `[recovery]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoveryFile {
    /// Time a replay may stay without progress.
    pub replay_deadline: Option<Span>,
    /// Engines asked for history at once.
    pub parallel: Option<u32>,
    /// Replays before a range counts as lost.
    pub attempts: Option<u32>,
    /// Live batches kept while a replay is open.
    pub held_batches: Option<u32>,
    /// Their payload bytes.
    pub held_bytes: Option<Size>,
    /// Silence before a probe.
    pub idle_probe: Option<Span>,
    /// Time between audits of an engine that connects to us.
    pub audit: Option<Span>,
    /// Time trust outlives the last proof.
    pub lease: Option<Span>,
    /// Time other ranks of an instance speak before a silent one is missing.
    pub rank_missing: Option<Span>,
    /// `none`, `resync` or `flush`.
    pub on_unrecoverable: Option<String>,
}

/// `[limits]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsFile {
    /// Largest ZeroMQ message.
    pub frame_max: Option<Size>,
    /// Blocks per replica that wait for their parents.
    pub orphans_max: Option<u32>,
    /// Batches between a socket and its driver.
    pub source_queue: Option<u32>,
    /// First delay before a reconnect.
    pub reconnect_min: Option<Span>,
    /// Longest delay before a reconnect.
    pub reconnect_max: Option<Span>,
    /// Largest request body.
    pub body_max: Option<Size>,
    /// Token ids in one match.
    pub match_tokens_max: Option<u32>,
    /// Envelopes kept for readers of `/v1/events`.
    pub events_queue: Option<u32>,
    /// Readers of `/v1/events` at a time.
    pub events_readers_max: Option<u32>,
}

/// `[state]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateFile {
    /// Folder of the checkpoints.
    pub dir: Option<String>,
    /// Time between two checkpoints of a replica.
    pub interval: Option<Span>,
}

/// `[ready]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadyFile {
    /// How many replicas must be proven once.
    pub policy: Option<ReadyPolicy>,
    /// The longest wait for them.
    pub max_wait: Option<Span>,
    /// Whether it may say 503 again.
    pub revocable: Option<bool>,
}

/// `[backfill]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackfillFile {
    /// `off`, `auto` or `always`.
    pub mode: Option<String>,
    /// How long what a router told is believed.
    pub ttl: Option<Span>,
}

/// `[shutdown]`
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShutdownFile {
    /// Time for the whole of an orderly end.
    pub timeout: Option<Span>,
    /// How long `/readyz` says 503 before anything stops.
    pub drain: Option<Span>,
}

/// A duration such as `250ms`. A bare number is refused: it would have no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A size such as `64MiB`. A bare number is refused: it would have no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        deserializer.deserialize_str(SpanVisitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        deserializer.deserialize_str(SizeVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit, such as \"250ms\" or \"5s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        humantime::parse_duration(text)
            .map(Span)
            .map_err(|_| E::custom(format!("expected a duration such as \"250ms\", got {text:?}")))
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size with its unit, such as \"64MiB\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
        match text.parse::<bytesize::ByteSize>() {
            Ok(size) if has_unit => Ok(Size(size.as_u64())),
            _ => Err(E::custom(format!("expected a size such as \"64MiB\", got {text:?}"))),
        }
    }
}
