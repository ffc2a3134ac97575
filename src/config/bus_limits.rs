//! Every bound of a bus, with what breaks when it is too small and what when too large.

use std::time::Duration;

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

/// How long the spool may take to empty at the end. Shorter than
/// [`STOP_DEADLINE`](super::limits::STOP_DEADLINE).
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

/// Replicas whose views are stored for readers that ask, at a time. Too small: readers of a fleet
/// that starts wait for each other. Too large: each one is a copy of a view. Full: whoever asks is
/// told to come again.
pub const BUS_SNAPSHOTS_AT_ONCE: usize = 2;

/// How long a view may take to be stored before others are begun beside it: nobody waits longer
/// for it. Too small: more at a time than the limit says. Too large: large views keep small ones
/// waiting.
pub const BUS_SNAPSHOT_IN_TIME_MS: u64 = 4_000;

/// Views that may take longer than that while others are begun. Too small: two that stand still
/// stop everything. Too large: as many copies of views more.
pub const BUS_SNAPSHOTS_SLOW: usize = 2;

/// Readers that wait for views of one bridge. Too small: an index that starts in many places is
/// sent away. Too large: some bytes each. Full: as above.
pub const BUS_SNAPSHOT_ASKERS: usize = 256;

/// Dead replicas whose views are looked at in one sweep. Too small: a fleet that was renamed is
/// swept for hours. Too large: as many questions to the server at once.
pub const BUS_SWEEP_REPLICAS: usize = 64;

/// Time between two heartbeats of a bridge, on any bus. Too small: writes without news.
/// Too large: readers believe a dead bridge, or must wait that much longer.
pub const BUS_HEARTBEAT: Duration = Duration::from_secs(1);

/// Time between two renewals of the lease on an engine that is drained, and between two tries to
/// get it. Too small: writes without news. Too large: a bridge that ends in order is missed that
/// long.
pub const BUS_LEASE_RENEW: Duration = Duration::from_millis(500);

/// By how much a holder's lease ends before the bus forgets it. Too small: two bridges ask one
/// engine while clocks of two machines run apart. Too large: a short cut from the bus ends it.
pub const BUS_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// How long the bus may take to answer for a lease. Too large: a lost answer costs the lease.
pub const BUS_LEASE_ASK: Duration = Duration::from_secs(1);

/// How long a new holder waits for its view to reach the end of the log. Too small: it goes on
/// below the end, and takes for lost what the log has. Too large: nobody asks the engine meanwhile.
pub const BUS_LEASE_CATCH_UP: Duration = Duration::from_secs(2);

/// How long a heartbeat counts. Too small: one lost heartbeat withdraws trust everywhere. Too
/// large: a dead bridge is believed that long. A lease on an engine is kept as long.
pub const BUS_STATUS_TTL: Duration = Duration::from_secs(5);

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

/// Replicas that are read from one bus. Too small: a fleet is cut. Too large: whoever can write to
/// the bus makes as many tasks and views here. Full: further ones are left out, and it is logged.
pub const BUS_REPLICAS_MAX: usize = 4096;
