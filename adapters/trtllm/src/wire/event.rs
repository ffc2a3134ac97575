//! One event: its head, and what happened.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    hash::{Hash, Hashes},
    tokens::Tokens,
};
use crate::{fault::Fault, limits::TEXT_BYTES_MAX};

/// What stands around an event.
#[derive(Debug, Deserialize)]
pub(crate) struct Head<'a> {
    pub(crate) event_id: u64,
    #[serde(borrow)]
    pub(crate) data: &'a RawValue,
    #[serde(default)]
    pub(crate) window_size: Option<u64>,
    /// Absent where attention is not data-parallel.
    #[serde(default)]
    pub(crate) attention_dp_rank: Option<u32>,
    #[serde(default)]
    pub(crate) hash_algo: Option<String>,
    /// Sent by the newer of the two cache managers only.
    #[serde(default)]
    pub(crate) layer_group_id: Option<u32>,
}

impl<'a> Head<'a> {
    /// `Ok(None)` for the empty object that the serializer makes of no event.
    pub(crate) fn read(text: &'a str) -> Result<Option<Head<'a>>, ()> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Empty {}
        match serde_json::from_str(text) {
            Ok(head) => Ok(Some(head)),
            Err(_) if serde_json::from_str::<Empty>(text).is_ok() => Ok(None),
            Err(_) => Err(()),
        }
    }
}

/// What happened, as it was sent.
#[derive(Debug)]
pub(crate) enum Data {
    Created(Vec<u64>),
    Stored(RawStored),
    Removed(Hashes),
    Updated { hash: Hash, level: Option<Diff> },
}

/// A chain of blocks.
#[derive(Debug)]
pub(crate) struct RawStored {
    pub(crate) parent: Option<Hash>,
    pub(crate) blocks: Vec<RawBlock>,
}

/// All fields of all types; which of them are needed the type says.
#[derive(Debug, Deserialize)]
struct RawData {
    #[serde(rename = "type")]
    tag: String,
    #[serde(default)]
    num_blocks_per_cache_level: Option<Vec<u64>>,
    #[serde(default)]
    parent_hash: Option<Hash>,
    #[serde(default)]
    blocks: Option<Vec<RawBlock>>,
    #[serde(default)]
    block_hashes: Option<Hashes>,
    #[serde(default)]
    block_hash: Option<Hash>,
    #[serde(default)]
    cache_level: Option<Diff>,
}

/// One block of a store.
#[derive(Deserialize)]
pub(crate) struct RawBlock {
    pub(crate) block_hash: Hash,
    pub(crate) tokens: Tokens,
    #[serde(default)]
    pub(crate) cache_level: u32,
    #[serde(default)]
    pub(crate) mm_keys: Option<Vec<MediaKey>>,
    #[serde(default)]
    pub(crate) cache_salt: Option<String>,
}

impl std::fmt::Debug for RawBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawBlock({:?}, {} tokens)", self.block_hash.0, self.tokens.len())
    }
}

/// A media item in a block.
#[derive(Deserialize)]
pub(crate) struct MediaKey {
    pub(crate) hash: String,
    #[serde(default)]
    pub(crate) start_offset: i64,
}

/// A change of a number.
#[derive(Debug, Deserialize)]
pub(crate) struct Diff {
    pub(crate) new_value: u32,
}

#[derive(Deserialize)]
struct Tag {
    #[serde(rename = "type")]
    tag: String,
}

/// Reads what happened. A type that is not known is a fault of its own.
pub(crate) fn read_data(raw: &RawValue) -> Result<Data, Fault> {
    let data: RawData = serde_json::from_str(raw.get()).map_err(|_| lost(raw))?;
    let missing = lost_by_tag(&data.tag);
    match data.tag.as_str() {
        "created" => data.num_blocks_per_cache_level.map(Data::Created).ok_or(missing),
        "stored" => {
            let blocks = data.blocks.ok_or(missing)?;
            if blocks.iter().any(RawBlock::is_too_long) {
                return Err(missing);
            }
            Ok(Data::Stored(RawStored { parent: data.parent_hash, blocks }))
        }
        "removed" => data.block_hashes.map(Data::Removed).ok_or(missing),
        "updated" => {
            let hash = data.block_hash.ok_or(missing)?;
            Ok(Data::Updated { hash, level: data.cache_level })
        }
        _ => Err(missing),
    }
}

impl RawBlock {
    fn is_too_long(&self) -> bool {
        let salt = self.cache_salt.as_ref().map_or(0, String::len);
        let media = self.mm_keys.iter().flatten().map(|key| key.hash.len()).sum::<usize>();
        salt > TEXT_BYTES_MAX || media > TEXT_BYTES_MAX
    }
}

/// What is lost with data that cannot be read: only a store is known to remove nothing.
fn lost(raw: &RawValue) -> Fault {
    serde_json::from_str(raw.get()).map_or(Fault::MayRemove, |Tag { tag }| lost_by_tag(&tag))
}

fn lost_by_tag(tag: &str) -> Fault {
    match tag {
        "stored" => Fault::Stored,
        "created" | "removed" | "updated" => Fault::MayRemove,
        _ => Fault::UnknownType,
    }
}
