//! Nanoseconds per block from payload to normalised batch, content hash included.
//!
//! Each figure is the median over rounds, with the lowest and the highest round as spread; the
//! cases take turns in every round, so that a busy machine hits all of them alike. `floor` walks
//! the same bytes and makes the same hashes, but keeps no events, checks no limits and knows one
//! layout. `dynamo` is the public decoder of dynamo-kv-router 1.6.1 with its normaliser: the way of
//! its router from the same bytes to the same hashes.

#[cfg(feature = "others")]
mod dynamo;

use std::{fmt, hint::black_box};

use kvbridge_adapters_vllm::Decoded;
use kvbridge_schemas::{content_hash, digest};
use rustix::time::{ClockId, clock_gettime};

const BLOCK_SIZE: u32 = 16;
const ROUNDS: usize = 41;
/// Payload bytes per round and case: some milliseconds, far above the clock's resolution.
const BYTES_PER_ROUND: usize = 8 << 20;

/// One of each engine.
#[derive(Default)]
struct Decoders {
    vllm: kvbridge_adapters_vllm::Decoder,
    sglang: kvbridge_adapters_sglang::Decoder,
}

struct Case {
    name: &'static str,
    payload: Vec<u8>,
    blocks: u32,
    run: fn(&Decoders, &[u8]) -> Option<Decoded>,
    rounds: Vec<f64>,
}

fn main() {
    let tokens = |vocabulary: u64| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % vocabulary
        }
    };
    let case = |name, map, events, blocks, vocabulary, run: fn(&Decoders, &[u8]) -> _| {
        let payload = encode(map, false, events, blocks, tokens(vocabulary));
        Case { name, payload, blocks: events * blocks, run, rounds: Vec::new() }
    };
    let mut cases = vec![
        case("64x16 array", false, 64, 16, 128_000, decode),
        case("64x16 map", true, 64, 16, 128_000, decode),
        case("64x16 array, ids < 65536", false, 64, 16, 65_536, decode),
        case("64x1  array", false, 64, 1, 128_000, decode),
        case("64x1  map", true, 64, 1, 128_000, decode),
        case("1x64  array", false, 1, 64, 128_000, decode),
        case("1x64  map", true, 1, 64, 128_000, decode),
        case("64x16 array, sglang", false, 64, 16, 128_000, decode_sglang),
        case("64x16 map, sglang", true, 64, 16, 128_000, decode_sglang),
        case("1x64  map, sglang", true, 1, 64, 128_000, decode_sglang),
        case("64x16 array, floor", false, 64, 16, 128_000, floor),
        case("64x1  array, floor", false, 64, 1, 128_000, floor),
        case("1x64  array, floor", false, 1, 64, 128_000, floor),
        case("64x16 array, digest alone", false, 64, 16, 128_000, digest_alone),
        case("64x1  array, digest alone", false, 64, 1, 128_000, digest_alone),
    ];
    cases.push(Case {
        name: "64x16 map of pairs, sglang",
        payload: encode(true, true, 64, 16, tokens(128_000)),
        blocks: 64 * 16,
        run: decode_sglang,
        rounds: Vec::new(),
    });
    #[cfg(feature = "others")]
    cases.extend([
        case("64x16 array, dynamo", false, 64, 16, 128_000, dynamo::decode),
        case("64x16 map, dynamo", true, 64, 16, 128_000, dynamo::decode),
        case("64x1  array, dynamo", false, 64, 1, 128_000, dynamo::decode),
        case("64x1  map, dynamo", true, 64, 1, 128_000, dynamo::decode),
    ]);
    // `bench-decode 64x1` measures the cases whose name holds that text.
    let only = std::env::args().nth(1).unwrap_or_default();
    cases.retain(|case| case.name.contains(&only));
    let decoders = Decoders::default();
    for case in &cases {
        check(&decoders, case);
    }
    for round in 0..=ROUNDS {
        for case in &mut cases {
            let times = BYTES_PER_ROUND / case.payload.len();
            let start = cpu_ns();
            for _ in 0..times {
                black_box((case.run)(&decoders, black_box(&case.payload)));
            }
            let blocks = f64::from(case.blocks) * times as f64;
            let ns = (cpu_ns() - start) / blocks;
            if round > 0 {
                case.rounds.push(ns); // the first round warms up
            }
        }
    }
    println!("ns per block of {BLOCK_SIZE} tokens, median (lowest .. highest) of {ROUNDS} rounds");
    for case in &mut cases {
        println!("{case}");
    }
}

/// CPU time of this process: other work on the machine is not counted, though it cools the caches.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        let median = rounds[rounds.len() / 2];
        write!(
            f,
            "{:28} {median:7.1} ({:.1} .. {:.1})  {:7} bytes",
            self.name,
            rounds[0],
            rounds[rounds.len() - 1],
            self.payload.len(),
        )
    }
}

fn decode(decoders: &Decoders, payload: &[u8]) -> Option<Decoded> {
    decoders.vllm.decode(&[0; 8], payload).ok()
}

