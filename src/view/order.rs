//! In which order a view is gone through.

use std::ops::Range;

use super::{View, block::Block, link::LinkParent};

/// A part of what a view holds, where it is gone through.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// One block, by its key.
    Block(u64),
    Strip(u32),
}

impl View {
    /// All keys, smallest first.
    pub(super) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.strips.keys().collect();
        keys.extend(self.blocks.keys());
        keys.sort_unstable();
        keys
    }

    /// All blocks, each after the resident blocks it is linked to. A ring of links (a hostile
    /// stream can make one) has no first block: what is left over follows in key order.
    pub(super) fn parents_first(&self) -> Vec<At> {
        if self.strips.is_empty() {
            return self.blocks_first().into_iter().map(At::Block).collect();
        }
        let alone = self.blocks.keys();
        let in_strip = |parent: LinkParent| match parent {
            LinkParent::Root(_) => false,
            LinkParent::Block(node) => self.strips.find(node.key).is_some(),
        };
        let follows_strip = |key: &u64| {
            let block = self.blocks.get(*key).map(|block| self.kinds.expand(block));
            block.is_some_and(|block| block.links.values().any(|link| in_strip(link.parent)))
        };
        if !alone.iter().any(follows_strip) {
            let alone = self.order(alone).into_iter().map(At::Block);
            return alone.chain(self.strips.in_order().into_iter().map(At::Strip)).collect();
        }
        self.order(self.keys()).into_iter().map(At::Block).collect()
    }

    /// The keys of all blocks that are in no strip, parents first.
    pub(super) fn blocks_first(&self) -> Vec<u64> {
        self.order(self.blocks.keys())
    }

    fn order(&self, keys: Vec<u64>) -> Vec<u64> {
        let mut edges: Vec<(u64, usize)> = Vec::with_capacity(keys.len());
        for (child, key) in keys.iter().enumerate() {
            let before = |parent| match parent {
                LinkParent::Block(node) if node.key != *key => Some((node.key, child)),
                LinkParent::Root(_) | LinkParent::Block(_) => None,
            };
            match self.blocks.get(*key) {
                Some(Block::Plain(plain)) => edges.extend(self.parent(plain).and_then(before)),
                Some(Block::Full(full)) => {
                    edges.extend(full.links.values().filter_map(|link| before(link.parent)));
                }
                None => {
                    let full = self.full(*key).unwrap_or_default();
                    edges.extend(full.links.values().filter_map(|link| before(link.parent)));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        // Both are in the order of the parents' keys, so one walk finds each block's children.
        let (mut missing, mut at) = (vec![0_usize; keys.len()], 0);
        let mut children: Vec<Range<usize>> = Vec::with_capacity(keys.len());
        for key in &keys {
            at += edges[at..].iter().take_while(|(parent, _)| parent < key).count();
            let count = edges[at..].iter().take_while(|(parent, _)| parent == key).count();
            edges[at..at + count].iter().for_each(|(_, child)| missing[*child] += 1);
            children.push(at..at + count);
            at += count;
        }
        let mut order: Vec<usize> = (0..keys.len()).filter(|at| missing[*at] == 0).collect();
        let mut next = 0;
        while let Some(parent) = order.get(next).copied() {
            next += 1;
            for (_, child) in &edges[children[parent].clone()] {
                missing[*child] -= 1;
                if missing[*child] == 0 {
                    order.push(*child);
                }
            }
        }
        order.extend((0..keys.len()).filter(|at| missing[*at] > 0));
        order.into_iter().map(|at| keys[at]).collect()
    }
}
