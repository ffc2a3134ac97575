//! A message of an SGLang publisher: a byte that says how long the topic is, the topic, 8 bytes of
//! seq, then the payload.
//!
//! It never panics, what it says of losses agrees with what it lists, and a batch read without a
//! loss is read the same again.
#![no_main]

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_sglang::{Decoded, Decoder, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    let Some((length, rest)) = message.split_first() else { return };
    let (topic, rest) = rest.split_at(rest.len().min(usize::from(*length)));
    let (seq, payload) = rest.split_at(rest.len().min(8));
    let decoder = Decoder::default();
    let Ok(Decoded::Batch(decoded)) = decode(&decoder, topic, seq, payload) else { return };
    match decoded.batch.loss {
        Loss::Nothing => {
            assert!(decoded.body.is_none() && decoded.faults.is_empty());
            assert_eq!(decode(&decoder, topic, seq, payload), Ok(Decoded::Batch(decoded)));
        }
        Loss::Stores | Loss::MayRemove => {
            assert!(decoded.body.is_none() && !decoded.faults.is_empty());
        }
        Loss::Body => {
            assert!(decoded.body.is_some() && decoded.batch.events.is_empty());
        }
    }
});
