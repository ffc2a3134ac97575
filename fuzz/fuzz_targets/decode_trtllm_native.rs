//! A message of TensorRT-LLM's native stream: 8 bytes of seq, then the payload.
//!
//! It never panics, what it says of losses agrees with what it lists, and a batch read without a
//! loss is read the same again.
#![no_main]

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_trtllm::stream::{Decoded, Decoder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    let (seq, payload) = message.split_at(message.len().min(8));
    let decoder = Decoder::default();
    let Ok(Decoded::Batch(decoded)) = decoder.decode(seq, payload) else { return };
    match decoded.batch.loss {
        Loss::Nothing => {
            assert!(decoded.body.is_none() && decoded.faults.is_empty());
            assert_eq!(decoder.decode(seq, payload), Ok(Decoded::Batch(decoded)));
        }
        Loss::Stores | Loss::MayRemove => {
            assert!(decoded.body.is_none() && !decoded.faults.is_empty());
        }
        Loss::Body => {
            assert!(decoded.body.is_some() && decoded.batch.events.is_empty());
        }
    }
});
