//! How each event changes a view.

use std::collections::BTreeSet;

use kvbridge_adapters_api::Removal;
use kvbridge_schemas::{BlockHash, Event, Group, Moved, Parent, Place, Removed, Stored, Tier};

use super::{
    View,
    block::{Block, Copies, Spot, count_down, count_up},
    link::{Delta, Link, LinkParent, NodeId},
    plain::{EVENTS_WARMED, Run},
    taking::{Gone, Taken},
    told::{Flags, Told},
    unpack,
};
use crate::recovery::Finding;

/// What one call of `apply` says.
pub(super) struct Output<'a> {
    pub(super) deltas: &'a mut Vec<Delta>,
    /// Each once per call: a thousand bad removals are one finding.
    pub(super) findings: BTreeSet<Finding>,
    /// Room for the blocks of a store, and for those of a removal.
    pub(super) row: Vec<(u64, u64)>,
    pub(super) keys: Vec<u64>,
}

impl View {
    /// Folds events in, in their order. Appends what changed and, each at most once, what was
    /// found.
    pub fn apply(
        &mut self,
        events: &[Event],
        deltas: &mut Vec<Delta>,
        findings: &mut Vec<Finding>,
    ) {
        let mut out =
            Output { deltas, findings: BTreeSet::new(), row: Vec::new(), keys: Vec::new() };
        for events in events.chunks(EVENTS_WARMED) {
            self.warm(events);
            events.iter().for_each(|event| self.fold(event, &mut out));
        }
        findings.extend(out.findings);
    }

    fn fold(&mut self, event: &Event, out: &mut Output<'_>) {
        match event {
            Event::Stored(stored) => self.store(stored, out),
            Event::Removed(removed) => self.remove(removed, out),
            Event::Moved(moved) => self.relocate(moved, out),
            // Tiers outside the scope go too: a block we drop is a missed match, one we keep
            // without proof is a ghost.
            Event::Cleared(_) => self.clear(out),
            // What follows from these is recovery's decision.
            Event::Reset(_) | Event::Trust(_) | Event::Unknown(_) => (),
        }
    }

    fn store(&mut self, stored: &Stored, out: &mut Output<'_>) {
        if stored.blocks.is_empty() {
            return; // every block masked: nothing became resident
        }
        if let Some(group) = &stored.place.group {
            self.learn(group, out);
        }
        let spot = spot_of(&stored.place);
        let told = Told::of(stored, self.groups.match_prefixes(spot.group));
        let mut parent = match &stored.parent {
            Parent::Root => Some(LinkParent::Root(told.namespace())),
            Parent::Block(hash) => Some(self.parent_at(hash, stored.block_size)),
            Parent::Unknown => None,
        };
        let mut run = Run::new(told.kind(&spot, stored));
        let is_bare = !self.settings.describes && told.has_no_extra(stored);
        let mut i = 0;
        while let Some(rest) = stored.blocks.get(i..).filter(|rest| !rest.is_empty()) {
            let before = parent.filter(|_| told.dense && is_bare);
            let taken = before.map_or(0, |before| self.store_row(rest, before, &mut run, out));
            i += taken;
            if taken == 0 {
                self.store_one((stored, i, parent), (&told, &spot), &mut run, out);
                i += 1;
            }
            let last = stored.blocks.get(i.saturating_sub(1));
            parent = last.map(|last| self.parent_at(&last.hash, stored.block_size));
        }
        self.end_run(&run);
    }

    fn store_one(
        &mut self,
        (stored, i, parent): (&Stored, usize, Option<LinkParent>),
        (told, spot): (&Told, &Spot),
        run: &mut Run,
        out: &mut Output<'_>,
    ) {
        let Some(block) = stored.blocks.get(i) else { return };
        let key = self.settings.projection.apply(&block.hash);
        let content = block.content.filter(|_| told.dense);
        let extra = content.and_then(|_| told.extra(stored, i));
        let kept = content.filter(|_| self.settings.describes);
        let described = kept.and_then(|_| told.describe(stored, i));
        let is_rich = extra.is_some() || described.is_some();
        let place = parent.zip(content);
        self.part_block(key, out.deltas);
        if let Some((LinkParent::Block(parent), _)) = place {
            self.part_block(parent.key, out.deltas);
        }
        if is_rich || !self.store_plain((key, &block.hash), place, run, out) {
            self.add_copy(&block.hash, spot, told.flags, out);
            if let Some((parent, content)) = place {
                let mut link = told.link(parent, content, extra, stored.bigram);
                link.described = described;
                self.set_link(NodeId { key, block_size: stored.block_size }, link, told, out);
            }
            self.repack(key);
        }
        self.settle(key, out);
    }

