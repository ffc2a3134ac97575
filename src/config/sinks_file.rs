//! `[[sinks]]` as typed.

use super::file::{Span, TlsFile};

/// `[[sinks]]`: one router, fed with the ranks of one instance, or with all replicas by topic.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkFile {
    /// What it is called.
    pub name: Option<String>,
    /// Which router reads it.
    pub preset: Option<String>,
    /// Where rank 0 is published.
    pub listen: Option<String>,
    /// Where its past is asked for.
    pub replay: Option<String>,
    /// All replicas are published there, each under its topic.
    pub one_socket: Option<bool>,
    /// Readers that bind, and are connected to.
    pub connect: Option<Vec<String>>,
    /// The topic of a replica.
    pub topic: Option<String>,
    /// Listen beyond the loopback although nobody is asked who they are.
    pub insecure: Option<bool>,
    /// Encryption, where readers open streams.
    pub tls: Option<TlsFile>,
    /// Who may open one.
    pub tokens_file: Option<String>,
    /// Whose replicas are told.
    pub instance: Option<String>,
    /// Of which models.
    pub models: Option<Vec<String>>,
    /// Which tiers are told.
    pub tiers: Option<Vec<String>>,
    /// Tokens of a block that is told.
    pub block_size: Option<u32>,
    /// Tokens of an engine's block that those are made of.
    pub engine_block_size: Option<u32>,
    /// How long trust may be away.
    pub grace: Option<Span>,
    /// Silence after which an empty batch is sent.
    pub heartbeat: Option<Span>,
    /// Messages of drivers that may wait.
    pub queue: Option<u32>,
}
