//! Which streams there must be, how each must be set up, and what differs.

use std::{collections::BTreeSet, time::Duration};

use async_nats::jetstream::{
    Context,
    context::{GetStreamError, GetStreamErrorKind},
    stream::{
        Compression, Config, DiscardPolicy, Info, RetentionPolicy, StorageType, SubjectTransform,
    },
};
use kvbridge_schemas::{Replica, subject};

use super::connect::reason;
use crate::config::{Shards, StreamsConfig};

/// What replicas of a hash shard are published to; the stream stores them under their hint subject.
const INGEST_PREFIX: &str = "kv.v1.in.";

/// Names, subjects and settings of all streams.
#[derive(Clone, Debug)]
pub struct Plan {
    config: StreamsConfig,
}

impl Plan {
    /// The plan of a configuration.
    pub fn new(config: &StreamsConfig) -> Plan {
        Plan { config: config.clone() }
    }

    /// The streams that these replicas need.
    pub fn names<'a>(&self, replicas: impl Iterator<Item = &'a Replica>) -> BTreeSet<String> {
        match self.config.shards {
            Shards::Model => replicas.map(|replica| self.name_of(replica)).collect(),
            Shards::Hash(count) => (0..count).map(|shard| self.name(&shard.to_string())).collect(),
        }
    }

    /// The stream of a replica.
    pub fn name_of(&self, replica: &Replica) -> String {
        match self.config.shards {
            Shards::Model => self.name(&subject::model_token(&replica.model)),
            Shards::Hash(count) => self.name(&shard_of(replica, count).to_string()),
        }
    }

    /// The subject a replica is published to.
    pub fn subject_of(&self, replica: &Replica) -> String {
        match self.config.shards {
            Shards::Model => subject::hint(&replica.key()),
            Shards::Hash(count) => {
                format!("{INGEST_PREFIX}{}.{}", shard_of(replica, count), replica.key())
            }
        }
    }

    /// Whether that is the name of one of our streams.
    pub fn is_ours(&self, name: &str) -> bool {
        let shard = name.strip_prefix(&self.config.prefix).and_then(|rest| rest.strip_prefix('_'));
        match (shard, self.config.shards) {
            (Some(shard), Shards::Model) => !shard.is_empty(),
            (Some(shard), Shards::Hash(count)) => {
                shard.parse::<u32>().is_ok_and(|shard| shard < count)
            }
            (None, _) => false,
        }
    }

    /// The streams of these models, each a part of a subject or `*`; of any model `*`, because a
    /// permission has no wildcard within a part.
    pub(super) fn names_for_permissions(&self, models: &[String]) -> BTreeSet<String> {
        match self.config.shards {
            Shards::Model => models
                .iter()
                .map(|model| if model == "*" { "*".to_owned() } else { self.name(model) })
                .collect(),
            Shards::Hash(_) => self.names([].into_iter()),
        }
    }

    /// What replicas of a model are published to.
    pub(super) fn subjects_for_permissions(&self, model: &str) -> Vec<String> {
        match self.config.shards {
            Shards::Model => vec![format!("{}{model}.*.*", subject::HINT_PREFIX)],
            Shards::Hash(count) => {
                (0..count).map(|shard| format!("{INGEST_PREFIX}{shard}.{model}.*.*")).collect()
            }
        }
    }

    /// As [`StreamsConfig::bucket`].
    pub fn bucket(&self, name: &str) -> String {
        self.config.bucket(name)
    }

    fn name(&self, shard: &str) -> String {
        format!("{}_{shard}", self.config.prefix)
    }

    /// How a stream must be set up.
    pub fn wanted(&self, name: &str) -> Config {
        let shard = name.strip_prefix(&format!("{}_", self.config.prefix)).unwrap_or(name);
        let (subject, subject_transform) = match self.config.shards {
            Shards::Model => (format!("{}{shard}.>", subject::HINT_PREFIX), None),
            Shards::Hash(_) => {
                let source = format!("{INGEST_PREFIX}{shard}.*.*.*");
                let destination = format!(
                    "{}{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}.{{{{wildcard(3)}}}}",
                    subject::HINT_PREFIX
                );
                (source.clone(), Some(SubjectTransform { source, destination }))
            }
        };
        Config {
            name: name.to_owned(),
            subjects: vec![subject],
            subject_transform,
            retention: RetentionPolicy::Limits,
            discard: DiscardPolicy::Old,
            storage: StorageType::File,
            num_replicas: usize::try_from(self.config.replica_count).unwrap_or(1),
            max_age: self.config.retention,
            max_bytes: i64::try_from(self.config.bytes_max).unwrap_or(i64::MAX),
            max_messages: -1,
            max_messages_per_subject: -1,
            max_message_size: -1,
            max_consumers: -1,
            duplicate_window: self.config.duplicate_window,
            allow_direct: true,
            compression: Some(Compression::None),
            description: Some("KV hints of kvbridge".to_owned()),
            ..Config::default()
        }
    }
}

fn shard_of(replica: &Replica, count: u32) -> u64 {
    xxhash_rust::xxh3::xxh3_64(replica.key().as_str().as_bytes()) % u64::from(count.max(1))
}

/// One setting that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name, as the server says it.
    pub setting: &'static str,
    /// What it must be.
    pub wanted: String,
    /// What it is.
    pub found: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}, wanted {}", self.setting, self.found, self.wanted)
    }
}

