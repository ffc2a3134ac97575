//! One resident block: its copies per tier and group, and the groups' learned kinds.

use std::collections::BTreeMap;

use kvbridge_schemas::{Group, GroupKind, Tier};

use super::link::{Delta, Link, NodeId};
use crate::maps::vec_map::VecMap;

/// Where copies of a block are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) tier: Tier,
    /// Index of the group; `None` where the engine names none.
    pub(super) group: Option<u32>,
}

/// The copies in one spot; always at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    pub(super) count: u32,
    /// A store of a block shorter than its group's block size was among them.
    pub(super) partial: bool,
    /// A store by a source that never announces removals was among them.
    pub(super) hint: bool,
}

/// A block with at least one copy somewhere.
#[derive(Clone)]
pub(super) enum Block {
    /// In one spot, at one place in a sequence at most: nearly every block there is.
    Plain(Plain),
    /// Whatever else a stream can make of it.
    Full(Box<Full>),
}

// With its key it fills one slot of a table, which is half a line of a processor's cache.
const _: () = assert!(size_of::<Option<(u64, Block)>>() == 32, "blocks are small");

/// A block in so few bytes that the views of a machine fit into its caches: what many blocks say
/// alike is told once, by the [`Kind`](super::kinds::Kind) of that number.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    /// The parent's key, or the namespace of the root; 0 without a link.
    pub(super) parent: u64,
    /// 0 without a link.
    pub(super) content: u64,
    /// Copies in the spot; at least one.
    pub(super) count: u32,
    pub(super) kind: u16,
    /// Waits for its parent.
    pub(super) parked: bool,
}

impl Plain {
    /// Whether `new` is one more copy of this block, told as before.
    pub(super) fn is_again(&self, new: &Plain) -> bool {
        let told = |plain: &Plain| (plain.kind, plain.parent, plain.content, plain.parked);
        told(self) == told(new) && self.count < u32::MAX
    }
}

/// A block at its full length.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) copies: VecMap<Spot, Copies>,
    /// Its place in a sequence, per block size.
    pub(super) links: VecMap<u32, Link>,
}

impl Full {
    /// Whether any copy, of any group, is in `tier`.
    pub(super) fn is_in(&self, tier: &Tier) -> bool {
        self.copies.keys().any(|spot| spot.tier == *tier)
    }

    /// Whether a copy that prefix matching may use is in `tier`.
    pub(super) fn is_usable_in(&self, tier: &Tier, groups: &Groups) -> bool {
        self.copies.keys().any(|spot| spot.tier == *tier && groups.match_prefixes(spot.group))
    }

    /// The tiers of all copies that prefix matching may use, each once, nearest first.
    pub(super) fn usable_tiers(&self, groups: &Groups) -> Vec<Tier> {
        let spots = self.copies.keys().filter(|spot| groups.match_prefixes(spot.group));
        let mut tiers: Vec<Tier> = spots.map(|spot| spot.tier.clone()).collect();
        tiers.dedup(); // spots are ordered by tier first
        tiers
    }

    /// Says of every link in force that it begins (or ends) to be usable in `tier`.
    pub(super) fn announce(&self, key: u64, tier: &Tier, usable: bool, deltas: &mut Vec<Delta>) {
        for (block_size, link) in self.links.iter().filter(|(_, link)| !link.parked) {
            let node = NodeId { key, block_size: *block_size };
            deltas.push(if usable {
                link.linked(node, tier.clone())
            } else {
                Delta::Unlinked { node, tier: tier.clone() }
            });
        }
    }
}

/// What was learned of each group that holds copies. A removal names only the index, and a group
/// that holds nothing is forgotten: every engine that tells kinds tells them in each store.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Groups(BTreeMap<u32, Known>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Known {
    kind: Option<GroupKind>,
    window: Option<u32>,
    /// How many spots of all blocks lie in the group.
    spot_count: u64,
}

