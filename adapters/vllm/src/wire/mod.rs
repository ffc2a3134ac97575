//! vLLM's own words: the shape of its messages from 0.9.0 to 0.33.0, and of the drafts beyond.
//!
//! Releases are told apart by shape and never by a version number, because none is on the wire:
//!
//! - a batch is an array `[ts, events]` (0.9.0) or `[ts, events, rank]` (0.9.1 on); a draft
//!   appends a publisher id, one commit between releases sent a map. All are read, what is beyond
//!   is skipped;
//! - an event is a positional array (to 0.23) or a map (0.24 on), each event by itself;
//! - what no release sends (keys, elements, tags) is skipped.
//!
//! This module is the only place that knows the names of the fields.

use kvbridge_schemas::{BlockHash, ExtraKey, StoredBlock};

mod event;
mod field;
pub(crate) mod sources;

pub(crate) use event::read;

/// Key of the batch's rank.
pub(crate) const RANK: &str = "data_parallel_rank";

/// One event as it was sent.
pub(crate) enum RawEvent<'a> {
    Stored(RawStored<'a>),
    Removed(RawRemoved<'a>),
    Cleared,
    /// A tag of no release to 0.33.0.
    Unknown(&'a str),
}

/// The fields of a store. No content yet.
#[derive(Default)]
pub(crate) struct RawStored<'a> {
    pub(crate) blocks: Vec<StoredBlock>,
    pub(crate) parent: Option<BlockHash>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) block_size: u32,
    pub(crate) lora_id: Option<i64>,
    pub(crate) lora_name: Option<&'a str>,
    pub(crate) extra: Vec<Vec<ExtraKey>>,
    /// 0.17 and 0.18 send media ids as bare texts, and 0.19 has their layout: a bare text in an
    /// event of this layout may be a media id.
    pub(crate) bare_media: bool,
    pub(crate) session: Option<&'a str>,
    pub(crate) place: RawPlace<'a>,
}

/// The fields of a removal.
#[derive(Default)]
pub(crate) struct RawRemoved<'a> {
    pub(crate) hashes: Vec<BlockHash>,
    pub(crate) place: RawPlace<'a>,
}

/// Where blocks are.
#[derive(Default)]
pub(crate) struct RawPlace<'a> {
    pub(crate) medium: Option<&'a str>,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) window: Option<u32>,
    pub(crate) locality: Option<&'a str>,
    pub(crate) ownership: Option<&'a str>,
}
