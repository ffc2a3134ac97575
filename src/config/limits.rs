//! Every bound of the program, with what breaks when it is too small and what when it is too large.

use std::time::Duration;

/// Largest ZeroMQ message accepted, in bytes. Too small: large stores are dropped and show as gaps.
/// Too large: one hostile length field costs that much memory.
pub const FRAME_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Live batches kept while a replay is open. Too small: a slow replay ends in `held_full` although
/// the journal had everything. Too large: memory per replica while a gap is open.
pub const HELD_BATCH_COUNT_MAX: u32 = 4096;

/// Payload bytes of the batches kept while a replay is open; the same trade, for large batches.
pub const HELD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Blocks per replica that wait for their parents. Too small: `exact` ends after a harmless burst
/// of sparse stores. Too large: a stream whose parents never come fills memory.
pub const ORPHAN_COUNT_MAX: u32 = 65_536;

/// How long a replay may stay without progress. Too small: a busy engine is asked again and again.
/// Too large: the replica stays untrusted behind a dead replay port.
pub const REPLAY_DEADLINE: Duration = Duration::from_secs(5);

/// Replays asked before the range counts as lost. Too small: one restart of a proxy costs `exact`.
/// Too large: minutes without trust for a range that will never come.
pub const ATTEMPT_COUNT_MAX: u32 = 5;

/// Silence after which a replica is probed for a lost tail. Too small: idle engines answer probes
/// all day. Too large: a lost last batch stays unseen that long.
pub const IDLE_PROBE: Duration = Duration::from_secs(10);

/// Time between looks at an engine that connects to us, also under traffic: only they can find a
/// restart that nobody saw. Too small: every look pauses the engine's publisher. Too large: a cache
/// that no longer exists is believed that long.
pub const AUDIT: Duration = Duration::from_secs(10);

/// How long trust outlives the last batch or probe. Too small: a short pause of the engine
/// withdraws trust. Too large: a dead engine is believed that long.
pub const LEASE: Duration = Duration::from_secs(60);

/// First delay before a reconnect. Too small: a restarting engine is hammered. Too large: its first
/// batches are missed.
pub const RECONNECT_MIN: Duration = Duration::from_millis(50);

/// Longest delay before a reconnect, with full jitter below it: with the rest of an attempt and the
/// handshake still under two seconds. Too small: a fleet of bridges meets a restarting engine at
/// once. Too large: a healed link stays unused.
pub const RECONNECT_MAX: Duration = Duration::from_millis(1500);

/// Batches between an adapter's socket task and its driver: seconds of a stalled index at a
/// thousand a second. Too small: a burst overflows and costs a replay. Too large: memory, and lag
/// that nobody sees.
pub const SOURCE_QUEUE_BATCHES: u32 = 4096;

/// How long an answer of an engine that is asked may bring no byte. Too small: under load the
/// engine holds the answer back, and one that is not waited for is lost with its events. Too large:
/// a host that vanished is believed as long, up to the lease.
pub const POLL_READ_DEADLINE: Duration = Duration::from_secs(60);

/// How long a connection to it may take. Too small: a busy host is taken for an absent one. Too
/// large: a route that leads nowhere is found late.
pub const POLL_CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// The least time between two requests to it. Too small: it may serve nobody else meanwhile. Too
/// large: the view lags that far behind.
pub const POLL_EVERY: Duration = Duration::from_secs(1);

/// Index writer threads. Too small: one core folds the whole fleet. Too large: threads without
/// work.
pub const INDEX_WRITER_COUNT: u32 = 1;

/// Applied envelopes kept for readers of `/v1/events`. Too small: ordinary readers lag. Too large:
/// every slow reader holds that many envelopes in memory. Full: the reader is told how many it
/// missed.
pub const EVENTS_QUEUE: u32 = 1024;

/// Readers of `/v1/events` at a time. Too small: a second look is refused. Too large: each one
/// costs an encoding of every batch.
pub const EVENTS_READER_COUNT_MAX: u32 = 16;

/// Largest request body, in bytes. Too small: a long prompt's token ids do not fit. Too large:
/// memory per request. Eight bytes a token and a million tokens fit.
pub const BODY_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Token ids or content hashes in one match. Too small: long contexts are refused. Too large: one
/// request hashes for seconds.
pub const MATCH_TOKEN_COUNT_MAX: u32 = 1_048_576;

/// HTTP connections at a time. Too small: routers are refused. Too large: garbage connections take
/// file descriptors and memory. Full: a new one is closed at once and counted.
pub const HTTP_CONNECTION_COUNT_MAX: u32 = 1024;

