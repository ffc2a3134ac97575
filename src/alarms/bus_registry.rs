//! PURE. What is told about the alarms of a bus, of sinks and the fan-out, and of whoever else is
//! at an engine.

use super::{About, Severity};

pub(super) const TWO_PUBLISHERS: About = About {
    name: "two_publishers",
    severity: Severity::Critical,
    meaning: "two engines, or bridges that read them otherwise, speak under this replica's name",
    first_look: "which processes publish at the source's endpoint; life of GET /v1/replicas on each bridge",
    action: "give each engine its own endpoint and instance, run bridges of one version and ignore_tags, then resync",
};

pub(super) const COMPETING_CONSUMER: About = About {
    name: "competing_consumer",
    severity: Severity::Critical,
    meaning: "events of a drained engine are gone that its own buffer had room for: somebody else reads them",
    first_look: "who else posts to the engine's /kv_cache_events: another kvbridge, a router, Dynamo, a curl",
    action: "leave one reader; if there is but one, raise event_buffer_max_size; restart the engine to be exact again",
};

pub(super) const BRIDGE_SILENT: About = About {
    name: "bridge_silent",
    severity: Severity::Critical,
    meaning: "no bridge has spoken of this replica for longer than a heartbeat counts, though its log can be read",
    first_look: "kvbridge bus status: which bridges are heard, and the log of the one that reads this engine",
    action: "start that bridge again, or let it reach its engine and the bus",
};

pub(super) const LOG_BEHIND: About = About {
    name: "log_behind",
    severity: Severity::Critical,
    meaning: "this replica's bridge is further than its log has been for a lease: the bus passes heartbeats on and stores nothing",
    first_look: "storage of the NATS server or of the bridge's journal, and kvbridge_bus_state and the log of that bridge",
    action: "make room; start a server that gave up its storage again; readers catch up by themselves",
};

pub(super) const BUS_RESET: About = About {
    name: "bus_reset",
    severity: Severity::Warning,
    meaning: "the stream of this replica was deleted, made anew or lost messages in the last minute, and its readers started over",
    first_look: "kvbridge bus status and the history of the NATS server: who deleted or restored the stream",
    action: "keep streams and their storage; readers converge by themselves from stored views and the new log",
};

pub(super) const BUS_RETENTION_PASSED: About = About {
    name: "bus_retention_passed",
    severity: Severity::Warning,
    meaning: "the bus dropped messages in the last minute that this reader had not read",
    first_look: "kvbridge_bus_read_overflows_total, the load of this process, and how long it was cut off from the bus",
    action: "raise bus.retention or bus.retention_bytes, or give the reader more CPU",
};

pub(super) const TAIL_LOSS: About = About {
    name: "tail_loss",
    severity: Severity::Warning,
    meaning: "in the last minute a bridge vouched for batches that did not reach this reader by themselves",
    first_look: "the facts tail_behind and tail_loss of the replica in the log; kvbridge replay reads the same seqs",
    action: "check the connection to the bus; where replay does not find them either the bus lost what it had acknowledged",
};

pub(super) const SNAPSHOT_FAILED: About = About {
    name: "snapshot_failed",
    severity: Severity::Warning,
    meaning: "views could not be stored on the bus, or had from it, three times in a row",
    first_look: "kvbridge_bus_snapshot_failures_total, the fact snapshot_failed, and storage and permissions of the bus",
    action: "give the bus room and the user the rights of kvbridge bus permissions",
};

pub(super) const SINK_LAGGING: About = About {
    name: "sink_lagging",
    severity: Severity::Warning,
    meaning: "a sink dropped messages of this replica's router in the last minute, and told everything again",
    first_look: "kvbridge_sink_queue_messages and kvbridge_sink_missed_total by sink, and the load of this process",
    action: "give the process more CPU, tell fewer replicas in one sink, or raise sinks.queue",
};

pub(super) const FAN_OUT_LAGGING: About = About {
    name: "fan_out_lagging",
    severity: Severity::Warning,
    meaning: "the fan-out dropped messages of this replica in the last minute: its consumers wait until it is told whole",
    first_look: "kvbridge_fan_out_missed_total, how many consumers ask how often, and the load of this process",
    action: "give the process more CPU, have fewer consumers ask less often, or raise compat.kv_cache_events.queue",
};
