//! What SGLang can really do.

use kvbridge_adapters_api::{Capabilities, Continuity, Drain, Removal, Replay, SnapshotSupport};

use crate::normalize::clear_scope;

/// The capabilities of an SGLang publisher, to release 0.5.23.
///
/// `replay`: its `replay_endpoint` is set. `bind`: we bind and the engine connects; then a new
/// engine on our socket is not always seen as a new connection.
pub fn capabilities(replay: bool, bind: bool) -> Capabilities {
    Capabilities {
        // A draft names lives in the topic. They are texts without an order: evidence, no epoch.
        epoch_on_wire: false,
        replay: if replay { Replay::Journal } else { Replay::Absent },
        snapshot: None,
        continuity: if bind { Continuity::Unproven } else { Continuity::Proven },
        // `extra_key` keeps two nodes of the tree apart and is not in the hash: one hash, two
        // pages, two stores, later two removals.
        removal: Removal::PerCopy,
        clear_scope: clear_scope(),
        drain: Drain::Shared,
        // The pool counts tokens, and pages of running requests are not announced.
        one_hash_per_block: false,
    }
}

/// What `snapshot-v1` carries, of an engine that its operator calls plain: hashes and a barrier.
pub fn snapshot_support() -> SnapshotSupport {
    SnapshotSupport {
        barrier: true,
        tiers: false,
        counts: false,
        namespaces: false,
        content: false,
        plain: true,
    }
}
