//! What TensorRT-LLM can really do.

use kvbridge_adapters_api::{Capabilities, Continuity, Drain, Removal, Replay};
use kvbridge_schemas::Scope;

/// The capabilities of an engine that is drained over HTTP, to release 1.4.
pub fn capabilities() -> Capabilities {
    Capabilities {
        epoch_on_wire: false,
        replay: Replay::Absent,
        snapshot: None,
        // Every event has a number of its life, and who drains sees all of them: a new process
        // counts from 0 again.
        continuity: Continuity::Proven,
        // A block that is removed has left every tier.
        removal: Removal::LastCopy,
        // It never says that it was emptied; the only clears are ours.
        clear_scope: Scope::All,
        drain: Drain::Destructive,
        // Running requests hold blocks that are not announced.
        one_hash_per_block: false,
    }
}