    fn remove(&mut self, removed: &Removed, out: &mut Output<'_>) {
        let spot = spot_of(&removed.place);
        let mut gone = Gone::default();
        let mut keys = std::mem::take(&mut out.keys);
        keys.clear();
        keys.extend(removed.hashes.iter().map(|hash| self.settings.projection.apply(hash)));
        let mut rest = keys.as_slice();
        while let [key, ..] = rest {
            let (taken, count) = self.take_copies(rest, &spot, &mut gone, out);
            let is_there = match taken {
                Taken::Copy => true,
                Taken::Elsewhere => false,
                Taken::Unknown => {
                    let dropped = self.drop_plain(*key, &spot, out);
                    dropped.unwrap_or_else(|| self.drop_copy(*key, &spot, out))
                }
            };
            if !is_there {
                self.end_gone(&spot, &mut gone, out);
                self.miss(&spot.tier, out);
            }
            rest = rest.get(count..).unwrap_or_default();
        }
        out.keys = keys;
        self.end_gone(&spot, &mut gone, out);
    }

    fn relocate(&mut self, moved: &Moved, out: &mut Output<'_>) {
        if moved.from == moved.to {
            return;
        }
        let key = self.settings.projection.apply(&moved.hash);
        self.part_block(key, out.deltas);
        // The event names no group: the copy of the lowest one moves.
        let held = self.blocks.get(key).map(|block| self.kinds.expand(block)).and_then(|block| {
            let mut spots = block.copies.iter();
            spots.find(|(spot, _)| spot.tier == moved.from).map(|(spot, c)| (spot.clone(), *c))
        });
        let group = held.as_ref().and_then(|(spot, _)| spot.group);
        let flags = Flags { partial: held.as_ref().is_some_and(|(_, c)| c.partial), hint: false };
        // First there, then gone: a block in flight must not lose its links in between.
        self.add_copy(&moved.hash, &Spot { tier: moved.to.clone(), group }, flags, out);
        match held {
            Some((spot, _)) => {
                self.drop_copy(key, &spot, out);
            }
            None => self.miss(&moved.from, out),
        }
        self.repack(key);
        self.settle(key, out);
    }

    fn clear(&mut self, out: &mut Output<'_>) {
        if self.block_count() > 0 {
            *self = View::new(self.settings);
            out.deltas.push(Delta::Cleared);
        }
    }

    /// A removal found nothing. In a proven tier a store was missed or the engine miscounts.
    fn miss(&self, tier: &Tier, out: &mut Output<'_>) {
        let expected = self.settings.leaves_out
            || tier.is_hint()
            || (*tier == Tier::Host && self.host_is_hint());
        if !expected {
            out.findings.insert(match tier {
                Tier::Device => Finding::CountBelowZero,
                Tier::Host | Tier::Disk | Tier::External | Tier::Other(_) => {
                    Finding::HostCountBelowZero
                }
            });
        }
    }

    /// A store names its group's kind. When that turns the group from usable to not (or back), all
    /// blocks already counted in it follow.
    fn learn(&mut self, group: &Group, out: &mut Output<'_>) {
        let before = self.groups.match_prefixes(Some(group.index));
        self.groups.learn(group);
        let usable = self.groups.match_prefixes(Some(group.index));
        if before == usable || !self.groups.is_held(group.index) {
            return; // the second saves a walk over all blocks whenever a group is first heard of
        }
        self.part_all(out.deltas);
        for key in self.blocks.keys() {
            let Some(block) = self.blocks.get(key).map(|block| self.kinds.expand(block)) else {
                continue;
            };
            for spot in block.copies.keys().filter(|spot| spot.group == Some(group.index)) {
                let elsewhere = block.copies.keys().any(|other| {
                    other.tier == spot.tier
                        && other.group != spot.group
                        && self.groups.match_prefixes(other.group)
                });
                if !elsewhere {
                    block.announce(key, &spot.tier, usable, out.deltas);
                }
            }
        }
    }

