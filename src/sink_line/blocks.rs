//! What readers are told of what a replica holds: its blocks, or blocks of another size made of
//! them.
//!
//! A block is named by what comes before it as much as by what it holds, so one that ends where an
//! engine's block ends takes that one's name: no two prefixes share it, and it is the same whenever
//! and by whomever it is computed. A block that ends inside one takes a name mixed of that one's
//! and its place. Readers that use an engine's names for more than removals cannot be told so.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kvbridge_schemas::{ExtraKey, Tier, Tokens};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    Change,
    batch::{Fact, Facts},
    held::Held,
};
use crate::view::{Described, LinkParent, NodeId};

/// Which blocks are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// The engine's own of one size; absent = of the size of the first one.
    Own(Option<u32>),
    /// Blocks of `told` tokens, made of the engine's of `own`. One divides the other.
    Other {
        /// Tokens of an engine's block.
        own: u32,
        /// Tokens of a block that is told.
        told: u32,
    },
}

/// What is held, as it is told.
#[derive(Debug)]
pub(super) struct Blocks {
    /// In the size that is told.
    told: Held,
    made: Made,
}

#[derive(Debug)]
enum Made {
    AsTheyAre,
    /// Each of the engine's blocks is several.
    Split {
        own: u32,
        told: u32,
    },
    /// Several of the engine's blocks are one.
    Merged(Box<Merge>),
}

impl Blocks {
    pub(super) fn new(tiers: Vec<Tier>, sizes: Sizes) -> Blocks {
        let (told, made) = match sizes {
            Sizes::Own(size) => (size, Made::AsTheyAre),
            Sizes::Other { own, told } if own > told => (Some(told), Made::Split { own, told }),
            Sizes::Other { own, told } => {
                (Some(told), Made::Merged(Box::new(Merge::new(tiers.clone(), own, told))))
            }
        };
        Blocks { told: Held::new(tiers, told), made }
    }

    pub(super) fn shown_count(&self) -> u64 {
        self.told.shown_count()
    }

    /// Of merged blocks those that are held and fill none of the told ones do not count.
    pub(super) fn hidden_count(&self) -> u64 {
        match &self.made {
            Made::AsTheyAre | Made::Split { .. } => self.told.hidden_count(),
            Made::Merged(merge) => self.told.hidden_count() + merge.own.hidden_count(),
        }
    }

    pub(super) fn trust_hosts(&mut self, trusted: bool) {
        self.told.trust_hosts(trusted);
        if let Made::Merged(merge) = &mut self.made {
            merge.own.trust_hosts(trusted);
        }
    }

    /// Nothing is held until it is told anew; what readers have stays known.
    pub(super) fn let_go(&mut self) {
        match &mut self.made {
            Made::AsTheyAre | Made::Split { .. } => self.told.let_go(),
            Made::Merged(merge) => merge.own.let_go(),
        }
    }

    /// Nothing is here. Readers must be told so.
    pub(super) fn forget(&mut self) {
        self.told.forget();
        if let Made::Merged(merge) = &mut self.made {
            merge.forget();
        }
    }

    /// Readers have nothing any more.
    pub(super) fn unshow(&mut self) {
        self.told.unshow();
    }

    pub(super) fn take(&mut self, change: &Change) {
        match &mut self.made {
            Made::AsTheyAre => self.told.take(change),
            Made::Split { own, told } => split(change, (*own, *told), &mut self.told),
            Made::Merged(merge) => merge.own.take(change),
        }
    }

    /// Makes what readers have what is held.
    pub(super) fn settle(&mut self, facts: &mut Facts) {
        if let Made::Merged(merge) = &mut self.made {
            merge.settle(&mut self.told);
        }
        self.told.settle(facts);
    }

    /// All that readers have, parents first.
    pub(super) fn shown(&self, facts: &mut Facts) {
        self.told.shown(facts);
    }
}

/// The name of the part of a block that ends before the block does.
fn name_of_part(key: u64, ends_at: usize) -> u64 {
    let place = u64::try_from(ends_at).unwrap_or(u64::MAX);
    // 0 is no name to some readers.
    xxh3_64_with_seed(&key.to_be_bytes(), place).max(1)
}

/// The extra keys that blocks of any size have alike: the adapter's name. `None` = there are
/// others, of which nobody knows which tokens they are for. The salt is told apart already.
fn common_keys(described: &Described) -> Option<Vec<ExtraKey>> {
    let mut keys = Vec::new();
    for key in &described.extra {
        match key {
            ExtraKey::Text(text) if described.lora.as_deref() == Some(text) => {
                keys.push(key.clone());
            }
            ExtraKey::Text(text) if described.salt.as_deref() == Some(text) => (),
            ExtraKey::Text(_) | ExtraKey::Item { .. } | ExtraKey::Bytes(_) => return None,
        }
    }
    keys.dedup();
    Some(keys)
}

/// One of an engine's blocks as several.
fn split(change: &Change, (own, size): (u32, u32), told: &mut Held) {
    let (Change::Linked { node, tier, .. } | Change::Unlinked { node, tier }) = change else {
        return;
    };
    if node.block_size != own {
        return told.odd(tier, matches!(change, Change::Linked { .. }));
    }
    let count = usize::try_from(own / size).unwrap_or(1);
    let name = |part: usize| {
        let key = if part + 1 == count { node.key } else { name_of_part(node.key, part + 1) };
        NodeId { key, block_size: size }
    };
    for part in 0..count {
        let (node, tier) = (name(part), tier.clone());
        told.take(&match change {
            Change::Linked { parent, described, .. } => {
                let parent = match part.checked_sub(1) {
                    Some(before) => LinkParent::Block(name(before)),
                    None => *parent,
                };
                let described = described.as_ref().and_then(|whole| part_of(whole, part, count));
                Change::Linked { node, parent, tier, described }
            }
            Change::Unlinked { .. } | Change::Cleared => Change::Unlinked { node, tier },
        });
    }
}

