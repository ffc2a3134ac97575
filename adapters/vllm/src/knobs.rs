//! What an operator sets at the engine.

use kvbridge_adapters_api::Knobs;

use crate::{FORMAT_ARRAY, FORMAT_MAP};

/// Of every release that publishes. The wire forms were recorded, see `docs/wire/vllm.md`.
pub const KNOBS: Knobs = Knobs {
    events: "--kv-events-config '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",…}' and --enable-prefix-caching",
    endpoint: "endpoint of --kv-events-config, e.g. tcp://*:5557; a host other than * makes the engine connect instead of listen",
    journal: "replay_endpoint of --kv-events-config, e.g. tcp://*:5657",
    buffer: "buffer_steps of --kv-events-config (10000 batches unless set)",
    hashes: "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES, --prefix-caching-hash-algo and PYTHONHASHSEED",
    block_size: "--block-size",
    releases: &[(FORMAT_ARRAY, "0.9.0 to 0.23"), (FORMAT_MAP, "0.24.0 and later")],
};
