//! What vLLM can really do.

use kvbridge_adapters_api::{Capabilities, Continuity, Drain, Removal, Replay};
use kvbridge_schemas::{Scope, Tier};

/// The capabilities of a vLLM publisher, to release 0.33.0.
///
/// `replay`: its `replay_endpoint` is set. `bind`: we bind and the engine connects, which it does
/// with any TCP endpoint that has neither `*` nor `::`; then a new engine on our socket is not
/// always seen as a new connection.
pub fn capabilities(replay: bool, bind: bool) -> Capabilities {
    Capabilities {
        // Seqs restart at 0 with the process, and nothing else tells lives apart.
        epoch_on_wire: false,
        replay: if replay { Replay::Journal } else { Replay::Absent },
        snapshot: None,
        continuity: if bind { Continuity::Unproven } else { Continuity::Proven },
        // The same prefix computed twice at once is two blocks: two stores, later two removals.
        removal: Removal::PerCopy,
        // AllBlocksCleared names no tier; a plain reset leaves the connectors' tiers alone.
        clear_scope: Scope::Tiers(vec![Tier::Device]),
        drain: Drain::Shared,
        // A block of the pool holds one hash of one group; duplicates are blocks of their own.
        one_hash_per_block: true,
    }
}
