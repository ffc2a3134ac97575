//! Bounds of what clients of other programs are answered.

/// Where the HTTP of Dynamo's indexer is answered. Its own port is that of our API.
pub const COMPAT_DYNAMO_LISTEN: &str = "127.0.0.1:8092";

/// Bytes of a registration at it; it names one endpoint.
pub const COMPAT_BODY_BYTES_MAX: usize = 64 * 1024;

/// Events of a dump that are encoded at once, and how many such pieces wait for a reader. Fewer: a
/// channel hop per event. More: memory for a reader that is slow.
pub const COMPAT_DUMP_CHUNK_EVENTS: usize = 1024;

/// See [`COMPAT_DUMP_CHUNK_EVENTS`].
pub const COMPAT_DUMP_QUEUE_CHUNKS: usize = 4;
