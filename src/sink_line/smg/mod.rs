//! Batches as SMG's gateway reads them: `KvEventBatch` of `common.proto`, which is SMG's
//! (Apache-2.0, from the package smg-grpc-proto 0.4.28 on PyPI). `proto.rs` is generated from it by
//! `tests/sinks/smg_proto`.
//!
//! A payload is a message without its number: fields of protobuf may come in any order and from
//! several pieces, so that a batch is encoded once for all readers and [`with_number`] puts each
//! number before it. Ranks are not named: a stream is of one, and the gateway resumes with the
//! number of rank 0 alone.

#[expect(missing_docs, unreachable_pub, reason = "generated; common.proto has the words")]
#[rustfmt::skip]
mod proto;

use std::time::Duration;

use kvbridge_schemas::{ExtraKey, Tier};
use prost::{Message as _, bytes::BufMut, encoding};

use super::{
    Numbered, Payload,
    batch::{Fact, Facts, continues},
};
pub use proto::{
    KvBlock, KvBlocksRemoved, KvBlocksStored, KvCacheCleared, KvCacheEvent, KvEventBatch,
    SubscribeKvEventsRequest, kv_cache_event::Data,
};
use proto::{
    KvBlockExtraKey, KvCacheTier, KvMultimodalKey, KvSnapshotChunk, kv_block_extra_key::Key,
};

/// Writes a whole message.
pub fn with_number(batch: &Numbered, out: &mut impl BufMut) {
    encoding::uint64::encode(1, &batch.seq, out);
    out.put_slice(&batch.payload);
}

/// One batch, as a part of a whole view or as what happened.
pub(super) fn batch(facts: &[Fact], unix_ms: u64, snapshot: Option<KvSnapshotChunk>) -> Payload {
    let events = facts.chunk_by(is_one_event).filter_map(event);
    let message = KvEventBatch {
        sequence_number: 0,
        timestamp: Duration::from_millis(unix_ms).as_secs_f64(),
        events: events.collect(),
        dp_rank: None,
        snapshot,
        load: None,
    };
    Payload::from(message.encode_to_vec())
}

/// A whole view, marked so that a reader which has not all of it begins again.
pub(super) fn snapshot(whole: &Facts, unix_ms: u64) -> Vec<Payload> {
    let pieces = whole.pieces();
    let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let stored =
        |piece: &&[Fact]| piece.iter().filter(|it| matches!(it, Fact::Stored { .. })).count();
    let blocks = u64::from(small(pieces.iter().map(stored).sum()));
    let count = small(pieces.len());
    let marked = pieces.iter().enumerate().map(|(index, piece)| {
        let chunk = KvSnapshotChunk { index: small(index), count, blocks, unknown_before: 0 };
        batch(piece, unix_ms, Some(chunk))
    });
    marked.collect()
}

/// The salt is the event's.
fn is_one_event(one: &Fact, next: &Fact) -> bool {
    let same_salt = match (one, next) {
        (Fact::Stored { described, .. }, Fact::Stored { described: next, .. }) => {
            described.salt == next.salt
        }
        _ => true,
    };
    same_salt && continues(one, next)
}

fn event(facts: &[Fact]) -> Option<KvCacheEvent> {
    let data = match facts.first()? {
        Fact::Stored { parent, tier, described, .. } => Data::Stored(KvBlocksStored {
            blocks: facts.iter().filter_map(block).collect(),
            parent_block_hash: parent.map(hash),
            tier: Some(tier_of(tier).into()),
            medium: Some(medium_of(tier).to_owned()),
            lora_name: described.lora.as_deref().map(str::to_owned),
            cache_salt: described
                .salt
                .as_deref()
                .filter(|salt| !salt.is_empty())
                .map(str::to_owned),
            ..KvBlocksStored::default()
        }),
        Fact::Removed { tier, .. } => Data::Removed(KvBlocksRemoved {
            block_hashes: facts.iter().filter_map(removed).collect(),
            cache_level: Some(level_of(tier)),
            tier: Some(tier_of(tier).into()),
            medium: Some(medium_of(tier).to_owned()),
            ..KvBlocksRemoved::default()
        }),
        Fact::Cleared => Data::Cleared(KvCacheCleared::default()),
    };
    Some(KvCacheEvent { event_id: 0, data: Some(data) })
}

fn block(fact: &Fact) -> Option<KvBlock> {
    let Fact::Stored { key, tier, described, .. } = fact else { return None };
    Some(KvBlock {
        block_hash: hash(*key),
        token_ids: described.tokens.0.clone(),
        block_size: i32::try_from(described.tokens.0.len()).unwrap_or(i32::MAX),
        lora_id: described.lora_id,
        cache_level: Some(level_of(tier)),
        extra_keys: described.extra.iter().map(extra_key).collect(),
    })
}

fn removed(fact: &Fact) -> Option<i64> {
    let Fact::Removed { key, .. } = fact else { return None };
    Some(hash(*key))
}

fn extra_key(key: &ExtraKey) -> KvBlockExtraKey {
    let key = match key {
        ExtraKey::Text(text) => Key::Text(text.clone()),
        ExtraKey::Bytes(digest) => Key::Blob(digest.clone()),
        ExtraKey::Item { id, offset } => {
            Key::Multimodal(KvMultimodalKey { identifier: id.clone(), offset: *offset })
        }
    };
    KvBlockExtraKey { key: Some(key) }
}

/// The same 64 bits, as they are written there.
fn hash(key: u64) -> i64 {
    i64::from_be_bytes(key.to_be_bytes())
}

fn tier_of(tier: &Tier) -> KvCacheTier {
    match tier {
        Tier::Device => KvCacheTier::Device,
        Tier::Host => KvCacheTier::Host,
        Tier::Disk => KvCacheTier::Disk,
        Tier::External | Tier::Other(_) => KvCacheTier::External,
    }
}

/// What readers from before tiers look at.
fn level_of(tier: &Tier) -> i32 {
    i32::from(tier_of(tier)) - 1
}

fn medium_of(tier: &Tier) -> &str {
    match tier {
        Tier::Device => "GPU",
        Tier::Host => "CPU",
        Tier::Disk => "DISK",
        Tier::External => "OBJ",
        Tier::Other(medium) => medium,
    }
}
