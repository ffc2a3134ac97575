//! `[[sources]]` as typed, in a file, in variables, on the command line or over HTTP.

use super::{DiscoverFile, Options};

/// `[[sources]]`: one engine process, all its data-parallel ranks; or as many as a name leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Which engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Where its events are published, `tcp://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Its HTTP server, `http://host:port`: asked for its events, or for where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where its journal answers, `tcp://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Where it answers what it holds, `tcp://host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The engine has one tier, and one page for each hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain_cache: Option<bool>,
    /// The served model's name, as routers say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What a router sends requests to; a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Rank of the first data-parallel rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many ranks follow each other at port + r.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dp: Option<u32>,
    /// The engine connects to us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<bool>,
    /// ZeroMQ topic prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The library that reads the sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Event tags that the operator knows to be harmless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_tags: Option<Vec<String>>,
    /// How many blocks the engine's device holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_blocks: Option<u64>,
    /// The engine's own metrics, `http://host:port/metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Where each process of the engine tells when it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
    /// Where the engine is asked to empty its cache, `http://host:port/path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<String>,
    /// How the engine hashes its blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_scheme: Option<String>,
    /// The seed of its first blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<String>,
    /// What the entry is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A name that leads to the engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discover: Option<DiscoverFile>,
    /// What only an adapter of the program understands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
}