fn decode_sglang(decoders: &Decoders, payload: &[u8]) -> Option<Decoded> {
    kvbridge_adapters_sglang::decode(&decoders.sglang, b"kv@bench", &[0; 8], payload).ok()
}

fn digest_alone(_: &Decoders, payload: &[u8]) -> Option<Decoded> {
    black_box(digest(payload));
    None
}

/// What is measured is a batch that was read whole, content hashes included.
fn check(decoders: &Decoders, case: &Case) {
    let Some(decoded) = (case.run)(decoders, &case.payload) else { return };
    let Decoded::Batch(decoded) = decoded else { panic!("{}: not a batch", case.name) };
    assert_eq!(decoded.body, None);
    assert!(decoded.faults.is_empty());
    let contents: u32 = decoded
        .batch
        .events
        .iter()
        .map(|event| match event {
            kvbridge_schemas::Event::Stored(stored) => {
                stored.blocks.iter().map(|block| u32::from(block.content.is_some())).sum()
            }
            _ => 0,
        })
        .sum();
    assert_eq!(contents, case.blocks);
}

// === the floor

fn floor(_: &Decoders, payload: &[u8]) -> Option<Decoded> {
    let mut at = 1 + 9;
    let mut tokens = Vec::with_capacity(1024);
    for _ in 0..count(payload, &mut at) {
        at += 1 + 1 + "BlockStored".len();
        let hashes = count(payload, &mut at);
        for _ in 0..hashes {
            black_box(int(payload, &mut at));
        }
        black_box(int(payload, &mut at));
        tokens.clear();
        for _ in 0..count(payload, &mut at) {
            tokens.push(int(payload, &mut at) as u32);
        }
        for own in tokens.chunks_exact(BLOCK_SIZE as usize) {
            black_box(content_hash(own));
        }
        at += 1 + 1 + 4; // block_size, lora_id, medium
    }
    assert_eq!(at + 1, payload.len());
    black_box(digest(payload));
    None
}

fn count(payload: &[u8], at: &mut usize) -> usize {
    let marker = payload[*at];
    *at += 1;
    if marker == 0xdc {
        *at += 2;
        return usize::from(u16::from_be_bytes([payload[*at - 2], payload[*at - 1]]));
    }
    usize::from(marker & 0x0f)
}

fn int(payload: &[u8], at: &mut usize) -> u64 {
    let marker = payload[*at];
    *at += 1;
    let width = match marker {
        0xcc => 1,
        0xcd => 2,
        0xce => 4,
        0xcf => 8,
        fixint => return u64::from(fixint),
    };
    *at += width;
    payload[*at - width..*at].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

// === the payloads

fn encode(
    map: bool,
    pairs: bool,
    events: u32,
    blocks: u32,
    mut token: impl FnMut() -> u64,
) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1_750_000_000.25_f64.to_be_bytes());
    put_count(&mut out, events);
    for event in 0..u64::from(events) {
        let hash =
            |block: u64| (event * 1000 + block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63;
        let key = |out: &mut Vec<u8>, name: &str| {
            if map {
                put_text(out, name);
            }
        };
        if map {
            out.extend([0xde, 0, 8]); // as 0.33 writes it
        } else {
            out.push(0x97);
        }
        key(&mut out, "type");
        put_text(&mut out, "BlockStored");
        key(&mut out, "block_hashes");
        put_count(&mut out, blocks);
        for block in 0..u64::from(blocks) {
            put_int(&mut out, hash(block));
        }
        key(&mut out, "parent_block_hash");
        put_int(&mut out, hash(999));
        key(&mut out, "token_ids");
        put_count(&mut out, blocks * BLOCK_SIZE);
        let mut last = token();
        for _ in 0..blocks * BLOCK_SIZE {
            if pairs {
                out.push(0x92);
                put_int(&mut out, last);
            }
            last = token();
            put_int(&mut out, last);
        }
        key(&mut out, "block_size");
        put_int(&mut out, u64::from(BLOCK_SIZE));
        key(&mut out, "lora_id");
        out.push(0xc0);
        key(&mut out, "medium");
        put_text(&mut out, "GPU");
        if map {
            put_text(&mut out, "lora_name");
            out.push(0xc0);
        }
    }
    out.push(0);
    out
}

fn put_count(out: &mut Vec<u8>, count: u32) {
    match u16::try_from(count).expect("a small array") {
        small @ 0..16 => out.push(0x90 | small as u8),
        large => {
            out.push(0xdc);
            out.extend(large.to_be_bytes());
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | u8::try_from(text.len()).expect("a short text"));
    out.extend(text.as_bytes());
}

fn put_int(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let (marker, width) = match value {
        0..0x80 => return out.push(bytes[7]),
        0x80..0x100 => (0xcc, 1),
        0x100..0x1_0000 => (0xcd, 2),
        0x1_0000..0x1_0000_0000 => (0xce, 4),
        _ => (0xcf, 8),
    };
    out.push(marker);
    out.extend(&bytes[8 - width..]);
}