impl Groups {
    /// Whether prefix matching uses copies of this group: its kind holds whole prefixes, or nobody
    /// ever told its kind, or the engine has no groups.
    pub(super) fn match_prefixes(&self, group: Option<u32>) -> bool {
        let known = group.and_then(|index| self.0.get(&index));
        known.and_then(|known| known.kind.as_ref()).is_none_or(GroupKind::holds_whole_prefix)
    }

    /// Remembers what a store tells of its group. The caller adds a copy right after.
    pub(super) fn learn(&mut self, group: &Group) {
        let known = self.0.entry(group.index).or_default();
        if group.kind.is_some() {
            known.kind.clone_from(&group.kind);
        }
        known.window = group.window.or(known.window);
    }

    /// Whether any block has a copy in the group.
    pub(super) fn is_held(&self, index: u32) -> bool {
        self.0.get(&index).is_some_and(|known| known.spot_count > 0)
    }

    pub(super) fn hold(&mut self, group: Option<u32>) {
        self.hold_more(group, 1);
    }

    /// The spots of so many more blocks lie in the group.
    pub(super) fn hold_more(&mut self, group: Option<u32>, spots: u64) {
        if let Some(index) = group {
            self.0.entry(index).or_default().spot_count += spots;
        }
    }

    pub(super) fn release(&mut self, group: Option<u32>) {
        self.release_more(group, 1);
    }

    /// The spots of so many blocks are gone.
    pub(super) fn release_more(&mut self, group: Option<u32>, spots: u64) {
        let Some(index) = group else { return };
        let Some(known) = self.0.get_mut(&index) else { return };
        known.spot_count -= spots;
        if known.spot_count == 0 {
            self.0.remove(&index);
        }
    }

    /// The group as a snapshot tells it.
    pub(super) fn describe(&self, group: Option<u32>) -> Option<Group> {
        let index = group?;
        let known = self.0.get(&index);
        Some(Group {
            index,
            kind: known.and_then(|known| known.kind.clone()),
            window: known.and_then(|known| known.window),
        })
    }
}

/// Sums over all blocks, kept in step so that reading them costs nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Distinct blocks per tier.
    pub(super) blocks: VecMap<Tier, u64>,
    /// Copies on the device, without those of spots with a partial block.
    pub(super) device_copies: u64,
    /// Host spots told by a source that never announces removals.
    pub(super) host_hint_spots: u64,
    /// Links per block size.
    pub(super) links: VecMap<u32, u64>,
}

impl Totals {
    /// Accounts for the change of one spot.
    pub(super) fn change(&mut self, tier: &Tier, before: Option<Copies>, after: Option<Copies>) {
        let device = |copies: Option<Copies>| {
            let counted = copies.filter(|copies| *tier == Tier::Device && !copies.partial);
            counted.map_or(0, |copies| u64::from(copies.count))
        };
        let hints = |copies: Option<Copies>| {
            u64::from(copies.is_some_and(|copies| *tier == Tier::Host && copies.hint))
        };
        self.device_copies = self.device_copies + device(after) - device(before);
        self.host_hint_spots = self.host_hint_spots + hints(after) - hints(before);
    }
}

/// Adds one to the number under `key`.
pub(super) fn count_up<K: Ord + Clone>(counts: &mut VecMap<K, u64>, key: &K) {
    count_up_by(counts, key, 1);
}

/// Adds some to the number under `key`.
pub(super) fn count_up_by<K: Ord + Clone>(counts: &mut VecMap<K, u64>, key: &K, more: u64) {
    match counts.get_mut(key) {
        Some(count) => *count += more,
        None => counts.insert(key.clone(), more),
    }
}

/// Takes one from the number under `key`; a number that reaches zero leaves no entry.
pub(super) fn count_down<K: Ord>(counts: &mut VecMap<K, u64>, key: &K) {
    count_down_by(counts, key, 1);
}

/// Takes some from the number under `key`, likewise.
pub(super) fn count_down_by<K: Ord>(counts: &mut VecMap<K, u64>, key: &K, less: u64) {
    if let Some(count) = counts.get_mut(key) {
        *count -= less;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
