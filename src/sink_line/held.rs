//! What a replica holds, and what of it readers have been told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kvbridge_schemas::Tier;

use super::{Change, batch::Facts};
use crate::view::{Described, LinkParent};

/// A block in one tier.
#[derive(Debug)]
struct Spot {
    tier: Tier,
    held: bool,
    shown: bool,
}

#[derive(Debug)]
struct Block {
    parent: Option<u64>,
    described: Option<Arc<Described>>,
    spots: Vec<Spot>,
    /// Where readers were told that it is, while that is another place.
    moved_from: Option<Box<Place>>,
}

/// What comes before a block, and what it holds.
#[derive(Debug)]
struct Place {
    parent: Option<u64>,
    described: Option<Arc<Described>>,
}

impl Block {
    fn is_shown_in(&self, tier: &Tier) -> bool {
        self.spots.iter().any(|spot| spot.shown && spot.tier == *tier)
    }

    fn is_shown(&self) -> bool {
        self.spots.iter().any(|spot| spot.shown)
    }

    /// What comes before it and what it holds, as readers were told.
    fn told_place(&self) -> (Option<u64>, Option<&Arc<Described>>) {
        match &self.moved_from {
            Some(place) => (place.parent, place.described.as_ref()),
            None => (self.parent, self.described.as_ref()),
        }
    }
}

/// All blocks, by the 64 bits that name them.
#[derive(Debug)]
pub(super) struct Held {
    tiers: Vec<Tier>,
    /// The block size that was configured.
    wanted_size: Option<u32>,
    /// The one that is told: a name of 64 bits has one place only.
    block_size: Option<u32>,
    hosts_trusted: bool,
    blocks: BTreeMap<u64, Block>,
    /// (parent, child), whether the parent is here or not.
    children: BTreeSet<(u64, u64)>,
    /// What may differ from what readers have.
    touched: BTreeSet<u64>,
    all_touched: bool,
    held_count: u64,
    shown_count: u64,
    /// Blocks of other sizes.
    odd_count: u64,
}

impl Held {
    pub(super) fn new(tiers: Vec<Tier>, wanted_size: Option<u32>) -> Held {
        Held {
            tiers,
            wanted_size,
            block_size: wanted_size,
            hosts_trusted: false,
            blocks: BTreeMap::new(),
            children: BTreeSet::new(),
            touched: BTreeSet::new(),
            all_touched: false,
            held_count: 0,
            shown_count: 0,
            odd_count: 0,
        }
    }

    pub(super) fn shown_count(&self) -> u64 {
        self.shown_count
    }

    pub(super) fn hidden_count(&self) -> u64 {
        self.held_count.saturating_sub(self.shown_count) + self.odd_count
    }

    /// Whether tiers beside the device are believed.
    pub(super) fn trust_hosts(&mut self, trusted: bool) {
        if self.hosts_trusted != trusted {
            self.hosts_trusted = trusted;
            self.all_touched |= self.tiers.iter().any(|tier| *tier != Tier::Device);
        }
    }

    /// Nothing is held until it is told anew; what readers have stays known.
    pub(super) fn let_go(&mut self) {
        for spot in self.blocks.values_mut().flat_map(|block| &mut block.spots) {
            spot.held = false;
        }
        (self.held_count, self.odd_count) = (0, 0);
        self.all_touched = true;
    }

    /// Nothing is here. Readers must be told so.
    pub(super) fn forget(&mut self) {
        let empty = Held::new(std::mem::take(&mut self.tiers), self.wanted_size);
        *self = Held { hosts_trusted: self.hosts_trusted, ..empty };
    }

    /// Readers have nothing any more.
    pub(super) fn unshow(&mut self) {
        for block in self.blocks.values_mut() {
            block.moved_from = None;
            block.spots.iter_mut().for_each(|spot| spot.shown = false);
        }
        self.shown_count = 0;
        self.all_touched = true;
        let gone: Vec<u64> = self.blocks.keys().copied().collect();
        gone.into_iter().for_each(|key| self.prune(key));
    }

    pub(super) fn take(&mut self, change: &Change) {
        let (Change::Linked { node, tier, .. } | Change::Unlinked { node, tier }) = change else {
            return;
        };
        if !self.tiers.contains(tier) {
            return;
        }
        let links = matches!(change, Change::Linked { .. });
        if *self.block_size.get_or_insert(node.block_size) != node.block_size {
            return self.odd(tier, links);
        }
        match change {
            Change::Linked { parent, described, .. } => {
                let parent = match parent {
                    LinkParent::Root(_) => None,
                    LinkParent::Block(parent) => Some(parent.key),
                };
                self.hold(node.key, tier, (parent, described));
            }
            Change::Unlinked { .. } => self.release(node.key, tier),
            Change::Cleared => return,
        }
        self.touched.insert(node.key);
    }

