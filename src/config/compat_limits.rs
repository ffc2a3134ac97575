//! Bounds of what clients of other programs are answered.

use std::time::Duration;

/// Consumers of one replica's events. Too small: a fleet's routers of several kinds. Too large: a
/// name that changes with every request takes all places, and memory.
pub const KV_EVENTS_CONSUMERS: u32 = 16;

/// Steps of one replica kept for consumers that are behind, 50 bytes each and their tokens. Too
/// small: one that asks once a second is told everything again. Too large: memory.
pub const KV_EVENTS_STEPS: u32 = 65_536;

/// Silence after which a consumer is forgotten. Too small: a router that is idle for long is told
/// everything again, without that what it knows is gone. Too large: those that never come back hold
/// their places.
pub const KV_EVENTS_IDLE: Duration = Duration::from_secs(600);

/// Blocks of one answer, some 100 bytes each and 55 for each token. Fewer: a late consumer asks
/// often. More: memory for each request.
pub const KV_EVENTS_ANSWER_BLOCKS: usize = 8_192;

/// Bytes of a consumer's name.
pub const KV_EVENTS_CONSUMER_BYTES_MAX: usize = 128;

/// Where the HTTP of Dynamo's indexer is answered. Its own port is that of our API.
pub const COMPAT_DYNAMO_LISTEN: &str = "127.0.0.1:8092";

/// Bytes of a registration at it; it names one endpoint.
pub const COMPAT_BODY_BYTES_MAX: usize = 64 * 1024;

/// Events of a dump that are encoded at once, and how many such pieces wait for a reader. Fewer: a
/// channel hop per event. More: memory for a reader that is slow.
pub const COMPAT_DUMP_CHUNK_EVENTS: usize = 1024;

/// See [`COMPAT_DUMP_CHUNK_EVENTS`].
pub const COMPAT_DUMP_QUEUE_CHUNKS: usize = 4;