    fn add_copy(&mut self, hash: &BlockHash, spot: &Spot, flags: Flags, out: &mut Output<'_>) {
        let key = self.settings.projection.apply(hash);
        if !self.bare.is_empty()
            && self.bare.contains_key(&key)
            && self.unpack(key).is_some_and(|block| block.copies.get(spot).is_some())
        {
            out.findings.insert(Finding::SecondCopy);
        }
        self.note_hash(key, hash);
        if self.blocks.get(key).is_none() {
            self.blocks.insert(key, Block::Full(Box::default()));
        }
        self.part_parents(key, out.deltas);
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, key) else { return };
        if !block.is_in(&spot.tier) {
            count_up(&mut self.totals.blocks, &spot.tier);
        }
        let was_usable = block.is_usable_in(&spot.tier, &self.groups);
        let before = block.copies.get(spot).copied();
        let after = Copies {
            count: before.map_or(0, |copies| copies.count).saturating_add(1),
            partial: flags.partial || before.is_some_and(|copies| copies.partial),
            hint: flags.hint || before.is_some_and(|copies| copies.hint),
        };
        block.copies.insert(spot.clone(), after);
        self.totals.change(&spot.tier, before, Some(after));
        if before.is_none() {
            self.groups.hold(spot.group);
        }
        if !was_usable && block.is_usable_in(&spot.tier, &self.groups) {
            block.announce(key, &spot.tier, true, out.deltas);
        }
    }

    /// Takes a copy away (or all of the spot's); `false` if there is none.
    fn drop_copy(&mut self, key: u64, spot: &Spot, out: &mut Output<'_>) -> bool {
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, key) else { return false };
        let Some(copies) = block.copies.get_mut(spot) else {
            self.repack(key);
            return false;
        };
        let before = *copies;
        copies.count = match self.settings.removal {
            Removal::PerCopy => copies.count - 1,
            Removal::LastCopy => 0,
        };
        if copies.count > 0 {
            let after = *copies;
            self.totals.change(&spot.tier, Some(before), Some(after));
            self.repack(key);
            return true;
        }
        self.totals.change(&spot.tier, Some(before), None);
        let was_usable = block.is_usable_in(&spot.tier, &self.groups);
        block.copies.remove(spot);
        if was_usable && !block.is_usable_in(&spot.tier, &self.groups) {
            block.announce(key, &spot.tier, false, out.deltas);
        }
        self.groups.release(spot.group);
        if !block.is_in(&spot.tier) {
            count_down(&mut self.totals.blocks, &spot.tier);
        }
        if !block.copies.is_empty() {
            self.repack(key);
        } else if let Some((_, Block::Full(block))) = self.blocks.remove(key) {
            self.bare.remove(&key);
            self.hashes.remove(key);
            for (block_size, link) in block.links.iter() {
                self.release_link(NodeId { key, block_size: *block_size }, link);
            }
        }
        true
    }

    /// Takes a link as a store told it. A proven tier's word replaces what was there; a hint's
    /// never does: Mooncake's store names the previously *emitted* block as parent up to vLLM 0.28.
    fn set_link(&mut self, node: NodeId, mut link: Link, told: &Told, out: &mut Output<'_>) {
        if link.parent == LinkParent::Block(node) {
            return; // a block before itself: no sequence has it
        }
        let ready = match link.parent {
            LinkParent::Root(_) => true,
            LinkParent::Block(parent) => self.is_ready(parent),
        };
        let Some(block) = self.unpack(node.key) else { return };
        if let Some(old) = block.links.get(&node.block_size) {
            // One that a snapshot left without its tokens begins anew with them.
            let adds = old.described.is_none() && link.described.is_some();
            if (old.same_place(&link) && !adds) || !told.proven {
                return;
            }
            self.drop_link(node, out);
        }
        if let (false, LinkParent::Block(parent)) = (ready, link.parent) {
            if self.settings.leaves_out && self.blocks.get(parent.key).is_none() {
                out.findings.insert(Finding::StoreMissing);
            }
            if self.parking.count() >= self.settings.orphans_max {
                out.findings.insert(Finding::ParkingOverflow);
                return;
            }
            self.parking.add(parent, node.key);
            link.parked = true;
        }
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, node.key) else { return };
        if !link.parked {
            let tiers = block.usable_tiers(&self.groups);
            out.deltas.extend(tiers.into_iter().map(|tier| link.linked(node, tier)));
        }
        block.links.insert(node.block_size, link);
        count_up(&mut self.totals.links, &node.block_size);
        self.bare.remove(&node.key);
    }

    fn drop_link(&mut self, node: NodeId, out: &mut Output<'_>) {
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, node.key) else { return };
        let Some(link) = block.links.remove(&node.block_size) else { return };
        if !link.parked {
            let tiers = block.usable_tiers(&self.groups);
            out.deltas.extend(tiers.into_iter().map(|tier| Delta::Unlinked { node, tier }));
        }
        self.release_link(node, &link);
    }

    /// Frees the bookkeeping of a link that is gone.
    pub(super) fn release_link(&mut self, node: NodeId, link: &Link) {
        count_down(&mut self.totals.links, &node.block_size);
        if let (true, LinkParent::Block(parent)) = (link.parked, link.parent) {
            self.parking.remove(parent, node.key);
        }
    }

    /// Links everything that waited for the block, and what waited for that. A loop, not a
    /// recursion: a chain of orphans is as long as a prompt.
    fn settle(&mut self, key: u64, out: &mut Output<'_>) {
        if self.parking.count() == 0 {
            return;
        }
        let mut ready = self.parking.awaited(key);
        ready.retain(|node| self.is_ready(*node));
        while let Some(parent) = ready.pop() {
            for child in self.parking.take(parent) {
                let node = NodeId { key: child, block_size: parent.block_size };
                let Some(block) = unpack(&mut self.blocks, &mut self.kinds, child) else {
                    continue;
                };
                let tiers = block.usable_tiers(&self.groups);
                let Some(link) = block.links.get_mut(&node.block_size) else { continue };
                link.parked = false;
                out.deltas.extend(tiers.into_iter().map(|tier| link.linked(node, tier)));
                self.repack(child);
                ready.push(node);
            }
        }
    }

    fn parent_at(&self, hash: &BlockHash, block_size: u32) -> LinkParent {
        LinkParent::Block(NodeId { key: self.settings.projection.apply(hash), block_size })
    }
}

fn spot_of(place: &Place) -> Spot {
    Spot { tier: place.tier.clone(), group: place.group.as_ref().map(|group| group.index) }
}
