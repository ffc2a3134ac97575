//! One replica's linked blocks, walked from the root of a namespace.

use std::collections::BTreeMap;

use kvbridge_schemas::Tier;

use crate::view::{Delta, LinkParent, NodeId};

/// How many tokens a block's content hash covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    pub(super) block_size: u32,
    /// One token more than the block size (EAGLE pairs).
    pub(super) bigram: bool,
}

/// The fold of a view's deltas.
///
/// A block is found under (its parent, its content) whether or not the parent is here: a walk
/// cannot pass a hole, and passes again the moment the hole is filled. Several blocks may share
/// that place, since one engine may hash the same tokens apart; a walk follows all of them.
#[derive(Default)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    /// Nearly always one block, so a list and not a set.
    children: BTreeMap<(LinkParent, u64), Vec<NodeId>>,
    windows: BTreeMap<Window, u64>,
    tiers: BTreeMap<Tier, u64>,
}

struct Node {
    parent: LinkParent,
    content: u64,
    bigram: bool,
    tiers: Vec<Tier>,
}

impl Tree {
    pub(super) fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Linked { node, parent, content, bigram, tier } => {
                let place = (*parent, *content);
                let new = self.nodes.entry(*node).or_insert_with(|| {
                    self.children.entry(place).or_default().push(*node);
                    let window = Window { block_size: node.block_size, bigram: *bigram };
                    *self.windows.entry(window).or_default() += 1;
                    let (parent, content) = place;
                    Node { parent, content, bigram: *bigram, tiers: Vec::new() }
                });
                debug_assert_eq!((new.parent, new.content), place, "a view moves no linked block");
                if !new.tiers.contains(tier) {
                    new.tiers.push(tier.clone());
                    *self.tiers.entry(tier.clone()).or_default() += 1;
                }
            }
            Delta::Unlinked { node, tier } => self.unlink(*node, tier),
            Delta::Cleared => *self = Tree::default(),
        }
    }

    fn unlink(&mut self, id: NodeId, tier: &Tier) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(at) = node.tiers.iter().position(|held| held == tier) {
            node.tiers.swap_remove(at);
            take_one(&mut self.tiers, tier);
        }
        if !node.tiers.is_empty() {
            return;
        }
        let place = (node.parent, node.content);
        let window = Window { block_size: id.block_size, bigram: node.bigram };
        self.nodes.remove(&id);
        take_one(&mut self.windows, &window);
        if let Some(siblings) = self.children.get_mut(&place) {
            siblings.retain(|sibling| *sibling != id);
            if siblings.is_empty() {
                self.children.remove(&place);
            }
        }
    }

    /// What a block here covers.
    pub(super) fn content(&self, id: &NodeId) -> Option<u64> {
        self.nodes.get(id).map(|node| node.content)
    }

    /// The windows of all blocks here, smallest block size first.
    pub(super) fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.windows.keys().copied()
    }

    /// The tiers of all blocks here, nearest first.
    pub(super) fn tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.keys()
    }

    /// How many blocks of `contents`, from the first on, lie in one of `tiers` each.
    pub(super) fn walk(&self, root: u64, contents: &[u64], window: Window, tiers: &[Tier]) -> u64 {
        let mut reached = vec![LinkParent::Root(root)];
        let mut depth = 0;
        for content in contents {
            let places = reached.iter().filter_map(|at| self.children.get(&(*at, *content)));
            let fits = |id: &&NodeId| self.fits(**id, window, tiers);
            reached = places.flatten().filter(fits).map(|id| LinkParent::Block(*id)).collect();
            if reached.is_empty() {
                break;
            }
            depth += 1;
        }
        depth
    }

    fn fits(&self, id: NodeId, window: Window, tiers: &[Tier]) -> bool {
        self.nodes.get(&id).is_some_and(|node| {
            id.block_size == window.block_size
                && node.bigram == window.bigram
                && tiers.iter().any(|tier| node.tiers.contains(tier))
        })
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