    /// A block of another size came or went.
    pub(super) fn odd(&mut self, tier: &Tier, came: bool) {
        if self.tiers.contains(tier) {
            let count = self.odd_count;
            self.odd_count = if came { count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn hold(
        &mut self,
        key: u64,
        tier: &Tier,
        (parent, described): (Option<u64>, &Option<Arc<Described>>),
    ) {
        let block = self.blocks.entry(key).or_insert_with(|| {
            self.children.extend(parent.map(|parent| (parent, key)));
            Block { parent, described: described.clone(), spots: Vec::new(), moved_from: None }
        });
        let differs = match (&block.described, described) {
            (Some(before), Some(now)) => before.tokens != now.tokens,
            (None, _) | (_, None) => false,
        };
        if block.parent != parent || differs {
            if block.is_shown() && block.moved_from.is_none() {
                let described = block.described.clone();
                block.moved_from = Some(Box::new(Place { parent: block.parent, described }));
            }
            if let Some(before) = block.parent {
                self.children.remove(&(before, key));
            }
            self.children.extend(parent.map(|parent| (parent, key)));
            block.parent = parent;
        }
        if described.is_some() {
            block.described.clone_from(described);
        }
        match block.spots.iter_mut().find(|spot| spot.tier == *tier) {
            Some(spot) if spot.held => return,
            Some(spot) => spot.held = true,
            None => block.spots.push(Spot { tier: tier.clone(), held: true, shown: false }),
        }
        self.held_count += 1;
    }

    fn release(&mut self, key: u64, tier: &Tier) {
        let spots = self.blocks.get_mut(&key).map(|block| &mut block.spots);
        let spot = spots.and_then(|spots| spots.iter_mut().find(|spot| spot.tier == *tier));
        if let Some(spot) = spot.filter(|spot| spot.held) {
            spot.held = false;
            self.held_count -= 1;
        }
    }

    /// Makes what readers have what is held: first what leaves, then what comes, parents first.
    pub(super) fn settle(&mut self, facts: &mut Facts) {
        let touched = std::mem::take(&mut self.touched);
        let keys: Vec<u64> = if std::mem::take(&mut self.all_touched) {
            self.blocks.keys().copied().collect()
        } else {
            touched.into_iter().collect()
        };
        for key in &keys {
            self.withdraw(*key, facts);
        }
        for key in &keys {
            self.tell(*key, facts);
        }
        for key in keys {
            self.prune(key);
        }
    }

    fn is_wanted(&self, spot: &Spot) -> bool {
        spot.held && (spot.tier == Tier::Device || self.hosts_trusted)
    }

    /// Takes back what is no longer held, each block after all that readers have behind it.
    fn withdraw(&mut self, key: u64, facts: &mut Facts) {
        let Some(block) = self.blocks.get(&key) else { return };
        let leaves =
            |spot: &Spot| spot.shown && (block.moved_from.is_some() || !self.is_wanted(spot));
        let leaving = block.spots.iter().filter(|spot| leaves(spot));
        let leaving: Vec<Tier> = leaving.map(|spot| spot.tier.clone()).collect();
        for tier in leaving {
            self.take_back(key, tier, facts);
        }
        if let Some(block) = self.blocks.get_mut(&key) {
            block.moved_from = None;
        }
    }

    fn take_back(&mut self, key: u64, tier: Tier, facts: &mut Facts) {
        let mut gone = vec![(key, tier)];
        let mut next = 0;
        while let Some((key, tier)) = gone.get(next).cloned() {
            next += 1;
            self.mark_gone(key, &tier);
            let behind: Vec<u64> = self.children_of(key).collect();
            for child in behind {
                let Some(block) = self.blocks.get(&child) else { continue };
                let stranded = block
                    .spots
                    .iter()
                    .filter(|spot| spot.shown && !self.has_place(block, &spot.tier));
                let stranded: Vec<Tier> = stranded.map(|spot| spot.tier.clone()).collect();
                for tier in stranded {
                    self.mark_gone(child, &tier);
                    gone.push((child, tier));
                }
            }
        }
        for (key, tier) in gone.into_iter().rev() {
            facts.removed(key, tier);
        }
    }

    fn mark_gone(&mut self, key: u64, tier: &Tier) {
        let spots = self.blocks.get_mut(&key).map(|block| &mut block.spots);
        let spot = spots.and_then(|spots| spots.iter_mut().find(|spot| spot.tier == *tier));
        if let Some(spot) = spot.filter(|spot| spot.shown) {
            spot.shown = false;
            self.shown_count -= 1;
        }
    }

    /// Tells a block and all that waits behind it. A loop, not a recursion: a chain is as long as a
    /// prompt.
    fn tell(&mut self, key: u64, facts: &mut Facts) {
        let mut waiting = vec![key];
        while let Some(key) = waiting.pop() {
            let Some(block) = self.blocks.get(&key) else { continue };
            let Some(described) = block.described.clone() else { continue };
            let comes = |spot: &&Spot| {
                !spot.shown && self.is_wanted(spot) && self.has_place(block, &spot.tier)
            };
            let coming: Vec<Tier> =
                block.spots.iter().filter(comes).map(|spot| spot.tier.clone()).collect();
            let parent = block.parent;
            let described = self.with_salt(key, parent, described);
            for tier in &coming {
                facts.stored(key, parent, tier.clone(), Arc::clone(&described));
                self.mark_shown(key, tier);
            }
            if !coming.is_empty() {
                waiting.extend(self.children_of(key));
            }
        }
    }

    /// The salt of a sequence is told with its first block alone: the others have it through their
    /// parents, which readers are told before them.
    fn with_salt(
        &mut self,
        key: u64,
        parent: Option<u64>,
        described: Arc<Described>,
    ) -> Arc<Described> {
        let before = parent.and_then(|parent| self.blocks.get(&parent)?.described.as_ref());
        let Some(salt) = before.and_then(|before| before.salt.clone()) else { return described };
        if described.salt.is_some() {
            return described;
        }
        let described = Arc::new(Described { salt: Some(salt), ..described.as_ref().clone() });
        if let Some(block) = self.blocks.get_mut(&key) {
            block.described = Some(Arc::clone(&described));
        }
        described
    }

    fn mark_shown(&mut self, key: u64, tier: &Tier) {
        let spots = self.blocks.get_mut(&key).map(|block| &mut block.spots);
        if let Some(spot) = spots.and_then(|all| all.iter_mut().find(|spot| spot.tier == *tier)) {
            spot.shown = true;
            self.shown_count += 1;
        }
    }

    /// Whether readers know what comes before a block. On the device that is a block on the device:
    /// routers keep that tier as a tree of its own.
    fn has_place(&self, block: &Block, tier: &Tier) -> bool {
        let Some(parent) = block.parent else { return true };
        let Some(parent) = self.blocks.get(&parent) else { return false };
        if *tier == Tier::Device { parent.is_shown_in(tier) } else { parent.is_shown() }
    }

    fn children_of(&self, key: u64) -> impl Iterator<Item = u64> + '_ {
        self.children.range((key, 0)..=(key, u64::MAX)).map(|(_, child)| *child)
    }

    fn prune(&mut self, key: u64) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        block.spots.retain(|spot| spot.held || spot.shown);
        if block.spots.is_empty()
            && let Some(block) = self.blocks.remove(&key)
            && let Some(parent) = block.parent
        {
            self.children.remove(&(parent, key));
        }
    }

    /// Where readers have a block: what comes before it, its nearest tier, what it is made of.
    pub(super) fn shown_at(&self, key: u64) -> Option<(Option<u64>, &Tier, &Arc<Described>)> {
        let block = self.blocks.get(&key)?;
        let tiers = block.spots.iter().filter(|spot| spot.shown).map(|spot| &spot.tier);
        let (parent, described) = block.told_place();
        Some((parent, tiers.min()?, described?))
    }

    /// All that readers have, parents first, each where they were told that it is: between a move
    /// and its telling that is not where it is held.
    pub(super) fn shown(&self, facts: &mut Facts) {
        let shown = || self.blocks.iter().filter(|(_, block)| block.is_shown());
        let behind: BTreeSet<(u64, u64)> = shown()
            .filter_map(|(key, block)| block.told_place().0.map(|parent| (parent, *key)))
            .collect();
        let roots = shown().rev().filter(|(_, block)| block.told_place().0.is_none());
        let mut waiting: Vec<u64> = roots.map(|(key, _)| *key).collect();
        while let Some(key) = waiting.pop() {
            let Some(block) = self.blocks.get(&key) else { continue };
            let (parent, Some(described)) = block.told_place() else { continue };
            for spot in block.spots.iter().filter(|spot| spot.shown) {
                facts.stored(key, parent, spot.tier.clone(), Arc::clone(described));
            }
            waiting.extend(behind.range((key, 0)..=(key, u64::MAX)).map(|(_, child)| *child));
        }
    }
}
