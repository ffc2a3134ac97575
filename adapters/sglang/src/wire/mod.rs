//! SGLang's own words: the shape of its messages from 0.4.9 to 0.5.23, and of the drafts beyond.
//!
//! Releases are told apart by shape and never by a version number, because none is on the wire:
//!
//! - a batch is an array `[ts, events]` (the first builds) or `[ts, events, rank]`;
//! - an event is a positional array (to 0.5.19) or a map (0.5.20 on), each event by itself;
//! - the eighth element of an array is a map (a salt, 0.5.18) or a list (a branch: component
//!   types);
//! - token ids are numbers, or pairs of them where the engine drafts with EAGLE;
//! - what no release sends (keys, elements, tags) is skipped.
//!
//! This module is the only place that knows the names of the fields.

use kvbridge_schemas::{BlockHash, StoredBlock};

mod event;
mod field;
pub(crate) mod topic;

pub(crate) use event::read;

/// Key of the batch's rank.
pub(crate) const RANK: &str = "attn_dp_rank";

/// One event as it was sent.
pub(crate) enum RawEvent<'a> {
    Stored(RawStored<'a>),
    Removed(RawRemoved<'a>),
    Cleared,
    /// A tag of no release to 0.5.23.
    Unknown(&'a str),
}

/// The fields of a store. No content yet.
#[derive(Default)]
pub(crate) struct RawStored<'a> {
    /// Named by the hashes that know of namespaces, where the engine sends those too.
    pub(crate) blocks: Vec<StoredBlock>,
    pub(crate) parent: Option<BlockHash>,
    /// Of pairs the first token of the first and the second of each.
    pub(crate) tokens: Vec<u32>,
    pub(crate) bigram: bool,
    pub(crate) block_size: u32,
    pub(crate) lora_id: Option<i64>,
    pub(crate) lora_name: Option<&'a str>,
    pub(crate) medium: Option<&'a str>,
    pub(crate) salt: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
}

/// The fields of a removal.
#[derive(Default)]
pub(crate) struct RawRemoved<'a> {
    pub(crate) hashes: Vec<BlockHash>,
    pub(crate) medium: Option<&'a str>,
}