/// Time for the head of a request, and for a connection that is kept open between two. Too small:
/// pooled connections of a quiet router are closed. Too large: a client that dribbles holds its
/// place.
pub const HTTP_HEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Time for the body of a request. Too small: a long prompt over a slow link is refused. Too large:
/// as above.
pub const HTTP_BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Time a client may take nothing of an answer that is ready. Too small: a paused reader is cut
/// off. Too large: it holds a snapshot or a place among the readers that long.
pub const HTTP_STALL_DEADLINE: Duration = Duration::from_secs(30);

/// Time for a TLS handshake; a client on another continent needs one second.
pub const HTTP_HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Header lines of a request, and the bytes of its head. Proxies add a dozen lines and a kilobyte.
pub const HTTP_HEADER_COUNT_MAX: usize = 64;

/// See [`HTTP_HEADER_COUNT_MAX`].
pub const HTTP_HEAD_BYTES_MAX: usize = 32 * 1024;

/// Requests (resync, snapshot) that wait for one driver. Too small: two operators collide and one
/// gets a 503. Too large: requests pile up behind a stuck driver.
pub const COMMAND_QUEUE: u32 = 8;

/// Snapshots read at a time. Too small: two consumers that start together wait for each other. Too
/// large: each one holds a copy of a view. Full: the reader gets a 503.
pub const SNAPSHOT_READER_COUNT_MAX: u32 = 4;

/// Lines between a view and a snapshot's reader, in chunks of [`SNAPSHOT_CHUNK_RECORDS`].
pub const SNAPSHOT_QUEUE_CHUNKS: u32 = 4;

/// Records encoded at once. Too small: a channel hop per line. Too large: latency of the first
/// byte.
pub const SNAPSHOT_CHUNK_RECORDS: u32 = 1024;

/// Blocks of one replica whose pool is not known. Too small: a large cache is given up although it
/// is true. Too large: one runaway stream takes the memory of all. Some gigabytes, far above real
/// pools.
pub const VIEW_BLOCKS_MAX: u64 = 8 * 1024 * 1024;

/// Records of a snapshot for each block that may be kept: a block has one for each tier and group
/// that holds it. Too small: a true snapshot of a hybrid model is refused. Too large: a snapshot of
/// a thousand groups for each block takes the memory of a thousand.
pub const SNAPSHOT_RECORDS_PER_BLOCK: u64 = 8;

/// Blocks of one replica, in pools of its engine. Too small: host and disk tiers do not fit. Too
/// large: as above.
pub const VIEW_POOLS_MAX: u64 = 2;

/// Share of the container's or machine's memory that the process may take before replicas are given
/// up. Too small: memory is left unused. Too large: the kernel kills the process before it can act.
pub const MEMORY_PERCENT: u64 = 60;

/// How long tasks may take to end once nothing is read any more. Too small: writers are cut off.
/// Too large: Ctrl-C seems ignored.
pub const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// How long an orderly stop may take. Too small: checkpoints are cut off and the next process
/// begins blind. Too large: a supervisor that kills after 30 s (as Kubernetes does) cuts it off
/// itself.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(25);

/// Time between two checkpoints of a replica that moves. Too small: large views are copied and
/// written all day. Too large: after a crash the engine's journal no longer reaches back to the
/// last one.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(30);

/// Reloads that wait for the one under way. More are refused.
pub const RELOAD_QUEUE: u32 = 4;

/// How long a played recording may take to be trusted after its last batch. Too small: a gap at its
/// end is still being repaired. Too large: a wrong recording is waited for.
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(20);

/// What stream names begin with, when the configuration does not say.
pub const BUS_STREAM_PREFIX: &str = "KVHINTS";

/// What subjects of answers begin with, when the configuration does not say: the client's own.
pub const BUS_INBOX_PREFIX: &str = "_INBOX";

/// How long the bus keeps messages. Too small: a reader that restarts finds nothing to replay. Too
/// large: disk.
pub const BUS_RETENTION: Duration = Duration::from_secs(15 * 60);

/// Bytes one stream keeps, whatever their age; the same trade.
pub const BUS_RETENTION_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// How long the server knows a message id again. Too small: what is sent again after an outage is
/// stored twice. Too large: about 180 bytes of the server's memory for each id.
pub const BUS_DUPLICATE_WINDOW: Duration = Duration::from_secs(30);

/// Messages sent and not yet acknowledged. Too small: throughput of a round trip. Too large: only
/// latency, and more to send again.
pub const BUS_WINDOW: usize = 256;

