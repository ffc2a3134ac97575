//! Nanoseconds per block (envelopes) or record (snapshot chunks), to read and to write the messages
//! of the bus.
//!
//! Each figure is the median over rounds of CPU time, with the lowest and the highest round as
//! spread; the cases take turns in every round. `by hand` walks the same bytes in the one layout
//! they have: it keeps ids and hashes, but makes no events, checks no limits and knows no other
//! field.

use std::hint::black_box;

use kvbridge_schemas::{
    BlockHash, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Parent, Place,
    Replica, Seq, SnapshotRecord, Stored, StoredBlock, Tier, Tokens, Trust, codec, content_hash,
    digest,
    msgpack::{Cursor, Unreadable},
};
use rustix::time::{ClockId, clock_gettime};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 64;
const RECORDS: usize = 4096;
const ROUNDS: usize = 41;
/// Blocks or records per round and case: some milliseconds, far above the clock's resolution.
const ITEMS_PER_ROUND: usize = 64 * 1024;

struct Case {
    name: &'static str,
    items: usize,
    bytes: usize,
    run: Box<dyn Fn()>,
    rounds: Vec<f64>,
}

fn main() {
    let mut cases = Vec::new();
    for (name, events) in [("1x64", 1), ("64x1", BLOCKS)] {
        let envelope = envelope(events);
        let payload = codec::encode_msgpack(&envelope);
        assert_eq!(codec::decode_msgpack::<Envelope>(&payload).as_ref(), Ok(&envelope));
        assert_eq!(walk_envelope(&payload), BLOCKS);
        let mut add = |what, run| {
            let name: &'static str = format!("{name} envelope, {what}").leak();
            cases.push(Case { name, items: BLOCKS, bytes: payload.len(), run, rounds: Vec::new() });
        };
        let own = payload.clone();
        add("read", Box::new(move || drop(black_box(codec::decode_msgpack::<Envelope>(&own)))));
        let own = payload.clone();
        add(
            "read by hand",
            Box::new(move || {
                black_box(walk_envelope(&own));
            }),
        );
        add("write", Box::new(move || drop(black_box(codec::encode_msgpack(&envelope)))));
    }
    let records: Vec<_> = (0..RECORDS as u64).map(record).collect();
    let payload = codec::encode_msgpack(&records);
    let bytes = payload.len();
    assert_eq!(codec::decode_msgpack::<Vec<SnapshotRecord>>(&payload).as_ref(), Ok(&records));
    assert_eq!(walk_records(&payload), RECORDS);
    let mut add = |name, run| {
        cases.push(Case { name, items: RECORDS, bytes, run, rounds: Vec::new() });
    };
    let own = payload.clone();
    add(
        "snapshot records, read",
        Box::new(move || drop(black_box(codec::decode_msgpack::<Vec<SnapshotRecord>>(&own)))),
    );
    add(
        "snapshot records, read by hand",
        Box::new(move || {
            black_box(walk_records(&payload));
        }),
    );
    add(
        "snapshot records, write",
        Box::new(move || drop(black_box(codec::encode_msgpack(&records)))),
    );

    // `codec 64x1` measures the cases whose name holds that text.
    let only = std::env::args().nth(1).unwrap_or_default();
    cases.retain(|case| case.name.contains(&only));
    for round in 0..=ROUNDS {
        for case in &mut cases {
            let times = ITEMS_PER_ROUND / case.items;
            let start = cpu_ns();
            (0..times).for_each(|_| (case.run)());
            let ns = (cpu_ns() - start) / (case.items * times) as f64;
            if round > 0 {
                case.rounds.push(ns); // the first round warms up
            }
        }
    }
    println!(
        "ns per block of {BLOCK_SIZE} tokens or per record, median (lowest .. highest) of {ROUNDS} rounds"
    );
    for Case { name, bytes, rounds, .. } in &mut cases {
        rounds.sort_by(f64::total_cmp);
        let (low, high) = (rounds[0], rounds[rounds.len() - 1]);
        println!(
            "{name:32} {:7.1} ({low:.1} .. {high:.1})  {bytes:7} bytes",
            rounds[rounds.len() / 2]
        );
    }
}

