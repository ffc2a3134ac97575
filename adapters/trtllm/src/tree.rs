//! What is resident of a rank, as far as its events tell: a removal names neither the tier nor the
//! blocks below.

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{BlockHash, Tier};

use crate::limits::{BLOCKS_MAX, PARTIALS_MAX};

/// Blocks by hash, each below its parent, which need not be resident.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    blocks: BTreeMap<BlockHash, Node>,
    children: BTreeMap<BlockHash, BTreeSet<BlockHash>>,
    /// Partial blocks by age.
    partials: BTreeMap<u64, BlockHash>,
    stamp: u64,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) parent: Option<BlockHash>,
    pub(crate) tier: Tier,
    /// When it was stored, for a block with less than all tokens.
    partial: Option<u64>,
}

/// A block that is resident no more, and where it was.
pub(crate) type Gone = (BlockHash, Tier);

/// No room is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Tree {
    pub(crate) fn get(&self, hash: &BlockHash) -> Option<&Node> {
        self.blocks.get(hash)
    }

    /// Puts a block in, or says what partial block is forgotten for it.
    pub(crate) fn insert(
        &mut self,
        hash: &BlockHash,
        parent: Option<&BlockHash>,
        tier: &Tier,
        is_partial: bool,
    ) -> Result<Option<Gone>, Full> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(Full);
        }
        self.stamp += 1;
        let partial = is_partial.then_some(self.stamp);
        let node = Node { parent: parent.cloned(), tier: tier.clone(), partial };
        if let Some(parent) = parent {
            self.children.entry(parent.clone()).or_default().insert(hash.clone());
        }
        self.blocks.insert(hash.clone(), node);
        if let Some(stamp) = partial {
            self.partials.insert(stamp, hash.clone());
        }
        if self.partials.len() <= PARTIALS_MAX {
            return Ok(None);
        }
        let oldest = self.partials.first_key_value().map(|(_, hash)| hash.clone());
        Ok(oldest.and_then(|oldest| self.take(&oldest)))
    }

    /// Takes one block out, its descendants not.
    pub(crate) fn take(&mut self, hash: &BlockHash) -> Option<Gone> {
        let node = self.blocks.remove(hash)?;
        if let Some(stamp) = node.partial {
            self.partials.remove(&stamp);
        }
        if let Some(parent) = &node.parent
            && let Some(siblings) = self.children.get_mut(parent)
        {
            siblings.remove(hash);
            if siblings.is_empty() {
                self.children.remove(parent);
            }
        }
        Some((hash.clone(), node.tier))
    }

    /// Takes a block and everything below it out. A loop, not a recursion: a chain is as long as a
    /// prompt.
    pub(crate) fn remove(&mut self, hash: &BlockHash, gone: &mut Vec<Gone>) {
        let Some(first) = self.take(hash) else { return };
        gone.push(first);
        let mut parents = vec![hash.clone()];
        while let Some(parent) = parents.pop() {
            for child in self.children.remove(&parent).unwrap_or_default() {
                gone.extend(self.take(&child));
                parents.push(child);
            }
        }
    }

    /// Moves a block; says where it was, if it was elsewhere.
    pub(crate) fn relocate(&mut self, hash: &BlockHash, tier: &Tier) -> Option<Tier> {
        let node = self.blocks.get_mut(hash)?;
        let before = std::mem::replace(&mut node.tier, tier.clone());
        (before != *tier).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> BlockHash {
        BlockHash::from_u64(number)
    }

    fn chain(tree: &mut Tree, from: u64, to: u64) {
        for number in from..to {
            let parent = number.checked_sub(1).map(hash);
            assert_eq!(tree.insert(&hash(number), parent.as_ref(), &Tier::Device, false), Ok(None));
        }
    }

    #[test]
    fn what_hangs_below_goes_too() {
        let mut tree = Tree::default();
        chain(&mut tree, 0, 100_000);
        tree.insert(&hash(1 << 40), Some(&hash(4)), &Tier::Host, false).unwrap();
        let mut gone = Vec::new();
        tree.remove(&hash(5), &mut gone);
        assert_eq!((gone.len(), tree.blocks.len()), (100_000 - 5, 6));
        tree.remove(&hash(5), &mut gone);
        assert_eq!(gone.len(), 100_000 - 5);
        tree.remove(&hash(0), &mut gone);
        assert!(tree.blocks.is_empty() && tree.children.is_empty());
        assert!(gone.contains(&(hash(1 << 40), Tier::Host)));
    }

    #[test]
    fn a_child_may_be_there_before_its_parent() {
        let mut tree = Tree::default();
        tree.insert(&hash(2), Some(&hash(1)), &Tier::Device, false).unwrap();
        chain(&mut tree, 0, 2);
        let mut gone = Vec::new();
        tree.remove(&hash(1), &mut gone);
        assert_eq!(gone, [(hash(1), Tier::Device), (hash(2), Tier::Device)]);
    }

    #[test]
    fn the_oldest_partial_block_is_forgotten() {
        let mut tree = Tree::default();
        let count = u64::try_from(PARTIALS_MAX).unwrap();
        let put = |tree: &mut Tree, number| tree.insert(&hash(number), None, &Tier::Device, true);
        (0..count).for_each(|number| assert_eq!(put(&mut tree, number), Ok(None)));
        tree.take(&hash(0)).unwrap();
        assert_eq!(put(&mut tree, count), Ok(None));
        assert_eq!(put(&mut tree, count + 1), Ok(Some((hash(1), Tier::Device))));
        assert_eq!(tree.partials.len(), PARTIALS_MAX);
    }
}
