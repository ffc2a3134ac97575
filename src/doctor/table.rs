//! The table: every finding with what is the case, what mostly is behind it and what to change.

use super::{
    About,
    Severity::{self, Error, Note, Ok, Warning},
};

const fn about(
    (id, severity): (&'static str, Severity),
    meaning: &'static str,
    cause: &'static str,
    setting: &'static str,
) -> About {
    About { id, severity, meaning, cause, setting }
}

/// All rows, in the order in which a look goes.
pub static ALL: [&About; 45] = [
    &SERVER_UNREACHABLE,
    &SOURCES_UNKNOWN,
    &EVENTS_OFF,
    &ENGINE_TOLD,
    &PROBE_FAILED,
    &ENDPOINT_UNREACHABLE,
    &EVENTS_FLOW,
    &STREAM_IDLE,
    &STREAM_SILENT,
    &RANK_SILENT,
    &SEQ_MISSING,
    &SEQ_FELL,
    &EVENTS_UNREADABLE,
    &WIRE_FORM,
    &RANK_DIFFERS,
    &BLOCK_SIZE_MISMATCH,
    &HASHES_WHOLE,
    &HASHES_PROVEN,
    &HASHES_WRONG,
    &HASHES_UNKNOWN,
    &ALGORITHM_DIFFERS,
    &REPLAY_UNNAMED,
    &REPLAY_UNREACHABLE,
    &REPLAY_SILENT,
    &REPLAY_EMPTY,
    &REPLAY_SHORT,
    &REPLAY_HOLE,
    &REPLAY_NO_END,
    &REPLAY_WHOLE,
    &DRAIN_NOT_TAKEN,
    &DRAIN_ABSENT,
    &BUFFER_OFF,
    &DRAIN_LATCHED,
    &DRAIN_HELD,
    &COMPETING_CONSUMER,
    &BRIDGE_UNREACHABLE,
    &BRIDGE_NOT_READY,
    &BRIDGE_EMPTY,
    &REPLICA_TRUSTED,
    &REPLICA_UNTRUSTED,
    &ALARM_CRITICAL,
    &ALARM_WARNING,
    &NAME_UNKNOWN,
    &NAME_UNUSED,
    &NAMES_EQUAL,
];

pub(super) static SERVER_UNREACHABLE: About = about(
    ("server_unreachable", Error),
    "the engine's HTTP server does not answer",
    "it does not run, listens on another port or on its loopback alone, or a firewall is between",
    "the URL; the address on which the engine's server listens",
);

pub(super) static SOURCES_UNKNOWN: About = about(
    ("sources_unknown", Error),
    "the server answers, and not where its events are",
    "a release that does not tell it, or the server of something else",
    "name the engine and where it publishes: --engine NAME --endpoint tcp://host:port",
);

pub(super) static EVENTS_OFF: About = about(
    ("events_off", Error),
    "the engine says that it publishes no KV-cache events",
    "it was started without them: they are off unless set",
    "{events}",
);

pub(super) static ENGINE_TOLD: About =
    about(("engine_told", Ok), "the engine tells where its events are", "", "");

pub(super) static PROBE_FAILED: About = about(
    ("probe_failed", Warning),
    "the engine did not serve the completion that was to make events flow",
    "another model name, a server that asks for a key, an engine that is full",
    "--model NAME; or leave --probe out and send traffic",
);

pub(super) static ENDPOINT_UNREACHABLE: About = about(
    ("endpoint_unreachable", Error),
    "the event endpoint cannot be connected to",
    "the publisher listens on the loopback alone, connects instead of listening, or has another port",
    "{endpoint}",
);

pub(super) static EVENTS_FLOW: About = about(("events_flow", Ok), "batches of events come", "", "");

pub(super) static STREAM_IDLE: About = about(
    ("stream_idle", Warning),
    "no batch came, and no request that could have made one is known",
    "an engine without traffic says nothing",
    "nothing: send traffic, or let --probe send a tiny completion",
);

pub(super) static STREAM_SILENT: About = about(
    ("stream_silent", Error),
    "requests were served and no batch came",
    "events or prefix caching are off, the port is not the event port, or the topic is another",
    "{events}; --topic PREFIX",
);

pub(super) static RANK_SILENT: About = about(
    ("rank_silent", Warning),
    "other ranks send batches, and this one sent none",
    "it had no request, or does not publish: some releases let the first rank alone",
    "send it a request; if it stays silent {events}",
);

pub(super) static SEQ_MISSING: About = about(
    ("seq_missing", Warning),
    "seqs are missing in the live stream",
    "the publisher drops what a slow reader does not take, or could not encode a batch",
    "room at the reader; the engine's send limit (hwm)",
);

pub(super) static SEQ_FELL: About = about(
    ("seq_fell", Warning),
    "seqs fell back",
    "the engine restarted meanwhile; if it did not, two engines publish at this endpoint",
    "an endpoint of its own for each engine and rank",
);

pub(super) static EVENTS_UNREADABLE: About = about(
    ("events_unreadable", Error),
    "messages or events cannot be read",
    "a release that this kvbridge does not know, or a publisher of another engine",
    "upgrade kvbridge, or correct --engine; list harmless types in ignore_tags",
);

pub(super) static WIRE_FORM: About =
    about(("wire_form", Ok), "the form of the events is known", "", "");

pub(super) static RANK_DIFFERS: About = about(
    ("rank_differs", Warning),
    "batches name another rank than the one whose port this is",
    "ports are not rank 0's + r, or ranks share a port",
    "rank and dp of the source; {endpoint}",
);

pub(super) static BLOCK_SIZE_MISMATCH: About = about(
    ("block_size_mismatch", Error),
    "blocks are not of the size that the engine says",
    "the server and its workers were started with different sizes, or ranks have different ones",
    "{block_size}, equal on the server, on its workers and in the router",
);

pub(super) static HASHES_WHOLE: About = about(
    ("hashes_whole", Note),
    "block hashes are whole, not numbers of 64 bits",
    "the engine is set so; kvbridge reads both, a router that hashes by itself may read numbers alone",
    "{hashes}",
);

pub(super) static HASHES_PROVEN: About =
    about(("hashes_proven", Ok), "block hashes follow from the tokens", "", "");

pub(super) static HASHES_WRONG: About = about(
    ("hashes_wrong", Warning),
    "the tokens that the engine announces do not give the hashes it announces",
    "another hash function or seed than the one named, or the engine hashes what it does not tell",
    "hash_scheme and hash_seed of the source; {hashes}",
);

pub(super) static HASHES_UNKNOWN: About = about(
    ("hashes_unknown", Note),
    "no hash function that is known gives the announced hashes",
    "a random seed in each process, or a function that is not built in; matches by tokens work all the same",
    "hash_scheme and hash_seed of the source; {hashes}",
);

pub(super) static ALGORITHM_DIFFERS: About = about(
    ("algorithm_differs", Error),
    "events name another hash algorithm than the server does",
    "an algorithm that is chosen by itself and resolved differently by server and worker; a router that hashes as the server says matches nothing",
    "{hashes}, the same name on the server and in the router",
);

pub(super) static REPLAY_UNNAMED: About = about(
    ("replay_unnamed", Warning),
    "no journal is known",
    "the engine has none, or does not tell: a late start and every gap cost exact trust",
    "{journal}; --replay tcp://host:port",
);

pub(super) static REPLAY_UNREACHABLE: About = about(
    ("replay_unreachable", Error),
    "the replay port cannot be connected to",
    "another port, or what listens there is no journal",
    "{journal}",
);

pub(super) static REPLAY_SILENT: About = about(
    ("replay_silent", Error),
    "the replay port takes a request and does not answer",
    "the publisher is busy or stuck, or another protocol",
    "the right replay port: {journal}",
);

pub(super) static REPLAY_EMPTY: About = about(
    ("replay_empty", Warning),
    "the journal answers without batches, although batches were published",
    "the journal is of another engine or rank, or keeps nothing",
    "{journal}; {buffer}",
);

pub(super) static REPLAY_SHORT: About = about(
    ("replay_short", Note),
    "the journal no longer holds the first batches",
    "it keeps a bounded number: a kvbridge that starts now begins as lower_bound",
    "{buffer}; a state folder or a bus, so that a start does not need the journal",
);

pub(super) static REPLAY_HOLE: About = about(
    ("replay_hole", Warning),
    "batches are missing inside the journal's answer",
    "the engine could not encode them, or dropped replies because the reader was slow",
    "room at the reader; a release without the limit of the replay socket",
);

pub(super) static REPLAY_NO_END: About = about(
    ("replay_no_end", Warning),
    "the journal's answer has no end",
    "replies were dropped because the reader was slow, or the release sends no end",
    "a release that sends the end; kvbridge asks again after recovery.replay_deadline",
);

pub(super) static REPLAY_WHOLE: About =
    about(("replay_whole", Ok), "the journal answers from the first batch to its end", "", "");

pub(super) static DRAIN_NOT_TAKEN: About = about(
    ("drain_not_taken", Note),
    "the engine's events were left where they are",
    "taking them robs the kvbridge that reads this engine",
    "ask that one: kvbridge doctor --kvbridge URL; if nobody reads the engine: --drain",
);

pub(super) static DRAIN_ABSENT: About = about(
    ("drain_absent", Error),
    "the server has no path for events",
    "another kind of server than the one that has the cache",
    "{endpoint}",
);

pub(super) static BUFFER_OFF: About = about(
    ("buffer_off", Error),
    "requests were served, and the engine waited for events and had none",
    "events are off, or another reader was faster each time",
    "{events}; leave one reader of each engine",
);

pub(super) static DRAIN_LATCHED: About = about(
    ("drain_latched", Error),
    "the engine says at once that it has no events, although requests are served",
    "its server gave up waiting after a quiet answer, and no request wakes it: an orchestrator in front of it, or that fault of the release",
    "send requests through this server, or upgrade it; until then POST /v1/backfill",
);

pub(super) static DRAIN_HELD: About = about(
    ("drain_held", Error),
    "the engine's answer does not end",
    "it waits for a pause of 2 s in its events, and under load there is none",
    "a release that answers with what it has; until then POST /v1/backfill",
);

pub(super) static COMPETING_CONSUMER: About = about(
    ("competing_consumer", Error),
    "somebody else takes events of this engine away",
    "another kvbridge, a router that polls by itself, a curl",
    "leave one reader of each engine, then restart it to be exact again",
);

pub(super) static BRIDGE_UNREACHABLE: About = about(
    ("bridge_unreachable", Error),
    "the kvbridge cannot be asked",
    "it does not run, listens elsewhere, or wants a token or a certificate",
    "--kvbridge URL, --token-file, --ca",
);

pub(super) static BRIDGE_NOT_READY: About = about(
    ("bridge_not_ready", Warning),
    "the kvbridge is not ready",
    "its replicas are not proven yet, or it stops",
    "nothing, if it lasts under ready.max_wait; else see its replicas below",
);

pub(super) static BRIDGE_EMPTY: About = about(
    ("bridge_empty", Warning),
    "the kvbridge reads no replica",
    "no source is configured, or no engine was found",
    "[[sources]]; GET /v1/sources says why an engine was not found",
);

pub(super) static REPLICA_TRUSTED: About =
    about(("replica_trusted", Ok), "the replica's view is exact", "", "");

pub(super) static REPLICA_UNTRUSTED: About = about(
    ("replica_untrusted", Warning),
    "the replica's view is not exact",
    "the reason of its trust, see docs/specs/recovery.md",
    "what the reason says; then POST /v1/replicas/{key}/resync",
);

pub(super) static ALARM_CRITICAL: About = about(
    ("alarm_critical", Error),
    "a critical alarm rings",
    "see docs/runbook.md",
    "what the runbook says",
);

pub(super) static ALARM_WARNING: About = about(
    ("alarm_warning", Warning),
    "an alarm rings",
    "see docs/runbook.md",
    "what the runbook says",
);

pub(super) static NAME_UNKNOWN: About = about(
    ("name_unknown", Error),
    "the router sends to a name that no replica has",
    "names are compared byte for byte: a scheme, a case, a port or a slash is enough, and every score of it is zero",
    "instance of the source, or the router's list",
);

pub(super) static NAME_UNUSED: About = about(
    ("name_unused", Warning),
    "a replica has a name that the router does not send to",
    "as above, or the router's list is short",
    "instance of the source, or the router's list",
);

pub(super) static NAMES_EQUAL: About =
    about(("names_equal", Ok), "the router's names are those of the replicas", "", "");
