//! What the engine says: vLLM's batches as 0.32 writes them, made before the clock starts.
//!
//! Sequences of 128 blocks of 16 tokens; a batch stores 8 blocks, and four sequences grow in turn.
//! With a bounded cache every batch also removes 8, of the oldest sequence, deepest first.

use std::ops::Range;

pub const BLOCK_SIZE: usize = 16;
pub const CHAIN_BLOCKS: u64 = 128;
pub const BATCH_BLOCKS: u64 = 8;
const BATCHES_PER_CHAIN: u64 = CHAIN_BLOCKS / BATCH_BLOCKS;
const INTERLEAVED: u64 = 4;
const VOCABULARY: u64 = 128_000;

/// Payloads by seq, and what the engine holds behind the last one.
pub struct Stream {
    pub payloads: Vec<Vec<u8>>,
    pub stored: u64,
    pub removed: u64,
    /// Sequences that are held whole.
    pub held: Range<u64>,
}

/// `chains` sequences; of them at most `kept` stay.
pub fn stream(chains: u64, kept: u64) -> Stream {
    let chains = chains.next_multiple_of(INTERLEAVED);
    let mut stream = Stream {
        payloads: Vec::new(),
        stored: 0,
        removed: 0,
        held: chains.saturating_sub(kept)..chains,
    };
    for group in 0..chains / INTERLEAVED {
        for part in 0..BATCHES_PER_CHAIN {
            for chain in (0..INTERLEAVED).map(|at| group * INTERLEAVED + at) {
                let gone = chain.checked_sub(kept);
                stream.payloads.push(batch(chain, part, gone));
                stream.stored += BATCH_BLOCKS;
                stream.removed += if gone.is_some() { BATCH_BLOCKS } else { 0 };
            }
        }
    }
    stream
}

/// SplitMix64 of a place.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn hash(chain: u64, block: u64) -> u64 {
    mix((chain << 16 | block) + 1)
}

fn token(chain: u64, at: u64) -> u64 {
    mix((chain << 24 | at) ^ 0x5EED_0000_0000_0000) % VOCABULARY
}

/// The prompt that a sequence is of.
pub fn prompt(chain: u64, blocks: u64) -> Vec<u64> {
    (0..blocks * BLOCK_SIZE as u64).map(|at| token(chain, at)).collect()
}

fn batch(chain: u64, part: u64, gone: Option<u64>) -> Vec<u8> {
    let mut out = begin(if gone.is_some() { 2 } else { 1 });
    let first = part * BATCH_BLOCKS;
    stored(&mut out, chain, first..first + BATCH_BLOCKS);
    if let Some(gone) = gone {
        let end = CHAIN_BLOCKS - first;
        removed(&mut out, gone, end - BATCH_BLOCKS..end);
    }
    out.push(0);
    out
}

/// A batch that stores one block of a sequence of its own: to be seen arriving.
pub fn marker(chain: u64) -> Vec<u8> {
    let mut out = begin(1);
    stored(&mut out, chain, 0..1);
    out.push(0);
    out
}

fn begin(events: u8) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1_750_000_000.25_f64.to_be_bytes());
    out.push(0x90 | events);
    out
}

fn stored(out: &mut Vec<u8>, chain: u64, blocks: Range<u64>) {
    out.push(0x88);
    text(out, "type");
    text(out, "BlockStored");
    text(out, "block_hashes");
    count(out, blocks.end - blocks.start);
    blocks.clone().for_each(|block| int(out, hash(chain, block)));
    text(out, "parent_block_hash");
    match blocks.start.checked_sub(1) {
        Some(before) => int(out, hash(chain, before)),
        None => out.push(0xc0),
    }
    text(out, "token_ids");
    let size = BLOCK_SIZE as u64;
    count(out, (blocks.end - blocks.start) * size);
    (blocks.start * size..blocks.end * size).for_each(|at| int(out, token(chain, at)));
    text(out, "block_size");
    int(out, size);
    text(out, "lora_id");
    out.push(0xc0);
    text(out, "medium");
    text(out, "GPU");
    text(out, "lora_name");
    out.push(0xc0);
}

/// Deepest first.
fn removed(out: &mut Vec<u8>, chain: u64, blocks: Range<u64>) {
    out.push(0x83);
    text(out, "type");
    text(out, "BlockRemoved");
    text(out, "block_hashes");
    count(out, blocks.end - blocks.start);
    blocks.rev().for_each(|block| int(out, hash(chain, block)));
    text(out, "medium");
    text(out, "GPU");
}

fn count(out: &mut Vec<u8>, count: u64) {
    match u16::try_from(count).expect("a small array") {
        small @ 0..16 => out.push(0x90 | small as u8),
        large => {
            out.push(0xdc);
            out.extend(large.to_be_bytes());
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | u8::try_from(text.len()).expect("a short text"));
    out.extend(text.as_bytes());
}

fn int(out: &mut Vec<u8>, value: u64) {
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
