//! PURE. The fold of one replica's events: which blocks it holds, where, and how often.
//!
//! A [`View`] knows no clock, socket, task or logger. It takes events in and says, as [`Delta`]s,
//! what changed for prefix matching; the index is a fold of the deltas. What contradicts the stream
//! comes out as a [`Finding`](crate::recovery::Finding): deciding about trust is recovery's work.
//!
//! Rules that are easy to get wrong:
//! - Residency is by hash, counted per (block, tier, group): an engine stores a hash once per
//!   physical copy and removes it as often.
//! - A block is *resident* by any copy; it is *linked* (a prefix can reach it) when a dense store
//!   told its parent and content. Sparse and placeholder stores make resident, never linked.
//! - A link lasts as long as the block is resident anywhere. The parent may go earlier: engines
//!   evict lazily, and the child is reachable again the moment the parent is back.
//! - A block whose parent is not resident (or itself parked) when it is stored is parked:
//!   everything but its deltas works as for any other block.
//! - All copies of a block in groups that hold whole prefixes stand for all its links. Where two
//!   such groups have different block sizes, one of them holding the block is enough: as everywhere
//!   in prefix matching, what the other groups hold is an approximation.
#![deny(clippy::wildcard_enum_match_arm)]

mod block;
mod fold;
mod kinds;
mod link;
mod order;
mod parking;
mod parting;
mod plain;
mod row;
mod snapshot;
mod strip;
mod strips;
mod taking;
#[cfg(test)]
pub(crate) mod tests;
mod told;

use std::{collections::BTreeMap, fmt, sync::Arc};

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{BlockHash, Parent, Projection, Tier};

use block::{Block, Full, Groups, Totals};
use kinds::Kinds;
pub use link::{
    Delta, Described, LinkParent, NodeId, STRIP_BLOCKS_MAX, StripChange, StripParent, namespace,
};
use order::At;
use parking::Parking;
pub use snapshot::InstallError;
use strips::Strips;

use crate::maps::keyed::Keyed;

/// Blocks that may wait for their parents. One lost store can orphan whatever is stored under it;
/// this many cost some megabytes per replica. Beyond them blocks are missed and `exact` ends.
pub const ORPHANS_MAX: usize = 65_536;

/// What the fold depends on beside the events. The same for the whole life of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewSettings {
    /// Which 64 bits of a hash name the block.
    pub projection: Projection,
    /// What one removal takes away.
    pub removal: Removal,
    /// How many blocks may wait for their parents.
    pub orphans_max: usize,
    /// Whether blocks keep what only other routers need ([`Described`]): it costs 4 bytes a token
    /// and some 150 a block.
    pub describes: bool,
    /// Whether deltas tell of each block by itself, for readers beside the index: sinks. It costs
    /// time and memory.
    pub told_singly: bool,
    /// Whether the engine leaves stores out without a word. A block below an unknown one then shows
    /// that it did, and a removal of an unknown one contradicts nothing.
    pub leaves_out: bool,
}

impl ViewSettings {
    /// Settings of a view that describes nothing, of an engine that leaves nothing out.
    pub const fn of(projection: Projection, removal: Removal, orphans_max: usize) -> ViewSettings {
        let (describes, told_singly, leaves_out) = (false, false, false);
        ViewSettings { projection, removal, orphans_max, describes, told_singly, leaves_out }
    }
}

/// What one replica holds.
#[derive(Clone)]
pub struct View {
    settings: ViewSettings,
    strips: Strips,
    /// Blocks that are in no strip.
    blocks: Keyed<Block>,
    /// What the plain blocks' kinds are.
    kinds: Kinds,
    /// The longest form of each hash that was seen, where it is not the eight bytes of the key.
    hashes: Keyed<BlockHash>,
    /// Blocks of a snapshot that knew their parents and not their content. Beside the blocks,
    /// because only one engine has such snapshots and all would pay for a field.
    bare: BTreeMap<u64, Parent>,
    groups: Groups,
    parking: Parking,
    totals: Totals,
}

impl View {
    /// An empty view.
    pub fn new(settings: ViewSettings) -> View {
        View {
            settings,
            strips: Strips::default(),
            blocks: Keyed::default(),
            kinds: Kinds::default(),
            hashes: Keyed::default(),
            bare: BTreeMap::new(),
            groups: Groups::default(),
            parking: Parking::default(),
            totals: Totals::default(),
        }
    }

    /// What the fold depends on.
    #[cfg(test)]
    pub(crate) fn settings(&self) -> &ViewSettings {
        &self.settings
    }

