//! The decoder of Dynamo's router, as its own listener of engines' events calls it.

use std::hint::black_box;

use dynamo_kv_router::{
    protocols::{KvCacheEventData, WorkerWithDpRank},
    zmq_wire::{ZmqEventNormalizer, decode_event_batch},
};
use kvbridge_adapters_vllm::Decoded;

use crate::{BLOCK_SIZE, Decoders};

/// Reads a batch to placement events. Their blocks are counted, so that none is left out.
pub fn decode(_: &Decoders, payload: &[u8]) -> Option<Decoded> {
    let worker = WorkerWithDpRank { worker_id: 1, dp_rank: 0 };
    let mut normalizer = ZmqEventNormalizer::new(BLOCK_SIZE);
    let batch = decode_event_batch(payload).expect("the payload is one of its own engine's");
    let events = batch.events.len();
    let mut blocks = 0;
    for (id, raw) in (0..).zip(batch.events) {
        let event = normalizer.normalize(raw, id, worker).expect("every event is a store");
        if let KvCacheEventData::Stored(stored) = &event.event.data {
            blocks += stored.blocks.len();
        }
        black_box(event);
    }
    assert!(blocks >= events && blocks > 0, "it reads what it is given");
    None
}
