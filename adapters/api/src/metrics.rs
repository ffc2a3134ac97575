//! What an engine says of itself beside its events.

/// Figures of one rank, as far as the engine gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// When the process that answered started, unix ms.
    pub started_ms: Option<u64>,
    /// Blocks of the rank's device cache.
    pub pool_blocks: Option<u64>,
    /// Tokens per block of it.
    pub block_size: Option<u32>,
    /// Requests that the rank has ended since it started.
    pub request_count: Option<u64>,
    /// Tokens that the rank looked up in its cache since then.
    pub queried_tokens: Option<u64>,
    /// Of these, those that it had.
    pub hit_tokens: Option<u64>,
}
