//! The words of the native stream (`kv_events_config`), as the sources of change 17023 and of the
//! sink in C++ that follows it have them; no bytes of a real engine were seen.
//!
//! - a batch is an array `[ts, events]` or `[ts, events, rank]`;
//! - an event is a map with a `type`. One that is written by position, as another engine's are, is
//!   refused: nothing tells what its places would mean;
//! - keys and types that are not known are skipped.

use kvbridge_schemas::{BlockHash, ExtraKey, StoredBlock};

mod event;
mod field;

pub(crate) use event::read;

/// Key of the batch's rank.
pub(crate) const RANK: &str = "data_parallel_rank";

/// One event as it was sent.
pub(crate) enum RawEvent<'a> {
    Stored(RawStored<'a>),
    Removed(RawRemoved<'a>),
    /// Declared by the engine, and sent by no manager that was read.
    Cleared,
    Unknown(&'a str),
}

/// The fields of a store. No content yet.
#[derive(Default)]
pub(crate) struct RawStored<'a> {
    pub(crate) blocks: Vec<StoredBlock>,
    pub(crate) parent: Option<BlockHash>,
    /// 0 where a media digest stands.
    pub(crate) tokens: Vec<u32>,
    /// Where media digests stand among the tokens, in order.
    pub(crate) digests: Vec<u32>,
    pub(crate) block_size: u32,
    pub(crate) lora_id: Option<i64>,
    pub(crate) lora_name: Option<&'a str>,
    /// Media items, an entry for each block or none at all.
    pub(crate) media: Vec<Vec<ExtraKey>>,
    /// There are extra keys, of a form that no source shows.
    pub(crate) has_extra: bool,
    pub(crate) place: RawPlace<'a>,
}

/// The fields of a removal.
#[derive(Default)]
pub(crate) struct RawRemoved<'a> {
    pub(crate) hashes: Vec<BlockHash>,
    pub(crate) place: RawPlace<'a>,
}

/// Where blocks are.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawPlace<'a> {
    pub(crate) medium: Option<&'a str>,
    pub(crate) locality: Option<&'a str>,
}
