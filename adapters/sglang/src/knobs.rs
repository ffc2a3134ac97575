//! What an operator sets at the engine.

use kvbridge_adapters_api::Knobs;

use crate::{FORMAT_ARRAY, FORMAT_MAP};

/// Of every release that publishes. The wire forms were recorded, see `docs/wire/sglang.md`.
pub const KNOBS: Knobs = Knobs {
    events: "--kv-events-config '{\"publisher\":\"zmq\",…}', and no --disable-radix-cache",
    endpoint: "endpoint of --kv-events-config, e.g. tcp://*:5557",
    journal: "replay_endpoint of --kv-events-config, e.g. tcp://*:5657",
    buffer: "buffer_steps of --kv-events-config (10000 batches unless set)",
    hashes: "format of --kv-events-config",
    block_size: "--page-size",
    releases: &[(FORMAT_ARRAY, "0.4.9 to 0.5.19"), (FORMAT_MAP, "0.5.20 and later")],
};