/// CPU time of this process: other work on the machine is not counted, though it cools the caches.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

// === by hand

/// The blocks of an envelope; ids, hashes and content hashes are kept.
fn walk_envelope(payload: &[u8]) -> usize {
    let mut from = Cursor::new(payload);
    let mut ids = Vec::with_capacity(BLOCKS * BLOCK_SIZE);
    let mut blocks = Vec::with_capacity(BLOCKS);
    let mut walk = || -> Result<(), Unreadable> {
        for _ in 1..from.map()? {
            (from.text_bytes()?, from.skip()?);
        }
        from.text_bytes()?;
        for _ in 0..from.array()? {
            from.map()?;
            for _ in ["type", "parent", "block_size"] {
                (from.text_bytes()?, from.skip()?);
            }
            from.text_bytes()?;
            let count = from.array()?;
            from.u32s(count, &mut ids)?;
            from.text_bytes()?;
            for _ in 0..from.array()? {
                from.map()?;
                let hash = (from.text_bytes()?, from.bytes()?).1.first_chunk::<8>().copied();
                blocks.push((hash, (from.text_bytes()?, from.u64()?).1));
            }
            (from.text_bytes()?, from.skip()?);
        }
        Ok(())
    };
    walk().expect("our own bytes");
    assert_eq!((ids.len(), from.remaining()), (BLOCKS * BLOCK_SIZE, 0));
    black_box((ids, blocks)).1.len()
}

/// The records of a chunk, with what differs from one to the next.
fn walk_records(payload: &[u8]) -> usize {
    let mut from = Cursor::new(payload);
    let mut records = Vec::with_capacity(RECORDS);
    let mut walk = || -> Result<(), Unreadable> {
        for _ in 0..from.array()? {
            from.map()?;
            let hash = (from.text_bytes()?, from.bytes()?).1.first_chunk::<8>().copied();
            let parent = (from.text_bytes()?, from.bytes()?).1.first_chunk::<8>().copied();
            let content = (from.text_bytes()?, from.u64()?).1;
            let block_size = (from.text_bytes()?, from.u32()?).1;
            (from.text_bytes()?, from.text_bytes()?);
            let count = (from.text_bytes()?, from.u32()?).1;
            records.push((hash, parent, content, block_size, count));
        }
        Ok(())
    };
    walk().expect("our own bytes");
    assert_eq!(from.remaining(), 0);
    black_box(records).len()
}

// === the messages

fn hash(of: u64) -> u64 {
    (of + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

fn envelope(events: usize) -> Envelope {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut token = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 128_000) as u32
    };
    let blocks = BLOCKS / events;
    let stored = (0..events).map(|event| {
        let tokens: Vec<u32> = (0..blocks * BLOCK_SIZE).map(|_| token()).collect();
        let block = |(at, own): (usize, &[u32])| StoredBlock {
            hash: BlockHash::from_u64(hash((event * 1000 + at) as u64)),
            content: Some(content_hash(own)),
        };
        Event::Stored(Stored {
            parent: Parent::Block(BlockHash::from_u64(hash(event as u64 * 1000 + 999))),
            block_size: BLOCK_SIZE as u32,
            blocks: tokens.chunks(BLOCK_SIZE).enumerate().map(block).collect(),
            tokens: Tokens(tokens),
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        })
    });
    Envelope {
        replica: Replica { model: "org/model".into(), instance: "10.0.0.7:8000".into(), rank: 0 },
        epoch: Epoch(1_796_006_936_000),
        incarnation: None,
        seq: Seq(17),
        span: 1,
        digest: digest(b"the engine's payload"),
        trust: Trust::Exact,
        ts: 1_796_006_936_107_260,
        engine: Engine { kind: EngineKind::Vllm, format: "vllm.map".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: BLOCK_SIZE as u32 },
        events: stored.collect(),
    }
}

fn record(at: u64) -> SnapshotRecord {
    SnapshotRecord {
        hash: BlockHash::from_u64(hash(at)),
        parent: Parent::Block(BlockHash::from_u64(hash(at + 1))),
        content: Some(hash(at + 2)),
        block_size: BLOCK_SIZE as u32,
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    }
}
