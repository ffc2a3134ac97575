//! From bytes to events: an engine's payload, and an envelope in both directions.

use std::hint::black_box;

use kvbridge::schemas::{
    BlockHash, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Parent, Place,
    Replica, Seq, Stored, StoredBlock, Tier, Tokens, Trust, codec, content_hash, digest,
};

use crate::BLOCKS;

const BLOCK_SIZE: usize = 16;

pub fn vllm(payload: &[u8]) -> bool {
    thread_local!(static DECODER: kvbridge_adapters_vllm::Decoder = Default::default());
    DECODER.with(|decoder| black_box(decoder.decode(&[0; 8], payload)).is_ok())
}

pub fn sglang(payload: &[u8]) -> bool {
    thread_local!(static DECODER: kvbridge_adapters_sglang::Decoder = Default::default());
    DECODER.with(|decoder| {
        black_box(kvbridge_adapters_sglang::decode(decoder, b"kv@g", &[0; 8], payload)).is_ok()
    })
}

/// A batch of one store.
pub fn engine(decode: fn(&[u8]) -> bool, map: bool, times: usize) {
    let payload = payload(map);
    for _ in 0..times {
        assert!(decode(black_box(&payload)), "a payload of ours is read");
    }
}

pub fn envelope_write(times: usize) {
    let envelope = envelope();
    for _ in 0..times {
        black_box(codec::encode_msgpack(black_box(&envelope)));
    }
}

pub fn envelope_read(times: usize) {
    let bytes = codec::encode_msgpack(&envelope());
    for _ in 0..times {
        let read = codec::decode_msgpack::<Envelope>(black_box(&bytes));
        assert!(black_box(read).is_ok(), "an envelope of ours is read");
    }
}

fn tokens() -> Vec<u32> {
    let spread = |at: u32| at.wrapping_mul(0x9e37_79b9) >> 15; // below 131 072
    (0..BLOCKS * BLOCK_SIZE).map(|at| spread(at as u32 + 1)).collect()
}

fn hash(block: usize) -> u64 {
    (block as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

fn envelope() -> Envelope {
    let tokens = tokens();
    let block = |(at, own): (usize, &[u32])| StoredBlock {
        hash: BlockHash::from_u64(hash(at)),
        content: Some(content_hash(own)),
    };
    let stored = Stored {
        parent: Parent::Root,
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
    };
    Envelope {
        replica: Replica { model: "m".into(), instance: "10.0.0.1:8000".into(), rank: 0 },
        epoch: Epoch(1_790_000_000_000),
        incarnation: None,
        seq: Seq(7),
        span: 1,
        digest: digest(&[7]),
        trust: Trust::Exact,
        ts: 1_790_000_000_000_000,
        engine: Engine { kind: EngineKind::Vllm, format: "vllm.map".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: BLOCK_SIZE as u32 },
        events: vec![Event::Stored(stored)],
    }
}

/// As vLLM writes it: seven fields in an array, or nine in a map.
fn payload(map: bool) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1_750_000_000.25_f64.to_be_bytes());
    out.push(0x91);
    out.push(if map { 0x87 } else { 0x97 });
    let key = |out: &mut Vec<u8>, name: &str| {
        if map {
            text(out, name);
        }
    };
    key(&mut out, "type");
    text(&mut out, "BlockStored");
    key(&mut out, "block_hashes");
    array(&mut out, BLOCKS);
    (0..BLOCKS).for_each(|block| uint(&mut out, hash(block)));
    key(&mut out, "parent_block_hash");
    out.push(0xc0);
    key(&mut out, "token_ids");
    array(&mut out, BLOCKS * BLOCK_SIZE);
    tokens().into_iter().for_each(|token| uint(&mut out, token.into()));
    key(&mut out, "block_size");
    uint(&mut out, BLOCK_SIZE as u64);
    key(&mut out, "lora_id");
    out.push(0xc0);
    key(&mut out, "medium");
    text(&mut out, "GPU");
    out.push(0xc0);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len() as u8);
    out.extend(text.as_bytes());
}

fn array(out: &mut Vec<u8>, count: usize) {
    out.push(0xdc);
    out.extend((count as u16).to_be_bytes());
}

fn uint(out: &mut Vec<u8>, value: u64) {
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
