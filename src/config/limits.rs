//! Every bound of the program, with what breaks when it is too small and what when it is too large.

use std::time::Duration;

pub use super::{bus_limits::*, compat_limits::*};

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

/// Engines asked for a replay or a snapshot at once, each by one of its ranks. Too small: a fleet
/// that starts together is untrusted for long. Too large: all its journals arrive at once, on our
/// cores and while every engine's publisher thread is busy with them.
pub const RECOVERY_PARALLEL: u32 = 8;

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

/// How long other ranks of an instance may speak before one that never did is missing. Too small: a
/// rank that starts a little later rings. Too large: a wrong port is found late.
pub const RANK_MISSING: Duration = Duration::from_secs(30);

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

/// Candidates of one route. Too small: a large fleet is refused. Too large: one request judges and
/// answers for milliseconds.
pub const ROUTE_CANDIDATE_COUNT_MAX: usize = 4096;

/// One route decision of so many is logged. Too small: the log grows with the traffic. Too large: a
/// person who looks sees none.
pub const ROUTE_LOG_ONE_OF: u64 = 1000;

/// How long `/readyz` waits for a first proof of the replicas. Too small: a restarted router is
/// sent requests that it can only route by load. Too large: an engine that is down keeps it out
/// of service that long.
pub const READY_MAX_WAIT: Duration = Duration::from_secs(60);

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

/// Time between two requests for where an engine's events are. Too small: engines answer all day.
/// Too large: one that restarted on other ports is looked for at the old ones that long.
pub const DISCOVERY_REFRESH: Duration = Duration::from_secs(30);

/// Time between two looks at a name that leads to engines. Too small: name servers answer all day.
/// Too large: a new engine gets no prefix matches that long.
pub const DISCOVERY_RESOLVE: Duration = Duration::from_secs(5);

/// How long a name may leave an engine out. Too small: a rollout or a readiness probe that fails
/// once costs a view that is still true. Too large: routers are told of an engine that is gone.
pub const DISCOVERY_GRACE: Duration = Duration::from_secs(30);

/// How long one try of a look may take; there are two. Too small: a busy name server is taken for
/// an absent one. Too large: a look holds a place among [`DISCOVERY_OPEN_MAX`].
pub const RESOLVE_DEADLINE: Duration = Duration::from_secs(2);

/// First wait after such a request without an answer, doubled up to [`DISCOVERY_REFRESH`]. Without
/// jitter: a request is small, and bridges that start together ask different engines.
pub const DISCOVERY_RETRY: Duration = Duration::from_secs(1);

/// How long such a request may take. Too small: a busy engine is never heard. Too large: one that
/// hangs holds a place among [`DISCOVERY_OPEN_MAX`].
pub const DISCOVERY_DEADLINE: Duration = Duration::from_secs(5);

/// Requests under way at a time, of all engines together. Too small: a few that hang keep the
/// others waiting. Too large: a start of a large fleet opens as many sockets at once.
pub const DISCOVERY_OPEN_MAX: usize = 16;

/// Bytes of an answer; more is refused. Too small: an engine that shows all its settings (some
/// hundred KiB with many ranks) is not heard. Too large: what answers there takes that memory.
pub const DISCOVERY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Engines that one entry may lead to. Too small: a large deployment is seen in part. Too large:
/// whoever writes the name's zone opens sockets here by the thousand.
pub const DISCOVERY_ENGINES_MAX: usize = 1024;

/// Sources that are added over HTTP. Too small: an operator that adds each pod is refused. Too
/// large: whoever may write opens sockets by the thousand.
pub const ADDED_SOURCES_MAX: usize = 1024;

/// Bytes of one such source. Too small: one with hundreds of members is refused. Too large: the
/// file of all of them takes that much for each.
pub const SOURCE_BODY_BYTES_MAX: usize = 64 * 1024;

/// How long an engine that is asked to empty its cache may take to answer. Too small: one in the
/// middle of a long step counts as away. Too large: a job waits for a host that vanished.
pub const FLUSH_DEADLINE: Duration = Duration::from_secs(15);

/// Engines that one job may ask at a time. Too small: a large fleet takes long. Too large: as many
/// sockets at once, and a fleet without its caches.
pub const JOB_PARALLEL_MAX: usize = 256;

