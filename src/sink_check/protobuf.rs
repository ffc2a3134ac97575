//! A batch of protobuf as its reader decodes it, without the token ids.

use kvbridge_schemas::msgpack::Unreadable;
use prost::Message as _;

use super::decode::{Batch, Event, Hash, Said, Stored, Written};
use crate::sink_line::{
    Form,
    smg::{Data, KvBlocksStored, KvCacheEvent, KvEventBatch},
};

/// What a batch of the other form has around its events: time, events, rank.
const ELEMENTS: usize = 3;

/// Reads a payload to its end.
pub(super) fn batch(payload: &[u8]) -> Result<Batch, Unreadable> {
    let message = KvEventBatch::decode(payload).map_err(|_| Unreadable::WrongType)?;
    Ok(Batch {
        elements: ELEMENTS,
        time: Some(message.timestamp).filter(|time| time.is_finite()),
        events: message.events.into_iter().map(event).collect(),
        rank: message.dp_rank.and_then(|rank| u64::try_from(rank).ok()),
    })
}

fn event(event: KvCacheEvent) -> Event {
    let said = match event.data {
        Some(Data::Cleared(_)) => Said::Cleared,
        Some(Data::Removed(removed)) => Said::Removed {
            hashes: removed.block_hashes.into_iter().map(hash).collect(),
            medium: removed.medium,
        },
        Some(Data::Stored(stored)) => Said::Stored(stores(stored)),
        None => Said::Other("none".to_owned()),
    };
    Event { form: Form::Maps, said }
}

fn stores(stored: KvBlocksStored) -> Stored {
    let sizes = || stored.blocks.iter().map(|block| block.block_size);
    // Blocks of several sizes fill none of them.
    let size = sizes().next().filter(|first| sizes().all(|size| size == *first));
    Stored {
        hashes: stored.blocks.iter().map(|block| hash(block.block_hash)).collect(),
        parent: stored.parent_block_hash.map(hash),
        token_count: stored.blocks.iter().map(|block| block.token_ids.len()).sum(),
        block_size: size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
        medium: stored.medium,
        lora: stored.lora_name,
        keyed_count: stored.blocks.iter().filter(|block| !block.extra_keys.is_empty()).count(),
        texts: Vec::new(),
    }
}

fn hash(bits: i64) -> Hash {
    let key = u64::from_be_bytes(bits.to_be_bytes());
    Hash { key, written: Written::Wide, negative: false }
}
