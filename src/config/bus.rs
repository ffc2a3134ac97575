//! `[bus]`: where envelopes travel, and how the NATS server is reached.

use std::{path::PathBuf, time::Duration};

use super::{HeartbeatConfig, Secret, ZmqConfig, file::BusFile, limits, validate::Check};

/// Where envelopes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusConfig {
    /// Inside this process.
    Embedded,
    /// JetStream of a NATS server.
    Nats(Box<NatsConfig>),
    /// ZeroMQ sockets of bridges.
    Zmq(Box<ZmqConfig>),
}

impl BusConfig {
    /// Whether replicas that others publish are read.
    pub fn is_read(&self) -> bool {
        match self {
            BusConfig::Embedded => false,
            BusConfig::Nats(nats) => nats.read,
            BusConfig::Zmq(zmq) => !zmq.connect.is_empty(),
        }
    }
}

/// A NATS server and what we keep on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsConfig {
    /// Its addresses; more than one for a cluster.
    pub urls: Vec<String>,
    /// How we prove who we are.
    pub auth: NatsAuth,
    /// Encryption.
    pub tls: NatsTls,
    /// What subjects of answers to us begin with: who may read one's own may read all of them.
    pub inbox: String,
    /// What we keep on it.
    pub streams: StreamsConfig,
    /// This bridge's name in the ids of what it says itself; absent = one made up at the start.
    pub bridge: Option<String>,
    /// Bytes that wait for the server.
    pub spool_bytes_max: u64,
    /// What happens when they are used up.
    pub spool_full: SpoolFull,
    /// First and longest delay before a reconnect.
    pub reconnect: (Duration, Duration),
    /// Whether replicas that others publish are read.
    pub read: bool,
    /// Only those of these models; empty = all.
    pub models: Vec<String>,
    /// When views are stored for readers that come late.
    pub snapshots: SnapshotsConfig,
}

impl NatsConfig {
    /// Whether replicas of that model are read.
    pub fn reads(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|wanted| wanted == model)
    }
}

/// When views are stored for readers that come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotsConfig {
    /// Time between two of a replica that moves.
    pub interval: Duration,
    /// So many batches do not wait for that.
    pub batch_count: u64,
}

/// How we prove who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NatsAuth {
    /// Not at all.
    Open,
    /// A token.
    Token(Secret),
    /// Name and password.
    User {
        /// The name.
        name: String,
        /// The password.
        password: Secret,
    },
    /// The seed of an nkey.
    Nkey(Secret),
    /// A credentials file (JWT and seed).
    Creds(PathBuf),
}

/// Encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// Refuse a server without TLS.
    pub required: bool,
    /// Certificate authorities beside those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What we keep on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// What every stream's name begins with.
    pub prefix: String,
    /// How replicas are spread over streams.
    pub shards: Shards,
    /// Copies in a cluster.
    pub replica_count: u32,
    /// How long messages are kept.
    pub retention: Duration,
    /// Bytes kept in one stream.
    pub bytes_max: u64,
    /// How long the server knows an id again.
    pub duplicate_window: Duration,
    /// How often bridges say how they stand.
    pub heartbeat: HeartbeatConfig,
}

impl StreamsConfig {
    /// The name of a bucket beside these streams. Two installations on one server differ in what
    /// their streams are called, and so do their buckets.
    pub fn bucket(&self, name: &str) -> String {
        if self.prefix == limits::BUS_STREAM_PREFIX {
            return name.to_owned();
        }
        format!("{}_{name}", self.prefix)
    }
}

/// How replicas are spread over streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// One stream for each model.
    Model,
    /// So many streams; a replica's key says which.
    Hash(u32),
}

/// What happens when the spool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolFull {
    /// Sources are not read until there is room; what they drop meanwhile is asked for again.
    Block,
    /// Envelopes are left out; a reset tells readers which.
    Resync,
}

/// Copies a JetStream cluster can keep.
const REPLICA_COUNT_MAX: u32 = 5;

/// Streams a hash may spread over: each one is a connection and a thread here.
const SHARD_COUNT_MAX: u32 = 64;

/// Least a spool may hold: one message of the server's default size.
const SPOOL_BYTES_MIN: u64 = 1024 * 1024;