/// Bytes that wait for the server, for each stream. Too small: a restart of the server blocks. Too
/// large: memory while it is away.
pub const BUS_SPOOL_BYTES: u64 = 64 * 1024 * 1024;

/// Largest spool that can be configured.
pub const BUS_SPOOL_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// How long an acknowledgement may take. Too small: a busy server is sent everything twice. Too
/// large: a stall after every lost one.
pub const BUS_ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Messages that wait for one replica's driver. Too small: a burst overflows and is read again. Too
/// large: memory for each replica, and lag that nobody sees. Full: the run is dropped, with a mark.
pub const BUS_INBOX_MESSAGES: usize = 8192;

/// Their bytes.
pub const BUS_INBOX_BYTES: usize = 32 * 1024 * 1024;

/// Messages that wait for one that they ran past: two windows of a publisher ([`BUS_WINDOW`]), the
/// most that a change of a cluster's leader was seen to swap. Too small: such a change is a gap for
/// every reader. Too large: a true gap is seen later.
pub const BUS_REORDER_MESSAGES: u64 = 512;

/// Their bytes.
pub const BUS_REORDER_BYTES: u64 = 16 * 1024 * 1024;

/// How long they wait. What was swapped comes within milliseconds; a true gap is repaired later by
/// this much.
pub const BUS_REORDER_WAIT_MS: u64 = 250;

/// Newest messages of a replica whose place on the bus is remembered. Too small: a longer gap is
/// searched for. Too large: 16 bytes each.
pub const BUS_POSITIONS: usize = 4096;

/// Messages asked for at once. Larger requests were slower: they have no flow control.
pub const BUS_BATCH_MESSAGES: u64 = 1000;

/// Their bytes, below what a server sends to one connection without being read.
pub const BUS_BATCH_BYTES: u64 = 4 * 1024 * 1024;

/// Parts of an answer between its reader and the driver. Full: the reader waits.
pub const BUS_ANSWER_PARTS: usize = 64;

/// Replays and snapshots read at a time. Too small: a process that starts learns its replicas one
/// by one. Too large: they share one connection, and each of them gets slower.
pub const BUS_REQUESTS: usize = 8;

/// Streams that are followed. Full: the others are not read, and counted.
pub const BUS_READ_STREAMS: usize = 256;

/// Replicas that are read from a bus. Too small: routers miss some. Too large: a flood of subjects
/// opens a driver for each. Full: the others are not read, and counted.
pub const BUS_READ_REPLICAS: usize = 4096;

/// Subjects of a stream noted as not read, to count each once. More is somebody making them up.
pub const BUS_UNREAD_SUBJECTS: usize = 4096;

/// Replicas found and not opened yet. Full: they are found again.
pub const BUS_FOUND_QUEUE: usize = 256;

/// How long a replica that nothing is left of is kept. Too small: a short outage of a bridge drops
/// what routers are told of. Too large: routers are told of replicas that are gone, with trust
/// none.
pub const BUS_REPLICA_GRACE_MS: u64 = 60_000;

/// Time between two snapshots of a replica that moves. Too small: views are copied and sent all
/// day. Too large: readers that come late read longer ranges of the log.
pub const BUS_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);

/// Batches after which a snapshot is stored earlier; the same trade.
pub const BUS_SNAPSHOT_BATCHES: u32 = 5000;

/// How long a driver may take to hand its view over: shorter than readers wait for a fresh one.
pub const BUS_CUT_DEADLINE: Duration = Duration::from_secs(2);

/// How long the log may take to hold what a view already does, before the snapshot is put off.
pub const BUS_SNAPSHOT_PUBLISHED: Duration = Duration::from_secs(2);

/// A fresh snapshot is not older than this.
pub const BUS_SNAPSHOT_AGAIN: Duration = Duration::from_secs(2);

/// How long a snapshot that readers are no longer sent to is kept. Too small: it is deleted under a
/// reader. Too large: disk.
pub const BUS_SNAPSHOT_GRACE: Duration = Duration::from_secs(5 * 60);

/// How long a full spool may hold a driver up before its view counts as stale.
pub const BUS_BLOCKED_MAX: Duration = Duration::from_secs(5);

/// How long the spool may take to empty at the end. Shorter than [`STOP_DEADLINE`].
pub const BUS_FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// Batches of a life that has no name on the bus yet. Too small: a log that is far behind is
/// covered by a reset. Too large: memory while the server is away. Full: the oldest goes, or the
/// source is not read, as `bus.spool_full` says.
pub const BUS_UNNAMED_BATCHES: usize = 4096;

