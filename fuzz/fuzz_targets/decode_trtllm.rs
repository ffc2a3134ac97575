//! Answers of a TensorRT-LLM server: a byte that says how many ranks are read, then one answer
//! after another, each ended by a zero byte.
//!
//! It never panics, what a batch says of losses agrees with the faults that are listed, and an
//! event is told at most once.
#![no_main]

use kvbridge_adapters_api::{Delivery, Loss, SourceEvent};
use kvbridge_adapters_trtllm::{Instance, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((ranks, rest)) = bytes.split_first() else { return };
    let mut instance = Instance::new(0, u32::from(*ranks % 4));
    for body in rest.split(|byte| *byte == 0) {
        let Ok(events) = Instance::split(body) else { continue };
        for event in events {
            let Step { told, faults, strange } = instance.step(event);
            let mut batches = told.iter().filter_map(|(_, delivery)| match delivery {
                Delivery::Event(SourceEvent::Live(batch)) => Some(batch),
                _ => None,
            });
            let batch = batches.next();
            assert!(batches.next().is_none());
            assert!(strange.is_none() || batch.is_none());
            if let Some(batch) = batch {
                assert_eq!(batch.loss == Loss::Nothing, faults.is_empty());
            }
        }
    }
});