impl Check<'_> {
    pub(super) fn bus(&mut self, file: BusFile) -> BusConfig {
        let kind = file.kind.clone().unwrap_or_else(|| "embedded".to_owned());
        match kind.as_str() {
            "embedded" | "nats" | "zmq" => self.fields_of_other_kinds(&file, &kind),
            kind => {
                self.note("bus.kind", format!("expected embedded, nats or zmq, got {kind:?}"));
            }
        }
        match kind.as_str() {
            "nats" => BusConfig::Nats(Box::new(self.nats(file))),
            "zmq" => BusConfig::Zmq(Box::new(self.zmq(&file))),
            _ => BusConfig::Embedded,
        }
    }

    fn fields_of_other_kinds(&mut self, file: &BusFile, kind: &str) {
        let nats: &[&str] = &["nats"];
        for (field, given, kinds) in [
            ("url", file.url.is_some(), nats),
            ("token", file.token.is_some(), nats),
            ("user", file.user.is_some(), nats),
            ("password", file.password.is_some(), nats),
            ("nkey", file.nkey.is_some(), nats),
            ("creds", file.creds.is_some(), nats),
            ("tls", file.tls.is_some(), nats),
            ("inbox", file.inbox.is_some(), nats),
            ("tls_ca", file.tls_ca.is_some(), nats),
            ("tls_cert", file.tls_cert.is_some(), nats),
            ("tls_key", file.tls_key.is_some(), nats),
            ("stream", file.stream.is_some(), nats),
            ("shards", file.shards.is_some(), nats),
            ("replicas", file.replicas.is_some(), nats),
            ("retention", file.retention.is_some(), nats),
            ("retention_bytes", file.retention_bytes.is_some(), nats),
            ("duplicate_window", file.duplicate_window.is_some(), nats),
            ("bridge", file.bridge.is_some(), &["nats", "zmq"]),
            ("spool", file.spool.is_some(), &["nats", "zmq"]),
            ("spool_full", file.spool_full.is_some(), &["nats", "zmq"]),
            ("read", file.read.is_some(), nats),
            ("models", file.models.is_some(), nats),
            ("snapshot_interval", file.snapshot_interval.is_some(), nats),
            ("snapshot_batches", file.snapshot_batches.is_some(), nats),
            ("heartbeat", file.heartbeat.is_some(), &["nats", "zmq"]),
            ("heartbeat_ttl", file.heartbeat_ttl.is_some(), &["nats", "zmq"]),
            ("listen", file.listen.is_some(), &["zmq"]),
            ("requests", file.requests.is_some(), &["zmq"]),
            ("connect", file.connect.is_some(), &["zmq"]),
            ("journal", file.journal.is_some(), &["zmq"]),
            ("journal_bytes", file.journal_bytes.is_some(), &["zmq"]),
            ("insecure", file.insecure.is_some(), &["zmq"]),
        ] {
            if given && !kinds.contains(&kind) {
                let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
                self.note(
                    &format!("bus.{field}"),
                    format!("belongs to kind {}", kinds.join(" or ")),
                );
            }
        }
    }

    fn nats(&mut self, file: BusFile) -> NatsConfig {
        NatsConfig {
            urls: self.urls(file.url.as_deref()),
            streams: self.streams(&file),
            tls: self.bus_tls(&file),
            inbox: self.inbox(file.inbox.as_deref()),
            bridge: self.bridge(file.bridge.clone()),
            spool_bytes_max: self.spool(&file),
            spool_full: self.spool_full(file.spool_full.as_deref()),
            // A process without sources has nothing else to do; see `validate`.
            read: file.read.unwrap_or(false),
            models: file.models.clone().unwrap_or_default(),
            snapshots: SnapshotsConfig {
                interval: self.span(
                    "bus.snapshot_interval",
                    file.snapshot_interval,
                    limits::BUS_SNAPSHOT_INTERVAL,
                ),
                batch_count: u64::from(self.count(
                    "bus.snapshot_batches",
                    file.snapshot_batches,
                    limits::BUS_SNAPSHOT_BATCHES,
                )),
            },
            auth: self.auth(file),
            reconnect: (limits::RECONNECT_MIN, limits::RECONNECT_MAX),
        }
    }

    fn urls(&mut self, text: Option<&str>) -> Vec<String> {
        let urls: Vec<String> =
            text.unwrap_or_default().split(',').map(|url| url.trim().to_owned()).collect();
        if urls.iter().any(|url| url.contains('@')) {
            self.note("bus.url", "must not hold credentials: use bus.user and bus.password");
            return Vec::new();
        }
        let good = |url: &String| {
            let rest = url.strip_prefix("nats://").or_else(|| url.strip_prefix("tls://"));
            rest.is_some_and(|host| !host.is_empty())
                && url.parse::<async_nats::ServerAddr>().is_ok()
        };
        if !urls.iter().all(good) {
            self.note(
                "bus.url",
                "expected nats://host:port or tls://host:port, with commas between",
            );
        }
        urls
    }

    fn auth(&mut self, file: BusFile) -> NatsAuth {
        let mut ways = Vec::new();
        match (file.user, file.password) {
            (Some(name), Some(password)) => ways.push(NatsAuth::User { name, password }),
            (Some(_), None) => self.note("bus.password", "is missing beside bus.user"),
            (None, Some(_)) => self.note("bus.user", "is missing beside bus.password"),
            (None, None) => (),
        }
        ways.extend(file.token.map(NatsAuth::Token));
        ways.extend(file.nkey.map(NatsAuth::Nkey));
        ways.extend(file.creds.map(|path| NatsAuth::Creds(path.into())));
        if ways.len() > 1 {
            self.note("bus", "expected one of user and password, token, nkey, creds; got several");
        }
        ways.pop().unwrap_or(NatsAuth::Open)
    }

    fn bus_tls(&mut self, file: &BusFile) -> NatsTls {
        let client = match (&file.tls_cert, &file.tls_key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => {
                self.note("bus.tls_key", "is missing beside bus.tls_cert");
                None
            }
            (None, Some(_)) => {
                self.note("bus.tls_cert", "is missing beside bus.tls_key");
                None
            }
        };
        let ca = file.tls_ca.as_ref().map(PathBuf::from);
        // Who names a CA or a certificate means to be encrypted: never fall back to plain text.
        let required = file.tls.unwrap_or(ca.is_some() || client.is_some());
        if !required && (ca.is_some() || client.is_some()) {
            self.note("bus.tls", "must not be false beside bus.tls_ca or bus.tls_cert");
        }
        NatsTls { required, ca, client }
    }

    fn inbox(&mut self, prefix: Option<&str>) -> String {
        let prefix = prefix.unwrap_or(limits::BUS_INBOX_PREFIX);
        if !prefix.split('.').all(is_word) {
            self.note("bus.inbox", "expected words of letters, digits, - and _, points between");
        }
        prefix.to_owned()
    }

    fn streams(&mut self, file: &BusFile) -> StreamsConfig {
        let prefix = file.stream.clone().unwrap_or_else(|| limits::BUS_STREAM_PREFIX.to_owned());
        if !is_word(&prefix) {
            self.note("bus.stream", "expected letters, digits, - and _ only");
        }
        let shards = match file.shards.as_deref().unwrap_or("model") {
            "model" => Shards::Model,
            text => match text.parse() {
                Ok(count) if (1..=SHARD_COUNT_MAX).contains(&count) => Shards::Hash(count),
                _ => {
                    let message = format!(
                        "expected \"model\" or \"1\" to \"{SHARD_COUNT_MAX}\", got {text:?}"
                    );
                    self.note("bus.shards", message);
                    Shards::Model
                }
            },
        };
        let replica_count = file.replicas.unwrap_or(1);
        if !(1..=REPLICA_COUNT_MAX).contains(&replica_count) {
            let message = format!("expected 1 to {REPLICA_COUNT_MAX}, got {replica_count}");
            self.note("bus.replicas", message);
        }
        let streams = StreamsConfig {
            prefix,
            shards,
            replica_count,
            retention: self.span("bus.retention", file.retention, limits::BUS_RETENTION),
            bytes_max: self.size(
                "bus.retention_bytes",
                file.retention_bytes,
                limits::BUS_RETENTION_BYTES,
            ),
            duplicate_window: self.span(
                "bus.duplicate_window",
                file.duplicate_window,
                limits::BUS_DUPLICATE_WINDOW,
            ),
            heartbeat: self.heartbeat(file),
        };
        if streams.duplicate_window > streams.retention {
            self.note("bus.duplicate_window", "must not be longer than bus.retention");
        }
        streams
    }

    pub(super) fn bridge(&mut self, name: Option<String>) -> Option<String> {
        if name.as_deref().is_some_and(|name| !is_word(name)) {
            self.note("bus.bridge", "expected letters, digits, - and _ only");
        }
        name
    }

    pub(super) fn spool(&mut self, file: &BusFile) -> u64 {
        let bytes = self.size("bus.spool", file.spool, limits::BUS_SPOOL_BYTES);
        if !(SPOOL_BYTES_MIN..=limits::BUS_SPOOL_BYTES_MAX).contains(&bytes) {
            self.note("bus.spool", "expected 1MiB to 16GiB");
        }
        bytes
    }

    pub(super) fn spool_full(&mut self, text: Option<&str>) -> SpoolFull {
        match text.unwrap_or("block") {
            "block" => SpoolFull::Block,
            "resync" => SpoolFull::Resync,
            other => {
                self.note("bus.spool_full", format!("expected block or resync, got {other:?}"));
                SpoolFull::Block
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.bytes().all(good)
}
