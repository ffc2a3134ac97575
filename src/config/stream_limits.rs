//! Bounds of what readers of a sink that open streams are told.

use std::time::Duration;

/// Streams of one replica, and connections to its port. Too small: not all replicas of a gateway
/// are fed. Too large: each may hold a whole view in bytes, and what waits for it. Full: a stream
/// is refused, a connection closed.
pub const SINK_STREAMS_MAX: usize = 64;

/// Streams of one connection. A gateway opens one; another while the first still ends.
pub const SINK_STREAMS_OF_CONNECTION: u32 = 8;

/// Batches that wait for one reader. Too small: a burst costs it the whole view. Too large: memory,
/// and decisions on what is long gone. Full: its stream ends, and it begins anew.
pub const SINK_STREAM_BATCHES: usize = 1024;

/// Their bytes; the same trade.
pub const SINK_STREAM_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of a request: it holds a number. Too large: a peer decides about our memory.
pub const SINK_STREAM_REQUEST_BYTES: usize = 1024;

/// Bytes of its head; the same.
pub const SINK_STREAM_HEAD_BYTES: u32 = 16 * 1024;

/// Between two pings to a reader, and how long an answer may take. Too small: a busy reader is hung
/// up on. Too large: one whose host vanished keeps its place.
pub const SINK_PING_EVERY: Duration = Duration::from_secs(20);

/// See [`SINK_PING_EVERY`].
pub const SINK_PING_DEADLINE: Duration = Duration::from_secs(20);

/// Wait after a failed accept. Out of file descriptors it fails again at once.
pub const SINK_ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long readers may take to read that everything is gone, when a replica or the program ends.
/// Too small: they go on with what is gone. Too large: the end waits for one that does not read.
pub const SINK_STREAM_END: Duration = Duration::from_secs(1);