    /// Whether both hold the same, however they tell of it.
    #[cfg(test)]
    pub(crate) fn holds_as(&self, other: &View) -> bool {
        let mut other = other.clone();
        other.settings = self.settings;
        *self == other
    }

    /// How many distinct blocks each tier holds. A block counts once per tier, in however many
    /// groups and copies it is there; tiers without blocks are absent.
    pub fn block_counts(&self) -> BTreeMap<Tier, u64> {
        self.totals.blocks.iter().map(|(tier, count)| (tier.clone(), *count)).collect()
    }

    /// Physical full blocks on the device, all groups together: what is compared with the engine's
    /// pool size. Blocks that were stored as partial do not count.
    pub fn device_copies(&self) -> u64 {
        self.totals.device_copies
    }

    /// How many distinct blocks are held, all tiers together: what memory grows with.
    pub fn block_count(&self) -> u64 {
        u64::try_from(self.blocks.len()).unwrap_or(u64::MAX).saturating_add(self.strips.count())
    }

    /// The block sizes of all links, smallest first. Empty while no store told any content.
    pub fn block_sizes(&self) -> Vec<u32> {
        self.totals.links.keys().copied().collect()
    }

    /// Whether a match by tokens says nothing: blocks are held and none can ever match, because the
    /// engine (or what lies between) sends hashes without tokens; or some came with a snapshot that
    /// knew no content, and what is said of the others would leave them out.
    pub fn lacks_content(&self) -> bool {
        !self.bare.is_empty() || (self.totals.links.is_empty() && self.block_count() > 0)
    }

    /// Whether the host tier holds blocks of a source that never announces removals (medium `cpu`
    /// in lower case: Mooncake's store, LMCache), which makes the tier a hint.
    pub fn host_is_hint(&self) -> bool {
        self.totals.host_hint_spots > 0
    }

    /// Blocks that wait for their parents.
    pub fn parked_count(&self) -> usize {
        self.parking.count()
    }