/// The longest that one replica of a job may take. Too small: an engine that is idle all night
/// cannot be waited for. Too large: jobs that nobody knows of any more hold their places.
pub const JOB_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Bytes of an order of a job; it names one model or replica.
pub const JOB_BODY_BYTES_MAX: usize = 16 * 1024;

/// Changes of its standing that are remembered of a replica. Too small: what led to an incident is
/// gone before anybody looks. Too large: 40 bytes each, and every look at them reads that much.
pub const STANDING_CHANGES_MAX: usize = 64;

/// Requests about sources that wait for the one under way. More are refused.
pub const SOURCE_QUEUE_REQUESTS: usize = 16;

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

impl Limits {
    /// [`Limits::orphan_count_max`], as views count.
    pub(crate) fn orphans_max(&self) -> usize {
        usize::try_from(self.orphan_count_max).unwrap_or(usize::MAX)
    }
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

/// Sinks of one process. Too small: a fleet's routers of several kinds. Too large: each costs two
/// sockets, a thread and a copy of what it told for each replica.
pub const SINK_COUNT_MAX: usize = 64;

/// Where a sink publishes rank 0, and where it answers.
pub const SINK_LISTEN: &str = "127.0.0.1:6557";
/// A hundred ports above: rank r is at port + r in both.
pub const SINK_REPLAY: &str = "127.0.0.1:6657";

/// How long trust may be away before a router is told that everything is gone. Too small: each gap
/// that a replay closes costs the whole view twice. Too large: a router goes on with what nobody
/// believes.
pub const SINK_GRACE: Duration = Duration::from_secs(2);

/// Silence after which a sink sends an empty batch. Too small: traffic for nothing. Too large: a
/// router that lost the last batch, or came late to an idle engine, stays wrong that long.
pub const SINK_HEARTBEAT: Duration = Duration::from_secs(2);

/// Messages of drivers that wait for a sink. Too small: a burst costs the whole views again. Too
/// large: memory, and lag that nobody sees. Full: the message is dropped and counted, and every
/// view is told again.
pub const SINK_QUEUE_MESSAGES: u32 = 4096;

/// Batches that a sink keeps of each replica for readers that lost some. Too small: a short break
/// costs the whole view. Too large: memory.
pub const SINK_JOURNAL_BATCHES: usize = 10_000;

/// Their bytes; the same trade.
pub const SINK_JOURNAL_BYTES: usize = 32 * 1024 * 1024;

/// Numbers after which a line that began at 0 begins there again. Too small: every reader gets the
/// whole view that often. Too large: a late reader is answered with as many empty batches, some 30
/// bytes each.
pub const SINK_RENUMBER_AFTER: u64 = 500_000;

/// Answers of one answering socket under way at a time. Too small: a few slow readers make the
/// others wait. Too large: each may hold the whole view of one replica in bytes.
pub const SINK_ANSWERS_MAX: usize = 4;

/// Requests that wait for such a place. Too small: readers that come together are refused, and some
/// of them never ask again. Too large: memory that peers decide about, some bytes for each replica
/// that is published there. Full: the request is refused and counted.
pub const SINK_ASKED_MAX: usize = 1024;

/// Bytes of answers that may wait for one peer. Too small: an answer stops and goes. Too large:
/// memory for each peer that asks and does not read.
pub const SINK_ANSWER_WINDOW: usize = 1024 * 1024;

/// How long a peer may take nothing of its answer. Too small: a reader that is busy is given up,
/// and may wait for the rest for ever. Too large: four that do not read keep all others waiting.
pub const SINK_ANSWER_STALL: Duration = Duration::from_secs(10);

/// Time between two tries to bind a port that is taken. Too small: a line in the log each time. Too
/// large: a port that is free again stays unused.
pub const SINK_BIND_RETRY: Duration = Duration::from_secs(1);

/// Readers that a sink connects to. Too small: not all replicas of a router are fed. Too large:
/// each costs a task, and up to 32 MiB and a whole view in bytes while it is behind.
pub const SINK_CONNECT_MAX: usize = 16;

/// Refused replicas of a sink that the log names, each once. Too small: some are only counted. Too
/// large: a log that grows with names that come and go.
pub const SINK_REFUSED_NAMED: usize = 256;

/// Topic prefixes that such a reader may listen to; beyond them its connection is ended. One is
/// usual. Too large: a peer decides about our memory.
pub const SINK_PREFIXES_MAX: usize = 64;
