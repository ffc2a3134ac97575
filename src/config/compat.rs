//! `[compat]`: APIs of other programs, so that their clients can ask this one.

use std::{net::SocketAddr, time::Duration};

use super::{file::Span, limits, validate::Check};

/// APIs of other programs that are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompatConfig {
    /// The HTTP of Dynamo's indexer; absent = not answered.
    pub dynamo: Option<DynamoConfig>,
    /// Events as of an engine that is drained; absent = none are kept for consumers.
    pub kv_cache_events: Option<KvEventsConfig>,
}

/// The HTTP of Dynamo's indexer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamoConfig {
    /// Where it listens: its paths are those of a program of its own.
    pub listen: SocketAddr,
    /// Which engine a registered endpoint is, where the request does not tell; absent = the first
    /// of this build.
    pub engine: Option<String>,
}

/// Events as of an engine that is drained, for any number of consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Blocks are told with their tokens, to those who may see prompts.
    pub tokens: bool,
    /// See [`limits::KV_EVENTS_CONSUMERS`].
    pub consumer_count_max: u32,
    /// See [`limits::KV_EVENTS_STEPS`].
    pub step_count_max: u32,
    /// See [`limits::KV_EVENTS_IDLE`].
    pub idle: Duration,
    /// How long trust may be away before consumers are told that everything is gone.
    pub grace: Duration,
    /// Messages of drivers that may wait.
    pub queue_messages: u32,
}

/// `[compat]` as typed.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatFile {
    /// Present = answered.
    pub dynamo: Option<DynamoFile>,
    /// Present = kept.
    pub kv_cache_events: Option<KvEventsFile>,
}

/// `[compat.kv_cache_events]` as typed.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvEventsFile {
    /// Blocks are told with their tokens.
    pub tokens: Option<bool>,
    /// Consumers of one replica.
    pub consumers_max: Option<u32>,
    /// Steps kept for those that are behind.
    pub steps: Option<u32>,
    /// Silence after which a consumer is forgotten.
    pub idle: Option<Span>,
    /// How long trust may be away.
    pub grace: Option<Span>,
    /// Messages of drivers that may wait.
    pub queue: Option<u32>,
}

/// `[compat.dynamo]` as typed.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamoFile {
    /// Where it listens.
    pub listen: Option<String>,
    /// Listen beyond the loopback although nobody is asked who they are.
    pub insecure: Option<bool>,
    /// Which engine a registered endpoint is.
    pub engine: Option<String>,
}

impl Check<'_> {
    /// `asks` = the API asks everybody who they are, and so does this.
    pub(super) fn compat(&mut self, file: CompatFile, asks: bool) -> CompatConfig {
        CompatConfig {
            dynamo: file.dynamo.map(|file| self.dynamo(file, asks)),
            kv_cache_events: file.kv_cache_events.map(|file| self.kv_events(&file)),
        }
    }

    fn kv_events(&mut self, file: &KvEventsFile) -> KvEventsConfig {
        let at = |field| format!("compat.kv_cache_events.{field}");
        let consumers = limits::KV_EVENTS_CONSUMERS;
        KvEventsConfig {
            tokens: file.tokens.unwrap_or(false),
            consumer_count_max: self.count(&at("consumers_max"), file.consumers_max, consumers),
            step_count_max: self.count(&at("steps"), file.steps, limits::KV_EVENTS_STEPS),
            idle: self.span(&at("idle"), file.idle, limits::KV_EVENTS_IDLE),
            grace: self.span(&at("grace"), file.grace, limits::SINK_GRACE),
            queue_messages: self.count(&at("queue"), file.queue, limits::SINK_QUEUE_MESSAGES),
        }
    }

    fn dynamo(&mut self, file: DynamoFile, asks: bool) -> DynamoConfig {
        let at = "compat.dynamo.listen";
        let listen = self.bus_address(at, file.listen.as_deref(), limits::COMPAT_DYNAMO_LISTEN);
        if !listen.ip().is_loopback() && !asks && !file.insecure.unwrap_or(false) {
            let message = "is not the loopback, and nobody is asked who they are: set \
                           http.tokens_file or http.tls.client_ca, or insecure here";
            self.note(at, message);
        }
        if file.engine.as_deref() == Some("") {
            self.note("compat.dynamo.engine", "must not be empty");
        }
        DynamoConfig { listen, engine: file.engine }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, FileText, Flags, Problems, load};

    fn config(text: &str) -> Result<Config, Problems> {
        let file = FileText { name: "kvbridge.toml".to_owned(), text: text.to_owned() };
        load(Some(&file), &[], Flags::default())
    }

    #[test]
    fn an_empty_block_answers_at_the_loopback_and_none_answers_nowhere() {
        assert_eq!(config("").unwrap().compat.dynamo, None);
        let dynamo = config("[compat.dynamo]\n").unwrap().compat.dynamo.unwrap();
        assert_eq!((dynamo.listen.to_string().as_str(), dynamo.engine), ("127.0.0.1:8092", None));
    }

    #[test]
    fn beyond_the_loopback_somebody_is_asked_or_it_is_said_that_nobody_is() {
        let open = "[compat.dynamo]\nlisten = \"0.0.0.0:1\"\n";
        let problems = config(open).unwrap_err().to_string();
        assert!(problems.contains("compat.dynamo.listen: is not the loopback"), "{problems}");
        assert!(config(&format!("{open}insecure = true\n")).is_ok());
        assert!(config(&format!("{open}[http]\ntokens_file = \"t\"\n")).is_ok());
        assert!(config("[compat.dynamo]\nengine = \"\"\n").is_err());
    }
}