    /// [`Delta::Linked`] for everything that is linked, block by block, parents before their
    /// children.
    pub fn links(&self) -> impl Iterator<Item = Delta> + '_ {
        self.parents_first().into_iter().flat_map(|at| {
            let mut links = Vec::new();
            match at {
                At::Block(key) => match self.blocks.get(key) {
                    Some(block) => self.announce(key, block, &mut links),
                    None => {
                        let full = self.full(key).unwrap_or_default();
                        self.announce_full(key, &full, &mut links);
                    }
                },
                At::Strip(number) => {
                    self.each_of(number, |key, full| self.announce_full(key, full, &mut links));
                }
            }
            links
        })
    }

    /// What makes an empty index one of this view, for which the view's next deltas are meant: as
    /// [`View::links`], with strips.
    pub fn as_deltas(&self) -> impl Iterator<Item = Delta> + '_ {
        let alone = self.blocks_first().into_iter().flat_map(|key| {
            let mut links = Vec::new();
            if let Some(block) = self.blocks.get(key) {
                self.announce(key, block, &mut links);
            }
            links
        });
        // What blocks follow that are in no strip, the reader of deltas has to know first.
        alone.chain(self.strips.in_order().into_iter().flat_map(|number| self.strip_whole(number)))
    }

    fn strip_whole(&self, number: u32) -> Vec<Delta> {
        let Some(strip) = self.strips.get(number) else { return Vec::new() };
        let Some(kind) = self.kinds.get(strip.kind) else { return Vec::new() };
        let Some(link) = &kind.link else { return Vec::new() };
        let alike = (link.block_size, link.bigram, &kind.spot.tier);
        let mut deltas: Vec<Delta> =
            self.strips.grown((number, 0), alike, true).into_iter().collect();
        let bits = (u64::MAX >> (64 - strip.len().clamp(1, 64))) & !strip.live;
        if bits != 0 {
            let change = StripChange::Thinned { bits, left: strip.len() };
            deltas.push(Delta::Strip { number, change });
        }
        deltas
    }

    fn announce(&self, key: u64, block: &Block, links: &mut Vec<Delta>) {
        match block {
            Block::Plain(plain) => links.extend(self.linked(key, plain)),
            Block::Full(full) => self.announce_full(key, full, links),
        }
    }

    fn announce_full(&self, key: u64, full: &Full, links: &mut Vec<Delta>) {
        for tier in full.usable_tiers(&self.groups) {
            full.announce(key, &tier, true, links);
        }
    }

    /// Each block of a strip that is there, at full length.
    fn each_of(&self, number: u32, mut each: impl FnMut(u64, &Full)) {
        let Some(strip) = self.strips.get(number) else { return };
        for at in (0..strip.len()).filter(|at| strip.live & (1 << at) != 0) {
            if let (Some((key, _)), Some(full)) = (strip.get(at), self.expand_at(strip, at)) {
                each(key, &full);
            }
        }
    }

    /// The block at full length, wherever it is kept.
    fn full(&self, key: u64) -> Option<Full> {
        match self.strips.find(key) {
            Some(place) => self.expand_at(self.strips.get(place.strip)?, place.at),
            None => self.blocks.get(key).map(|block| self.kinds.expand(block)),
        }
    }

    /// What a store told of a linked block, for routers that compute hashes of their own. Absent
    /// where nothing is kept, and after a snapshot, which has no tokens.
    pub fn described(&self, node: NodeId) -> Option<Arc<Described>> {
        match self.blocks.get(node.key)? {
            Block::Full(full) => full.links.get(&node.block_size)?.described.clone(),
            Block::Plain(_) => None,
        }
    }

    /// The content hash of a linked block that is made of its tokens alone: no adapter, salt, media
    /// or pairs. To a router that hashes tokens itself, any other block is another one.
    pub fn plain_content(&self, node: NodeId) -> Option<u64> {
        let none = |text: &Option<Arc<str>>| text.as_deref().is_none_or(str::is_empty);
        let full = self.full(node.key)?;
        let link = full.links.get(&node.block_size)?;
        let is_plain = none(&link.lora) && none(&link.salt) && !link.bigram;
        (is_plain && link.extra.is_none()).then_some(link.content)
    }

    /// Whether a child of `node` can be linked: the block is resident and waits for nothing itself.
    fn is_ready(&self, node: NodeId) -> bool {
        match self.blocks.get(node.key) {
            None => self.strips.find(node.key).is_some(),
            Some(Block::Full(full)) => {
                full.links.get(&node.block_size).is_none_or(|link| !link.parked)
            }
            Some(Block::Plain(plain)) => {
                let kind = self.kinds.get(plain.kind).and_then(|kind| kind.link.as_ref());
                !plain.parked || kind.is_none_or(|link| link.block_size != node.block_size)
            }
        }
    }

    /// The block at full length, to be changed. Whoever does it calls [`View::repack`] in the end.
    fn unpack(&mut self, key: u64) -> Option<&mut Full> {
        unpack(&mut self.blocks, &mut self.kinds, key)
    }

    /// Keeps the block in few bytes if they can say all of it.
    fn repack(&mut self, key: u64) {
        if let Some(block) = self.blocks.get_mut(key)
            && let Block::Full(full) = block
            && let Some(plain) = self.kinds.pack(full)
        {
            *block = Block::Plain(plain);
        }
    }

    /// The longest form of a block's hash that was seen.
    fn hash_of(&self, key: u64) -> BlockHash {
        self.hashes.get(key).cloned().unwrap_or_else(|| BlockHash::from_u64(key))
    }

    /// Remembers the hash if it says more than what is known. Of eight bytes the key says all.
    fn note_hash(&mut self, key: u64, hash: &BlockHash) {
        let length = hash.as_bytes().len();
        if length == size_of::<u64>() && self.hashes.is_empty() {
            return;
        }
        let known = match self.hashes.get(key) {
            Some(known) => known.as_bytes().len(),
            None if self.blocks.get(key).is_some() => size_of::<u64>(),
            None => 0,
        };
        if length > known && length != size_of::<u64>() {
            self.hashes.insert(key, hash.clone());
        } else if length > known {
            drop(self.hashes.remove(key));
        }
    }
}

fn unpack<'a>(blocks: &'a mut Keyed<Block>, kinds: &mut Kinds, key: u64) -> Option<&'a mut Full> {
    let block = blocks.get_mut(key)?;
    if let Block::Plain(plain) = block {
        let number = plain.kind;
        *block = Block::Full(Box::new(kinds.expand(block)));
        kinds.release(number);
    }
    match block {
        Block::Full(full) => Some(full),
        Block::Plain(_) => None,
    }
}

impl PartialEq for View {
    // The numbers of kinds, and which blocks are in strips, depend on the order in which they came,
    // and say nothing.
    fn eq(&self, other: &View) -> bool {
        let same = |key| self.full(key) == other.full(key);
        self.settings == other.settings
            && self.block_count() == other.block_count()
            && self.keys().into_iter().all(same)
            && self.hashes == other.hashes
            && self.bare == other.bare
            && self.groups == other.groups
            && self.parking == other.parking
            && self.totals == other.totals
    }
}

impl Eq for View {}

impl fmt::Debug for View {
    // Hashes would drown every message, and a link may carry a salt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("settings", &self.settings)
            .field("blocks", &self.block_count())
            .field("parked", &self.parking.count())
            .finish_non_exhaustive()
    }
}
