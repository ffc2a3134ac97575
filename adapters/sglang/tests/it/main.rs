//! SGLang's messages, from bytes to batches.

mod fixtures;
mod hostile;
mod meaning;
mod pack;
#[path = "../../../msgpack/tests/support/recorded.rs"]
mod recorded;
mod server_info;
mod snapshot;
#[path = "../../../msgpack/tests/support/sound.rs"]
mod sound;
mod tolerance;
#[path = "../../../msgpack/tests/support/pack.rs"]
mod writer;

use kvbridge_adapters_sglang::{Decoded, DecodedBatch, Decoder};
use kvbridge_schemas::{Event, Stored};

/// Decodes a payload under seq 7 with the default limits.
fn decode(payload: &[u8]) -> DecodedBatch {
    decode_with(&Decoder::default(), b"kv", payload)
}

fn decode_with(decoder: &Decoder, topic: &[u8], payload: &[u8]) -> DecodedBatch {
    match kvbridge_adapters_sglang::decode(decoder, topic, &7_u64.to_be_bytes(), payload) {
        Ok(Decoded::Batch(decoded)) => decoded,
        other => panic!("expected a batch: {other:?}"),
    }
}

/// The one store of a batch without losses.
fn only_store(event: pack::V) -> Stored {
    let decoded = decode(&pack::batch([event]).pack());
    assert_eq!((&decoded.body, decoded.faults.as_slice()), (&None, &[][..]));
    match <[Event; 1]>::try_from(decoded.batch.events) {
        Ok([Event::Stored(stored)]) => stored,
        other => panic!("expected one store: {other:?}"),
    }
}