fn part_of(whole: &Described, part: usize, count: usize) -> Option<Arc<Described>> {
    let tokens = &whole.tokens.0;
    let size = tokens.len() / count.max(1);
    Some(Arc::new(Described {
        tokens: Tokens(tokens.get(part * size..(part + 1) * size)?.to_vec()),
        extra: common_keys(whole)?,
        lora: whole.lora.clone(),
        lora_id: whole.lora_id,
        salt: whole.salt.clone(),
    }))
}

/// An engine's blocks, and which of them make one that is told.
///
/// They go through a [`Held`] of their own first: what comes out of it is closed under parents, so
/// that the place of every block in its sequence is known.
#[derive(Debug)]
struct Merge {
    own: Held,
    /// How many make one.
    count: usize,
    told_size: u32,
    parts: BTreeMap<u64, Part>,
    /// (parent, child).
    children: BTreeSet<(u64, u64)>,
}

#[derive(Debug)]
struct Part {
    parent: Option<u64>,
    /// The first of a sequence is 1.
    depth: usize,
    described: Arc<Described>,
    tiers: Vec<Tier>,
}

impl Merge {
    fn new(tiers: Vec<Tier>, own: u32, told: u32) -> Merge {
        Merge {
            own: Held::new(tiers, Some(own)),
            count: usize::try_from(told / own.max(1)).unwrap_or(1).max(1),
            told_size: told,
            parts: BTreeMap::new(),
            children: BTreeSet::new(),
        }
    }

    fn forget(&mut self) {
        self.own.forget();
        self.parts.clear();
        self.children.clear();
    }

    fn settle(&mut self, told: &mut Held) {
        let mut facts = Facts::default();
        self.own.settle(&mut facts);
        for fact in facts.into_facts() {
            match fact {
                Fact::Stored { key, parent, tier, described } => {
                    self.came(key, parent, (tier, described), told);
                }
                Fact::Removed { key, tier } => self.went(key, &tier, told),
                Fact::Cleared => (),
            }
        }
    }

    fn came(
        &mut self,
        key: u64,
        parent: Option<u64>,
        (tier, described): (Tier, Arc<Described>),
        told: &mut Held,
    ) {
        let before = match parent {
            Some(parent) => self.parts.get(&parent).map(|part| part.depth),
            None => Some(0),
        };
        // What comes before it came before it.
        let Some(before) = before else { return };
        let part = self.parts.entry(key).or_insert_with(|| Part {
            parent,
            depth: before + 1,
            described: Arc::clone(&described),
            tiers: Vec::new(),
        });
        part.described = described;
        part.tiers.push(tier.clone());
        self.children.extend(parent.map(|parent| (parent, key)));
        for last in self.ends_behind(key) {
            let Some(row) = self.row(last, &tier) else { continue };
            let parent = match row.first().and_then(|first| first.parent) {
                Some(key) => LinkParent::Block(self.node(key)),
                None => LinkParent::Root(0),
            };
            let (node, tier) = (self.node(last), tier.clone());
            let described = merged(&row);
            told.take(&Change::Linked { node, parent, tier, described });
        }
    }

    fn went(&mut self, key: u64, tier: &Tier, told: &mut Held) {
        for last in self.ends_behind(key) {
            if self.row(last, tier).is_some() {
                told.take(&Change::Unlinked { node: self.node(last), tier: tier.clone() });
            }
        }
        let Some(part) = self.parts.get_mut(&key) else { return };
        part.tiers.retain(|other| other != tier);
        if part.tiers.is_empty()
            && let Some(Part { parent: Some(parent), .. }) = self.parts.remove(&key)
        {
            self.children.remove(&(parent, key));
        }
    }

    fn node(&self, key: u64) -> NodeId {
        NodeId { key, block_size: self.told_size }
    }

    /// The blocks with which those end that this one is a part of.
    fn ends_behind(&self, key: u64) -> Vec<u64> {
        let (mut waiting, mut ends) = (vec![key], Vec::new());
        while let Some(key) = waiting.pop() {
            let Some(part) = self.parts.get(&key) else { continue };
            if part.depth % self.count == 0 {
                ends.push(key);
            } else {
                let children = self.children.range((key, 0)..=(key, u64::MAX));
                waiting.extend(children.map(|(_, child)| *child));
            }
        }
        ends
    }

    /// The parts of the block that ends with this one, if the tier has all of them.
    fn row(&self, last: u64, tier: &Tier) -> Option<Vec<&Part>> {
        let (mut row, mut at) = (Vec::new(), Some(last));
        while row.len() < self.count {
            let part = self.parts.get(&at?).filter(|part| part.tiers.contains(tier))?;
            row.push(part);
            at = part.parent;
        }
        row.reverse();
        Some(row)
    }
}

/// Blocks in a row as one.
fn merged(row: &[&Part]) -> Option<Arc<Described>> {
    let (first, rest) = row.split_first()?;
    let first = &first.described;
    let extra = common_keys(first)?;
    let mut tokens = first.tokens.0.clone();
    for part in rest {
        let described = &part.described;
        let alike = described.lora == first.lora && common_keys(described)? == extra;
        if !alike {
            return None;
        }
        tokens.extend(&described.tokens.0);
    }
    Some(Arc::new(Described {
        tokens: Tokens(tokens),
        extra,
        lora: first.lora.clone(),
        lora_id: first.lora_id,
        salt: first.salt.clone(),
    }))
}
