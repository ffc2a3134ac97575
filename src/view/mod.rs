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
mod link;
mod parking;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;
mod vec_map;

use std::{collections::BTreeMap, fmt, sync::Arc};

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{Parent, Projection, Tier};

use block::{Block, Groups, Totals};
pub use link::{Delta, Described, LinkParent, NodeId, namespace};
use parking::Parking;
pub use snapshot::InstallError;

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
}

impl ViewSettings {
    /// Settings of a view that describes nothing.
    pub const fn of(projection: Projection, removal: Removal, orphans_max: usize) -> ViewSettings {
        ViewSettings { projection, removal, orphans_max, describes: false }
    }
}

/// What one replica holds.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    settings: ViewSettings,
    blocks: BTreeMap<u64, Block>,
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
            blocks: BTreeMap::new(),
            bare: BTreeMap::new(),
            groups: Groups::default(),
            parking: Parking::default(),
            totals: Totals::default(),
        }
    }

    /// How many distinct blocks each tier holds. A block counts once per tier, in however many
    /// groups and copies it is there; tiers without blocks are absent.
    pub fn block_counts(&self) -> BTreeMap<Tier, u64> {
        self.totals.blocks.clone()
    }

    /// Physical full blocks on the device, all groups together: what is compared with the engine's
    /// pool size. Blocks that were stored as partial do not count.
    pub fn device_copies(&self) -> u64 {
        self.totals.device_copies
    }

    /// How many distinct blocks are held, all tiers together: what memory grows with.
    pub fn block_count(&self) -> u64 {
        u64::try_from(self.blocks.len()).unwrap_or(u64::MAX)
    }

    /// The block sizes of all links, smallest first. Empty while no store told any content.
    pub fn block_sizes(&self) -> Vec<u32> {
        self.totals.links.keys().copied().collect()
    }

    /// Whether a match by tokens says nothing: blocks are held and none can ever match, because the
    /// engine (or what lies between) sends hashes without tokens; or some came with a snapshot that
    /// knew no content, and what is said of the others would leave them out.
    pub fn lacks_content(&self) -> bool {
        !self.bare.is_empty() || (self.totals.links.is_empty() && !self.blocks.is_empty())
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

    /// [`Delta::Linked`] for everything that is linked: fills an empty index.
    pub fn links(&self) -> impl Iterator<Item = Delta> + '_ {
        self.blocks.iter().flat_map(|(key, block)| {
            let mut deltas = Vec::new();
            for tier in block.usable_tiers(&self.groups) {
                block.announce(*key, &tier, true, &mut deltas);
            }
            deltas
        })
    }

    /// What a store told of a linked block, for routers that compute hashes of their own. Absent
    /// where nothing is kept, and after a snapshot, which has no tokens.
    pub fn described(&self, node: NodeId) -> Option<Arc<Described>> {
        self.blocks.get(&node.key)?.links.get(&node.block_size)?.described.clone()
    }

    /// Whether a child of `node` can be linked: the block is resident and waits for nothing itself.
    fn is_ready(&self, node: NodeId) -> bool {
        let Some(block) = self.blocks.get(&node.key) else { return false };
        block.links.get(&node.block_size).is_none_or(|link| !link.parked)
    }
}

impl fmt::Debug for View {
    // Hashes would drown every message, and a link may carry a salt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("settings", &self.settings)
            .field("blocks", &self.blocks.len())
            .field("parked", &self.parking.count())
            .finish_non_exhaustive()
    }
}
