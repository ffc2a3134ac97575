//! TensorRT-LLM's answers, from bytes to what each rank is told.

mod fixtures;
mod hostile;
mod meaning;
mod ranks;
#[path = "../../../msgpack/tests/support/recorded.rs"]
mod recorded;
#[path = "../../../msgpack/tests/support/sound.rs"]
mod sound;
mod stream;
mod stream_hostile;
#[path = "../../../msgpack/tests/support/pack.rs"]
mod writer;

use kvbridge_adapters_api::{Batch, Delivery, SourceEvent};
use kvbridge_adapters_trtllm::{Instance, Step};
use serde_json::{Value, json};

/// Reads every event of an answer.
fn steps(instance: &mut Instance, body: &str) -> Vec<Step> {
    let events = Instance::split(body.as_bytes()).expect("a list");
    events.into_iter().map(|event| instance.step(event)).collect()
}

/// The batches of a step, by rank.
fn batches(step: &Step) -> Vec<(usize, &Batch)> {
    let told = step.told.iter();
    told.filter_map(|(rank, delivery)| match delivery {
        Delivery::Event(SourceEvent::Live(batch)) => Some((*rank, batch)),
        _ => None,
    })
    .collect()
}

/// What a step says, in words.
fn words(step: &Step) -> Vec<String> {
    let word = |(rank, delivery): &(usize, Delivery)| match delivery {
        Delivery::Event(SourceEvent::Live(batch)) => format!("{rank} live {}", batch.seq),
        Delivery::Event(SourceEvent::Restarted) => format!("{rank} restarted"),
        Delivery::Event(SourceEvent::Overflowed) => format!("{rank} lost"),
        Delivery::Event(SourceEvent::Unannounced) => format!("{rank} unannounced"),
        Delivery::Figures(figures) => {
            format!("{rank} pool {}", figures.pool_blocks.expect("a pool"))
        }
        other => panic!("not said here: {other:?}"),
    };
    step.told.iter().map(word).collect()
}

/// What one event means, as the scripts write it down.
fn meaning(step: &Step) -> Value {
    let batches = batches(step);
    let [(_, batch)] = batches.as_slice() else { panic!("one batch: {step:?}") };
    recorded::describe(batch)["events"].clone()
}

fn created(id: u64) -> Value {
    let data = json!({"type": "created", "num_blocks_per_cache_level": [100, 10]});
    json!({"event_id": id, "data": data, "window_size": 256})
}

/// A block of as many tokens, the same ones each.
fn block(hash: u64, count: u32) -> Value {
    let token = |id| json!({"type": "unique_token", "token_id": id, "token_extra_id": 0});
    json!({
        "type": "stored_block", "block_hash": hash, "cache_level": 0, "priority": 35,
        "tokens": (0..count).map(token).collect::<Vec<_>>(),
    })
}

fn stored(id: u64, parent: Option<u64>, blocks: &[Value]) -> Value {
    let data = json!({"type": "stored", "parent_hash": parent, "blocks": blocks});
    json!({"event_id": id, "data": data, "window_size": 256})
}

fn removed(id: u64, hashes: &[u64]) -> Value {
    let data = json!({"type": "removed", "block_hashes": hashes});
    json!({"event_id": id, "data": data, "window_size": 256})
}

/// An event with another field around it.
fn with(mut event: Value, key: &str, value: impl Into<Value>) -> Value {
    event[key] = value.into();
    event
}
