//! What an engine's server tells of where its events are.

/// Ranks of one engine process. The largest deployments published use a few hundred; beyond that a
/// foreign number would open sockets by the thousand.
pub const RANK_COUNT_MAX: usize = 1024;

/// Where an engine's events are, in its own words: hosts may be wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSources {
    /// The served model's name, where the same answer has it.
    pub model: Option<String>,
    /// Tokens per block, likewise.
    pub block_size: Option<u32>,
    /// How block hashes are computed, likewise.
    pub algorithm: Option<String>,
    /// How the events are got.
    pub streams: Streams,
}

/// How the events of an engine are got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Each rank publishes, in the order of ranks.
    Published(Vec<RankStream>),
    /// The server itself is asked for the events of all ranks.
    Drained,
}

/// Where the events of one rank are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankStream {
    /// Its number.
    pub rank: u32,
    /// Where it publishes.
    pub endpoint: String,
    /// Where its journal answers.
    pub replay: Option<String>,
    /// Where it says all that it holds.
    pub snapshot: Option<String>,
    /// What its topics begin with.
    pub topic: String,
}

/// Why an answer names no sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourcesFault {
    /// It is not an answer of this engine.
    #[error("is no answer of this engine")]
    Foreign,
    /// The engine says that it publishes no events.
    #[error("the engine publishes no events")]
    NotPublishing,
    /// It is the engine's, and a field is of no use.
    #[error("field {0} is of no use")]
    Unusable(&'static str),
}
