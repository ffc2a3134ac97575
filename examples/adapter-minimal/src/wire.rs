//! Lines of the engine → batches. A peer's bytes end here, and decide about no allocation: a line
//! is bounded before it is read.

use kvbridge::{
    api::{Batch, Loss},
    schemas::{
        BlockHash, Event, HashInfo, HashScheme, Parent, Place, Removed, Seq, Stored, StoredBlock,
        Tier, Tokens, content_hash, digest,
    },
};
use tokio_util::codec::AnyDelimiterCodec;

#[derive(serde::Deserialize)]
struct Line {
    seq: u64,
    #[serde(default)]
    stored: Vec<Block>,
    #[serde(default)]
    removed: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Block {
    hash: String,
    parent: Option<String>,
    tokens: Vec<u32>,
}

/// Lines, none longer than that.
pub(crate) fn lines(bytes_max: usize) -> AnyDelimiterCodec {
    AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), b"\n".to_vec(), bytes_max)
}

/// `None` = no batch at all: not even its number can be read. An event that cannot be read is a
/// loss of the batch, whose number is not missing.
pub(crate) fn batch(line: &[u8], block_size: u32) -> Option<Batch> {
    let read: Line = serde_json::from_slice(line).ok()?;
    let mut loss = Loss::Nothing;
    let mut events = Vec::new();
    for block in &read.stored {
        match stored(block, block_size) {
            Some(stored) => events.push(Event::Stored(stored)),
            None => loss = loss.max(Loss::Stores),
        }
    }
    let hashes: Vec<_> = read.removed.iter().filter_map(|text| hash(text)).collect();
    if hashes.len() < read.removed.len() {
        loss = Loss::MayRemove;
    }
    if !hashes.is_empty() {
        events.push(Event::Removed(Removed { hashes, place: Place::of(Tier::Device) }));
    }
    Some(Batch {
        epoch: None,
        incarnation: None,
        seq: Seq(read.seq),
        span: 1,
        digest: digest(line),
        ts: 0,
        format: "tiny.line",
        hash: HashInfo { scheme: HashScheme::Unknown, block_size },
        rank: None,
        events,
        loss,
        bytes: u32::try_from(line.len()).unwrap_or(u32::MAX),
    })
}

fn stored(block: &Block, block_size: u32) -> Option<Stored> {
    let parent = match &block.parent {
        Some(text) => Parent::Block(hash(text)?),
        None => Parent::Root,
    };
    if usize::try_from(block_size) != Ok(block.tokens.len()) {
        return None;
    }
    let content = Some(content_hash(&block.tokens));
    Some(Stored {
        parent,
        block_size,
        blocks: vec![StoredBlock { hash: hash(&block.hash)?, content }],
        tokens: Tokens(block.tokens.clone()),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    })
}

fn hash(text: &str) -> Option<BlockHash> {
    u64::from_str_radix(text, 16).ok().map(BlockHash::from_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_a_loss_and_no_number_is_no_batch() {
        let loss = |text: &str| batch(text.as_bytes(), 2).map(|batch| batch.loss);
        let stored = r#"{"seq": 1, "stored": [{"hash": "a", "parent": null, "tokens": [1, 2]}]}"#;
        assert_eq!(loss(stored), Some(Loss::Nothing));
        assert_eq!(loss(&stored.replace("[1, 2]", "[1]")), Some(Loss::Stores));
        assert_eq!(loss(r#"{"seq": 1, "removed": ["x"]}"#), Some(Loss::MayRemove));
        assert_eq!(loss("{}"), None);
        assert_eq!(loss("\u{0}"), None);
    }
}