/// Every setting that matters to us and differs. What only operators care about is left to them.
pub fn differences(wanted: &Config, found: &Config) -> Vec<Difference> {
    let span = |span: Duration| humantime::format_duration(span).to_string();
    let limit = |limit: i64| if limit <= 0 { "unlimited".to_owned() } else { limit.to_string() };
    let transform = |config: &Config| {
        config.subject_transform.as_ref().map_or("none".to_owned(), |transform| {
            format!("{} to {}", transform.source, transform.destination)
        })
    };
    let fed = |config: &Config| {
        (config.mirror.is_some() || config.sources.as_ref().is_some_and(|list| !list.is_empty()))
            .to_string()
    };
    let shown = |config: &Config| {
        [
            ("subjects", config.subjects.join(" ")),
            ("subject_transform", transform(config)),
            ("retention", format!("{:?}", config.retention).to_lowercase()),
            ("discard", format!("{:?}", config.discard).to_lowercase()),
            ("storage", format!("{:?}", config.storage).to_lowercase()),
            ("num_replicas", config.num_replicas.to_string()),
            ("max_age", span(config.max_age)),
            ("max_bytes", limit(config.max_bytes)),
            ("max_msgs", limit(config.max_messages)),
            ("max_msgs_per_subject", limit(config.max_messages_per_subject)),
            ("max_msg_size", limit(config.max_message_size.into())),
            ("duplicate_window", span(config.duplicate_window)),
            ("allow_direct", config.allow_direct.to_string()),
            ("no_ack", config.no_ack.to_string()),
            ("sealed", config.sealed.to_string()),
            ("allow_rollup_hdrs", config.allow_rollup.to_string()),
            ("mirror or sources", fed(config)),
        ]
    };
    let pairs = shown(wanted).into_iter().zip(shown(found));
    pairs
        .filter(|((_, wanted), (_, found))| wanted != found)
        .map(|((setting, wanted), (_, found))| Difference { setting, wanted, found })
        .collect()
}

/// One stream beside what it must be.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// What is there; `None` = there is no such stream.
    pub info: Option<Box<Info>>,
    /// What differs.
    pub differences: Vec<Difference>,
}

impl StreamReport {
    /// Whether it is as it must be.
    pub fn is_good(&self) -> bool {
        self.info.is_some() && self.differences.is_empty()
    }
}

/// Why streams cannot be looked at or set up.
#[derive(Debug, thiserror::Error)]
pub enum StreamFailure {
    /// The server has no JetStream for this account.
    #[error("the server has no JetStream for this account: {0}")]
    NoJetStream(String),
    /// A stream is not as it must be.
    #[error("stream {name} is set up differently: {}; see kvbridge bus apply", list(.differences))]
    Differs {
        /// Which.
        name: String,
        /// How.
        differences: Vec<Difference>,
    },
    /// The server refuses.
    #[error("stream {name}: {reason}")]
    Refused {
        /// Which.
        name: String,
        /// In the server's words.
        reason: String,
    },
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ")
}

/// Looks at a stream.
pub async fn look(context: &Context, wanted: &Config) -> Result<StreamReport, StreamFailure> {
    let name = wanted.name.clone();
    match context.get_stream(&name).await {
        Ok(stream) => {
            let info = Box::new(stream.cached_info().clone());
            let differences = differences(wanted, &info.config);
            Ok(StreamReport { name, info: Some(info), differences })
        }
        Err(error) if is_not_found(&error) => {
            Ok(StreamReport { name, info: None, differences: Vec::new() })
        }
        Err(error) => Err(refusal(name, &error)),
    }
}

/// Creates the stream when it is missing; refuses one that differs.
pub async fn ensure(context: &Context, wanted: &Config) -> Result<Info, StreamFailure> {
    let report = look(context, wanted).await?;
    let name = report.name;
    let Some(info) = report.info else {
        let created = context.create_stream(wanted.clone()).await;
        return created
            .map(|stream| stream.cached_info().clone())
            .map_err(|error| refusal(name, &error));
    };
    if report.differences.is_empty() {
        Ok(*info)
    } else {
        Err(StreamFailure::Differs { name, differences: report.differences })
    }
}

/// Creates the stream or changes what differs; settings that we have no opinion of stay as they
/// are.
pub async fn apply(context: &Context, wanted: &Config) -> Result<StreamReport, StreamFailure> {
    let before = look(context, wanted).await?;
    let name = before.name.clone();
    match &before.info {
        None => {
            let created = context.create_stream(wanted.clone()).await;
            created.map_err(|error| refusal(name, &error))?;
        }
        Some(_) if before.differences.is_empty() => (),
        Some(info) => {
            let merged = merge(wanted, &info.config);
            let updated = context.update_stream(merged).await;
            updated.map_err(|error| refusal(name, &error))?;
        }
    }
    Ok(before)
}

fn merge(wanted: &Config, found: &Config) -> Config {
    Config {
        placement: found.placement.clone(),
        metadata: found.metadata.clone(),
        compression: found.compression.clone(),
        republish: found.republish.clone(),
        deny_delete: found.deny_delete,
        deny_purge: found.deny_purge,
        max_consumers: found.max_consumers,
        consumer_limits: found.consumer_limits.clone(),
        allow_atomic_publish: found.allow_atomic_publish,
        allow_batch_publish: found.allow_batch_publish,
        allow_message_ttl: found.allow_message_ttl,
        ..wanted.clone()
    }
}

fn is_not_found(error: &GetStreamError) -> bool {
    match error.kind() {
        GetStreamErrorKind::JetStream(error) => {
            error.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND
        }
        _ => false,
    }
}

fn refusal(name: String, error: &dyn std::error::Error) -> StreamFailure {
    let reason = reason(error);
    // The server does not answer at all where JetStream is off, and says so where an account has
    // none.
    if ["resource does not exist", "not enabled", "jetstream unavailable"]
        .iter()
        .any(|text| reason.to_lowercase().contains(text))
    {
        return StreamFailure::NoJetStream(reason);
    }
    StreamFailure::Refused { name, reason }
}