/// The same bound in bytes.
pub const BUS_UNNAMED_BYTES: usize = 64 * 1024 * 1024;

/// How long the engine's journal may take to give what the log lacks. Too small: a busy engine
/// costs readers a reset. Too large: the log waits.
pub const BUS_FILL_DEADLINE: Duration = Duration::from_secs(10);

/// How long the log of other bridges is read for what an engine's journal lacks. Too small: a twin
/// that is a moment behind does not help. Too large: with no twin, that much longer until a view
/// goes on without what is lost, and its source is not read meanwhile.
pub const BUS_TWIN_DEADLINE: Duration = Duration::from_secs(2);

/// How far below the newest applied batch an answer may have been asked to begin and still be one
/// that the view's own place is looked for in. Too small: no hole is healed. Too large: an empty
/// view is given the end of a log for its beginning.
pub const BUS_TWIN_RUN: u64 = 64;

/// Time between two heartbeats of a bridge in the status bucket. Too small: writes without news.
/// Too large: readers believe a dead bridge, or must wait that much longer.
pub const BUS_STATUS_EVERY: Duration = Duration::from_secs(1);

/// How long a heartbeat counts. Too small: one lost heartbeat withdraws trust everywhere. Too
/// large: a dead bridge is believed that long.
pub const BUS_STATUS_TTL: Duration = Duration::from_secs(5);

/// Time between two looks at an engine's metrics. Too small: engines render text all day. Too
/// large: after a restart of one member a cache that no longer exists is believed that long.
pub const ENGINE_POLL_EVERY: Duration = Duration::from_secs(1);

/// How long such a look may take. Too small: a busy engine is never heard. Too large: as above,
/// where one member hangs.
pub const ENGINE_POLL_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of an engine's metrics; more is refused. Too small: an engine with many ranks and
/// histograms (about 100 KiB each) is not heard. Too large: what answers there takes that memory.
pub const ENGINE_METRICS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Members of one engine. The largest tensor-parallel groups are a few dozen.
pub const ENGINE_MEMBER_COUNT_MAX: usize = 256;

/// Where the ZeroMQ bus publishes and answers, when the configuration does not say: the loopback,
/// because nobody is asked who they are.
pub const ZMQ_LIVE: &str = "127.0.0.1:5570";

/// See [`ZMQ_LIVE`].
pub const ZMQ_REQUESTS: &str = "127.0.0.1:5571";

/// Bytes of messages that the journal of a ZeroMQ bus keeps; its file takes up to about twice that.
/// Too small: a reader that was away needs a snapshot. Too large: disk.
pub const ZMQ_JOURNAL_BYTES: u64 = 1024 * 1024 * 1024;

/// Memory in which the journal keeps pages of its file. Too small: replays of the newest messages
/// read the disk. Too large: memory that the kernel's own cache would have given.
pub const ZMQ_JOURNAL_CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Messages written to the journal at once, with one sync of the disk. Too small: throughput of the
/// disk's syncs. Too large: latency of the first of them.
pub const ZMQ_GROUP_MAX: usize = 256;

/// Messages in one answer to a replay request, and their bytes. Too small: a round trip for each
/// few. Too large: that much memory for each reader that asks and does not read.
pub const ZMQ_CHUNK_MESSAGES_MAX: usize = 256;

/// See [`ZMQ_CHUNK_MESSAGES_MAX`].
pub const ZMQ_CHUNK_BYTES_MAX: usize = 1024 * 1024;

/// Requests answered at a time. Too small: readers wait for each other. Too large: as many reads of
/// the journal at once. Full: the request is refused as busy.
pub const ZMQ_REQUESTS_MAX: usize = 8;

/// Peers of which it is known what they have read. Too small: a reader among many is answered as if
/// it were new. Too large: some bytes each. Full: the one that was silent longest is forgotten.
pub const ZMQ_PEERS_MAX: usize = 1024;

/// Time between two looks at which replicas a bridge has. Too small: as many requests for nothing.
/// Too large: a new replica stays unread that long.
pub const ZMQ_LIST_EVERY: Duration = Duration::from_secs(2);

/// Time between two heartbeats of a replica. Too small: traffic without news. Too large: a lost
/// last message and a silent bridge are noticed late.
pub const BUS_HEARTBEAT: Duration = Duration::from_secs(1);

/// Replicas that are read from one bus. Too small: a fleet is cut. Too large: whoever can write to
/// the bus makes as many tasks and views here. Full: further ones are left out, and it is logged.
pub const BUS_REPLICAS_MAX: usize = 4096;

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
