//! Every bound of the program, with what breaks when it is too small and what when it is too large.

use std::time::Duration;

/// Largest ZeroMQ message accepted, in bytes. Too small: large stores are dropped and show as gaps.
/// Too large: one hostile length field costs that much memory.
pub const FRAME_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Live batches kept while a replay is open. Too small: a slow replay ends in `held_full` although the
/// journal had everything. Too large: memory per replica while a gap is open.
pub const HELD_BATCH_COUNT_MAX: u32 = 4096;

/// Payload bytes of the batches kept while a replay is open; the same trade, for large batches.
pub const HELD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Blocks per replica that wait for their parents. Too small: `exact` ends after a harmless burst of
/// sparse stores. Too large: a stream whose parents never come fills memory.
pub const ORPHAN_COUNT_MAX: u32 = 65_536;

/// How long a replay may stay without progress. Too small: a busy engine is asked again and again.
/// Too large: the replica stays untrusted behind a dead replay port.
pub const REPLAY_DEADLINE: Duration = Duration::from_secs(5);

/// Replays asked before the range counts as lost. Too small: one restart of a proxy costs `exact`.
/// Too large: minutes without trust for a range that will never come.
pub const ATTEMPT_COUNT_MAX: u32 = 5;

/// Silence after which a replica is probed for a lost tail. Too small: idle engines answer probes all
/// day. Too large: a lost last batch stays unseen that long.
pub const IDLE_PROBE: Duration = Duration::from_secs(10);

/// How long trust outlives the last batch or probe. Too small: a short pause of the engine withdraws
/// trust. Too large: a dead engine is believed that long.
pub const LEASE: Duration = Duration::from_secs(60);

/// First delay before a reconnect. Too small: a restarting engine is hammered. Too large: its first
/// batches are missed.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);

/// Longest delay before a reconnect, with full jitter below it. Too small: a fleet of bridges meets a
/// restarting engine at once. Too large: a healed link stays unused.
pub const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// Batches between an adapter's socket task and its driver: seconds of a stalled index at a thousand a
/// second. Too small: a burst overflows and costs a
/// replay. Too large: memory, and lag that nobody sees.
pub const SOURCE_QUEUE_BATCHES: u32 = 4096;

/// Index writer threads. Too small: one core folds the whole fleet. Too large: threads without work.
pub const INDEX_WRITER_COUNT: u32 = 1;

/// Applied envelopes kept for readers of `/v1/events`. Too small: ordinary readers lag. Too large:
/// every slow reader holds that many envelopes in memory. Full: the reader is told how many it missed.
pub const EVENTS_QUEUE: u32 = 1024;

/// Readers of `/v1/events` at a time. Too small: a second look is refused. Too large: each one costs
/// an encoding of every batch.
pub const EVENTS_READER_COUNT_MAX: u32 = 16;

/// Largest request body, in bytes. Too small: a long prompt's token ids do not fit. Too large: memory
/// per request. Eight bytes a token and a million tokens fit.
pub const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Token ids or content hashes in one match. Too small: long contexts are refused. Too large: one
/// request hashes for seconds.
pub const MATCH_TOKEN_COUNT_MAX: u32 = 1_048_576;

/// Requests (resync, snapshot) that wait for one driver. Too small: two operators collide and one gets
/// a 503. Too large: requests pile up behind a stuck driver.
pub const COMMAND_QUEUE: u32 = 8;

/// Snapshots read at a time. Too small: two consumers that start together wait for each other. Too
/// large: each one holds a copy of a view. Full: the reader gets a 503.
pub const SNAPSHOT_READER_COUNT_MAX: u32 = 4;

/// Lines between a view and a snapshot's reader, in chunks of [`SNAPSHOT_CHUNK_RECORDS`].
pub const SNAPSHOT_QUEUE_CHUNKS: u32 = 4;

/// Records encoded at once. Too small: a channel hop per line. Too large: latency of the first byte.
pub const SNAPSHOT_CHUNK_RECORDS: u32 = 1024;

/// How long an orderly stop may take. Too small: checkpoints are cut off and the next process begins
/// blind. Too large: a supervisor that kills after 30 s (as Kubernetes does) cuts it off itself.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// Time between two checkpoints of a replica that moves. Too small: large views are copied and written
/// all day. Too large: after a crash the engine's journal no longer reaches back to the last one.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(30);

/// Reloads that wait for the one under way. More are refused.
pub const RELOAD_QUEUE: u32 = 4;

/// How long a played recording may take to be trusted after its last batch. Too small: a gap at its
/// end is still being repaired. Too large: a wrong recording is waited for.
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(20);

/// The bounds that an operator can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u64,
    /// See [`ORPHAN_COUNT_MAX`].
    pub orphan_count_max: u32,
    /// See [`SOURCE_QUEUE_BATCHES`].
    pub source_queue_batches: u32,
    /// See [`RECONNECT_MIN`].
    pub reconnect_min: Duration,
    /// See [`RECONNECT_MAX`].
    pub reconnect_max: Duration,
    /// See [`BODY_BYTES_MAX`].
    pub body_bytes_max: u64,
    /// See [`MATCH_TOKEN_COUNT_MAX`].
    pub match_token_count_max: u32,
    /// See [`EVENTS_QUEUE`].
    pub events_queue: u32,
    /// See [`EVENTS_READER_COUNT_MAX`].
    pub events_reader_count_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            frame_bytes_max: FRAME_BYTES_MAX,
            orphan_count_max: ORPHAN_COUNT_MAX,
            source_queue_batches: SOURCE_QUEUE_BATCHES,
            reconnect_min: RECONNECT_MIN,
            reconnect_max: RECONNECT_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            match_token_count_max: MATCH_TOKEN_COUNT_MAX,
            events_queue: EVENTS_QUEUE,
            events_reader_count_max: EVENTS_READER_COUNT_MAX,
        }
    }
}
