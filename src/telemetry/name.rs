//! Metric names, `kvbridge_<noun>_<unit>_total`.

/// Live batches received from the source.
pub const BATCHES_RECEIVED: &str = "kvbridge_batches_received_total";
/// Batches folded into the view, live or replayed.
pub const BATCHES_APPLIED: &str = "kvbridge_batches_applied_total";
/// Batches of which something could not be read.
pub const BATCHES_LOSSY: &str = "kvbridge_batches_lossy_total";
/// Every fact of the state machine.
pub const FACTS: &str = "kvbridge_facts_total";
/// Gaps in the live stream.
pub const GAPS: &str = "kvbridge_gaps_total";
/// Batches that were missing in them.
pub const MISSING_BATCHES: &str = "kvbridge_missing_batches_total";
/// Returns to a settled state.
pub const RESYNCS: &str = "kvbridge_resyncs_total";
/// Replicas that were asked to come back, by a resync or a flush.
pub const DELIBERATE_RESYNCS: &str = "kvbridge_deliberate_resyncs_total";
/// How long trust was withdrawn before one.
pub const RESYNC_DURATION: &str = "kvbridge_resync_duration_seconds";
/// New lives of a replica's cache.
pub const EPOCH_CHANGES: &str = "kvbridge_epoch_changes_total";
/// 1 for the state the replica is in, else 0.
pub const READINESS: &str = "kvbridge_readiness";
/// Time since the view last changed or was proven.
pub const CURSOR_AGE: &str = "kvbridge_cursor_age_seconds";
/// Blocks in the view.
pub const VIEW_BLOCKS: &str = "kvbridge_view_blocks";
/// Live messages received by the socket.
pub const SOURCE_FRAMES: &str = "kvbridge_source_frames_total";
/// Their bytes.
pub const SOURCE_BYTES: &str = "kvbridge_source_bytes_total";
/// Messages of a wrong shape.
pub const SOURCE_MALFORMED: &str = "kvbridge_source_malformed_frames_total";
/// Live messages dropped because our own queue was full.
pub const SOURCE_OVERFLOWED: &str = "kvbridge_source_overflowed_frames_total";
/// Live connections made.
pub const SOURCE_ATTACHED: &str = "kvbridge_source_connections_total";
/// Live connections that could not be made.
pub const SOURCE_CONNECT_FAILED: &str = "kvbridge_source_connection_failures_total";
/// Replay requests started.
pub const SOURCE_REPLAYS: &str = "kvbridge_source_replays_total";
/// Replays that ended without an end marker.
pub const SOURCE_REPLAYS_FAILED: &str = "kvbridge_source_replay_failures_total";
/// Looks at an engine's metrics that told nothing.
pub const ENGINE_POLLS_FAILED: &str = "kvbridge_engine_polls_failed_total";
/// Engines that are looked for, by what is known of them.
pub const DISCOVERY_ENGINES: &str = "kvbridge_discovery_engines";
/// Requests for an engine's sources that told nothing.
pub const DISCOVERY_FAILED: &str = "kvbridge_discovery_failures_total";
/// Checkpoints written.
pub const CHECKPOINTS_WRITTEN: &str = "kvbridge_checkpoints_written_total";
/// Checkpoints that could not be written.
pub const CHECKPOINTS_FAILED: &str = "kvbridge_checkpoint_failures_total";
/// Time from a copy of the view to the file in its place.
pub const CHECKPOINT_DURATION: &str = "kvbridge_checkpoint_duration_seconds";
/// Files found at a start, by what came of them.
pub const CHECKPOINTS_LOADED: &str = "kvbridge_checkpoints_loaded_total";
/// Index updates that wait.
pub const INDEX_QUEUE: &str = "kvbridge_index_queue_updates";
/// Match requests by outcome.
pub const MATCHES: &str = "kvbridge_matches_total";
/// Time a match took.
pub const MATCH_DURATION: &str = "kvbridge_match_duration_seconds";
/// 1 for how readiness stands.
pub const READY_MODE: &str = "kvbridge_ready_mode";
/// Route decisions by what decided.
pub const ROUTES: &str = "kvbridge_routes_total";
/// Time a route took.
pub const ROUTE_DURATION: &str = "kvbridge_route_duration_seconds";
/// Envelopes that slow readers of `/v1/events` missed.
pub const EVENTS_LAGGED: &str = "kvbridge_events_lagged_total";
/// Readers of `/v1/events` that were refused or cut off.
pub const EVENTS_READERS_REFUSED: &str = "kvbridge_events_readers_refused_total";
/// Messages the bus has.
pub const BUS_PUBLISHED: &str = "kvbridge_bus_published_total";
/// Messages the bus had already.
pub const BUS_DUPLICATES: &str = "kvbridge_bus_duplicates_total";
/// Messages sent again.
pub const BUS_RETRIES: &str = "kvbridge_bus_retries_total";
/// Batches that do not fit into a message of the server.
pub const BUS_TOO_LARGE: &str = "kvbridge_bus_too_large_total";
/// Resets written into a replica's log.
pub const BUS_RESETS: &str = "kvbridge_bus_resets_total";
/// Times a replica's log fell behind because the spool was full.
pub const BUS_LEFT_OUT: &str = "kvbridge_bus_left_out_total";
/// Messages without an acknowledgement.
pub const BUS_SPOOL_MESSAGES: &str = "kvbridge_bus_spool_messages";
/// Their bytes.
pub const BUS_SPOOL_BYTES: &str = "kvbridge_bus_spool_bytes";
/// From queue to acknowledgement, of the newest message acknowledged.
pub const BUS_LAG: &str = "kvbridge_bus_lag_seconds";
/// Messages of the bus that were read.
pub const BUS_READ: &str = "kvbridge_bus_read_total";
/// Messages of the bus that could not be read.
pub const BUS_UNREADABLE: &str = "kvbridge_bus_unreadable_total";
/// Times that a replica's queue of messages was full.
pub const BUS_READ_OVERFLOWED: &str = "kvbridge_bus_read_overflows_total";
/// Times that a replica's log broke off for its reader.
pub const BUS_LOG_BREAKS: &str = "kvbridge_bus_log_breaks_total";
/// Streams, replicas and subjects on the bus that are not read.
pub const BUS_READ_REFUSED: &str = "kvbridge_bus_read_refused_total";
/// Views stored on the bus.
pub const BUS_SNAPSHOTS_STORED: &str = "kvbridge_bus_snapshots_stored_total";
/// Views that could not be stored there.
pub const BUS_SNAPSHOTS_FAILED: &str = "kvbridge_bus_snapshot_failures_total";
/// Requests for a fresh one.
pub const BUS_SNAPSHOTS_ASKED: &str = "kvbridge_bus_snapshots_asked_total";
/// Requests for a fresh view that were told to come again.
pub const BUS_SNAPSHOTS_BUSY: &str = "kvbridge_bus_snapshots_busy_total";
/// Old ones that were deleted.
pub const BUS_SNAPSHOTS_DELETED: &str = "kvbridge_bus_snapshots_deleted_total";
/// 1 for the state a stream is in, else 0.
pub const BUS_STATE: &str = "kvbridge_bus_state";
/// Requests of readers of a ZeroMQ bus.
pub const BUS_REQUESTS: &str = "kvbridge_bus_requests_total";
/// Live connections that ended by a reset or by bytes that are not the protocol.
pub const SOURCE_RECEIVE_FAILED: &str = "kvbridge_source_receive_failures_total";
/// 1 while this process is the one that asks an engine which bridges take turns at.
pub const LEASE_HELD: &str = "kvbridge_lease_held";
/// 1 while the alarm rings, else 0.
pub const ALARM: &str = "kvbridge_alarm";
/// Resident memory of the process.
pub const MEMORY: &str = "kvbridge_memory_bytes";
/// Above it the largest replica is given up.
pub const MEMORY_LIMIT: &str = "kvbridge_memory_limit_bytes";
/// Connections closed because there were too many.
pub const HTTP_REFUSED: &str = "kvbridge_http_connections_refused_total";
/// Requests that were not let in.
pub const HTTP_DENIED: &str = "kvbridge_http_denied_total";
/// Requests of pages from elsewhere.
pub const HTTP_FOREIGN: &str = "kvbridge_http_foreign_total";
/// Reports of requests that were served, by what came of them.
pub const FEEDBACK: &str = "kvbridge_feedback_total";
/// Input tokens of requests that were reported.
pub const INPUT_TOKENS: &str = "kvbridge_input_tokens_total";
/// Of these, what the engines had cached.
pub const CACHED_TOKENS: &str = "kvbridge_cached_tokens_total";
/// Of these, what was predicted to be cached.
pub const PREDICTED_TOKENS: &str = "kvbridge_predicted_tokens_total";
/// Turns of conversations.
pub const TURNS: &str = "kvbridge_turns_total";
/// Tokens of an earlier turn that were computed again.
pub const REPREFILLED: &str = "kvbridge_reprefilled_tokens_total";
/// Of the follow-up turns of late those with less than half of the input cached.
pub const SCATTER_RATIO: &str = "kvbridge_turn_scatter_ratio";
/// What routers said that replicas computed, by what came of it.
pub const BACKFILLS: &str = "kvbridge_backfills_total";
/// Blocks guessed by it.
pub const BACKFILLED: &str = "kvbridge_backfilled_blocks_total";
/// Guesses that made room for others before their time.
pub const BACKFILL_EVICTED: &str = "kvbridge_backfill_evicted_blocks_total";
/// Tokens that an engine looked up in its cache.
pub const ENGINE_INPUT_TOKENS: &str = "kvbridge_engine_input_tokens_total";
/// Of these, those that it had.
pub const ENGINE_CACHED_TOKENS: &str = "kvbridge_engine_cached_tokens_total";
/// Batches that a sink published, heartbeats among them.
pub const SINK_BATCHES: &str = "kvbridge_sink_batches_total";
/// Requests of routers for a line's past, by what came of them.
pub const SINK_REQUESTS: &str = "kvbridge_sink_requests_total";
/// Blocks of a line that routers have, and those that they are not told of.
pub const SINK_BLOCKS: &str = "kvbridge_sink_blocks";
/// Messages of drivers that wait for a sink.
pub const SINK_QUEUE: &str = "kvbridge_sink_queue_messages";
/// Messages that were dropped because its queue was full.
pub const SINK_MISSED: &str = "kvbridge_sink_missed_total";
/// Whether a reader that a sink connects to is there and listens.
pub const SINK_LISTENING: &str = "kvbridge_sink_reader_listening";
/// Whole lines that such a reader was told.
pub const SINK_WHOLE: &str = "kvbridge_sink_reader_whole_total";
/// What such a reader had no room for.
pub const SINK_READER_MISSED: &str = "kvbridge_sink_reader_missed_total";
/// Streams that readers of a sink have open.
pub const SINK_STREAMS: &str = "kvbridge_sink_streams";
/// Batches that wait for the slowest of them.
pub const SINK_STREAM_WAITING: &str = "kvbridge_sink_stream_waiting_batches";
/// Streams that were ended because their readers were too slow.
pub const SINK_STREAMS_CUT: &str = "kvbridge_sink_streams_cut_total";
/// Events that consumers of the fan-out were told.
pub const FAN_OUT_EVENTS: &str = "kvbridge_fan_out_events_total";
/// Its consumers.
pub const FAN_OUT_CONSUMERS: &str = "kvbridge_fan_out_consumers";
/// Consumers that were too slow, and are told everything again.
pub const FAN_OUT_BEHIND: &str = "kvbridge_fan_out_behind_total";
/// Consumers that asked no more, and were forgotten.
pub const FAN_OUT_FORGOTTEN: &str = "kvbridge_fan_out_forgotten_total";
/// Requests that were refused because there are too many consumers, or the replica is gone.
pub const FAN_OUT_REFUSED: &str = "kvbridge_fan_out_refused_total";
/// Messages that were dropped because its queue was full.
pub const FAN_OUT_MISSED: &str = "kvbridge_fan_out_missed_total";
/// Messages of replicas that have no port at a sink.
pub const SINK_REFUSED: &str = "kvbridge_sink_refused_total";
