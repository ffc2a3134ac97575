//! PURE. What is told about the alarms of a signal that is there and says the wrong thing, or
//! comes under a name, a size or a time that nobody expects.

use super::{About, Severity};

pub(super) const VIEW_EMPTY_UNDER_TRAFFIC: About = About {
    name: "view_empty_under_traffic",
    severity: Severity::Critical,
    meaning: "requests are served, and the view has held no block for 30 s: nothing can match",
    first_look: "kvbridge_batches_received_total of the replica, and kvbridge tail on its engine: do stores come",
    action: "switch KV events and prefix caching on in the engine; one that is drained needs an event_buffer_max_size above 0",
};

pub(super) const ZERO_MATCHES_ON_REPEATED_PREFIXES: About = About {
    name: "zero_matches_on_repeated_prefixes",
    severity: Severity::Critical,
    meaning: "prompts begin as prompts of the last minutes did, and none of them matched a block of this model",
    first_look: "kvbridge snapshot or /v1/replicas/{key}/snapshot beside what routers send: tokens, lora, salt, block size",
    action: "match the tokens that the engine sees, chat template and special tokens included, with its lora and salt",
};

pub(super) const BLOCK_SIZE_MISMATCH: About = About {
    name: "block_size_mismatch",
    severity: Severity::Critical,
    meaning: "routers send block hashes of another block size than this replica's: they cannot be compared",
    first_look: "block_size in an answer of /v1/match with token_ids, and block_size of what routers send",
    action: "give routers the engine's block size, or send token_ids; run one block size for each model",
};

pub(super) const ROLLBACK: About = About {
    name: "rollback",
    severity: Severity::Warning,
    meaning: "in the last minute the engine's numbers went back, or came again for other batches: it restarted unseen",
    first_look: "the facts rollback and digest_mismatch in the log, and whether the engine restarted then",
    action: "nothing for a restart; without one look for a second engine or a proxy at the endpoint",
};

pub(super) const REPLAY_TRUNCATED: About = About {
    name: "replay_truncated",
    severity: Severity::Warning,
    meaning: "in the last minute the engine's journal no longer reached back to what is missing",
    first_look: "how long the gap was, and buffer_steps of the engine (or retention of the bus)",
    action: "give the engine a longer journal; where trust stays lower_bound flush the replica",
};

pub(super) const PERMANENT_HOLE: About = About {
    name: "permanent_hole",
    severity: Severity::Warning,
    meaning: "in the last minute batches were lost for good: the engine does not have them, or nobody can read them",
    first_look: "the fact permanent_hole and its seq in the log; the engine's own log at that time",
    action: "report it to the engine; the replica is a lower bound until a flush, kvbridge flush --replica KEY",
};

pub(super) const SOURCE_GONE: About = About {
    name: "source_gone",
    severity: Severity::Critical,
    meaning: "the replica's source has been unreachable for 30 s",
    first_look: "whether the engine runs, kvbridge_source_connection_failures_total, and the address in /v1/sources",
    action: "start the engine or let it be reached; take the source out if the engine is gone for good",
};

pub(super) const CLOCK_SKEW: About = About {
    name: "clock_skew",
    severity: Severity::Warning,
    meaning: "the engine's batches are dated over 5 s away from this machine's clock, or take that long to arrive",
    first_look: "time synchronisation (chronyc tracking) on both machines, then the load of the engine's publisher",
    action: "synchronise the clocks: ages and the order of lives between bridges rest on them",
};

pub(super) const INSTANCE_NAME_MISMATCH: About = About {
    name: "instance_name_mismatch",
    severity: Severity::Critical,
    meaning: "routers name instances of this model that nobody knows here, and never this replica's",
    first_look: "instance in /v1/replicas beside the instance of candidates and reports that routers send, byte for byte",
    action: "set sources.instance to the name that routers use, {ip} and {port} included",
};
