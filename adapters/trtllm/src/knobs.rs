//! What an operator sets at the engine.

use kvbridge_adapters_api::Knobs;

use crate::FORMAT_JSON;

/// Of every release with the endpoint.
pub const KNOBS: Knobs = Knobs {
    events: "kv_cache_config.event_buffer_max_size above 0 (0, the default, turns events off), enable_block_reuse on, kv_events_config unset",
    endpoint: "the address of trtllm-serve; neither the disaggregated orchestrator nor an encoder server has /kv_cache_events",
    journal: "nothing: it has no journal",
    buffer: "kv_cache_config.event_buffer_max_size",
    hashes: "kv_cache_config.kv_cache_event_hash_algo",
    block_size: "kv_cache_config.tokens_per_block",
    releases: &[(FORMAT_JSON, "0.19 to 1.4")],
};
