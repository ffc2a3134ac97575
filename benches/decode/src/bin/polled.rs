//! The same of an engine that is asked and answers in JSON: nanoseconds per block from one answer
//! to batches, content hashes and the engine's tree included.
//!
//! `floor` walks the same bytes by their known lengths and makes the same hashes; it checks
//! nothing, keeps nothing and knows no tree. Rounds and spread are those of the other binary.

use std::{fmt::Write as _, hint::black_box};

use kvbridge_adapters_api::{Delivery, SourceEvent};
use kvbridge_adapters_trtllm::Instance;
use kvbridge_schemas::{Event, content_hash, digest};
use rustix::time::{ClockId, clock_gettime};

const BLOCK_SIZE: usize = 32;
const ROUNDS: usize = 41;
const BYTES_PER_ROUND: usize = 8 << 20;

/// What stands around each token id.
const BEFORE: &str = r#"{"type":"unique_token","token_id":"#;
const BEHIND: &str = r#","token_extra_id":0}"#;

struct Case {
    name: &'static str,
    body: String,
    blocks: usize,
    run: fn(&str) -> usize,
    rounds: Vec<f64>,
}

fn main() {
    let case = |name, events, blocks, run| {
        let body = answer(events, blocks);
        Case { name, body, blocks: events * blocks, run, rounds: Vec::new() }
    };
    let mut cases = [
        case("64x16", 64, 16, read as fn(&str) -> usize),
        case("1x64", 1, 64, read),
        case("64x16, floor", 64, 16, floor),
        case("1x64, floor", 1, 64, floor),
    ];
    for case in &cases {
        assert_eq!((case.run)(&case.body), case.blocks, "{}: read whole", case.name);
    }
    for round in 0..=ROUNDS {
        for case in &mut cases {
            let times = BYTES_PER_ROUND / case.body.len();
            let start = cpu_ns();
            for _ in 0..times {
                black_box((case.run)(black_box(&case.body)));
            }
            let ns = (cpu_ns() - start) / (case.blocks * times) as f64;
            if round > 0 {
                case.rounds.push(ns); // the first round warms up
            }
        }
    }
    println!("ns per block of {BLOCK_SIZE} tokens, median (lowest .. highest) of {ROUNDS} rounds");
    for case in &mut cases {
        case.rounds.sort_by(f64::total_cmp);
        let (lowest, highest) = (case.rounds[0], case.rounds[ROUNDS - 1]);
        let (median, bytes) = (case.rounds[ROUNDS / 2], case.body.len());
        println!("{:28} {median:7.1} ({lowest:.1} .. {highest:.1})  {bytes:7} bytes", case.name);
    }
}

/// CPU time of this process: other work on the machine is not counted, though it cools the caches.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Blocks with content.
fn read(body: &str) -> usize {
    let mut instance = Instance::new(0, 1);
    let mut contents = 0;
    for event in Instance::split(body.as_bytes()).expect("an answer") {
        let step = instance.step(event);
        assert!(step.faults.is_empty() && step.strange.is_none());
        for (_, delivery) in black_box(step.told) {
            let Delivery::Event(SourceEvent::Live(batch)) = delivery else { continue };
            for event in &batch.events {
                let Event::Stored(stored) = event else { continue };
                contents += stored.blocks.iter().filter(|block| block.content.is_some()).count();
            }
        }
    }
    contents
}

fn floor(body: &str) -> usize {
    let mut contents = 0;
    let mut tokens = Vec::with_capacity(BLOCK_SIZE);
    for event in body.split('\n') {
        let mut rest = event.as_bytes();
        while let Some(at) = rest.iter().position(|byte| *byte == b'[') {
            rest = &rest[at + 1..];
            if !rest.starts_with(BEFORE.as_bytes()) {
                continue; // the list of blocks or of media
            }
            tokens.clear();
            while tokens.len() < BLOCK_SIZE {
                rest = &rest[BEFORE.len()..];
                let mut token = 0_u32;
                while rest[0].is_ascii_digit() {
                    token = token * 10 + u32::from(rest[0] - b'0');
                    rest = &rest[1..];
                }
                tokens.push(token);
                rest = &rest[BEHIND.len() + 1..]; // and the comma or the bracket
            }
            black_box(content_hash(&tokens));
            contents += 1;
        }
        black_box(digest(event.as_bytes()));
    }
    contents
}

/// An answer with events of so many blocks each, every event on a line of its own.
fn answer(events: usize, blocks: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut drawn = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 128_000
    };
    let stored: Vec<String> = (0..events).map(|event| stored(event, blocks, &mut drawn)).collect();
    format!("[{}]", stored.join(",\n"))
}

fn stored(event: usize, blocks: usize, token: &mut impl FnMut() -> u64) -> String {
    let hash = |block: usize| (event as u64 * 1000 + block as u64 + 1) * 0x9e37_79b9_7f4a;
    let mut out = format!(
        r#"{{"event_id":{event},"window_size":4096,"layer_group_id":0,"data":{{"type":"stored","parent_hash":null,"blocks":["#
    );
    for block in 0..blocks {
        let tokens: Vec<String> =
            (0..BLOCK_SIZE).map(|_| format!("{BEFORE}{}{BEHIND}", token())).collect();
        let comma = if block > 0 { "," } else { "" };
        write!(
            out,
            r#"{comma}{{"type":"stored_block","block_hash":{},"tokens":[{}],"cache_level":0,"priority":35,"mm_keys":[]}}"#,
            hash(block),
            tokens.join(","),
        )
        .expect("a String can be written");
    }
    out + "]}}"
}
