//! Blocks that wait for their parent before a prefix can reach them.

use std::collections::{BTreeMap, BTreeSet};

use super::link::NodeId;

/// Who waits for whom. Counted, because a lost store can leave a whole branch waiting.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Parking {
    /// Keys of the children, by the parent they wait for; they have its block size.
    children: BTreeMap<NodeId, BTreeSet<u64>>,
    count: usize,
}

impl Parking {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, parent: NodeId, child: u64) {
        if self.children.entry(parent).or_default().insert(child) {
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, parent: NodeId, child: u64) {
        let Some(children) = self.children.get_mut(&parent) else { return };
        if children.remove(&child) {
            self.count -= 1;
        }
        if children.is_empty() {
            self.children.remove(&parent);
        }
    }

    /// The nodes of `key` that somebody waits for.
    pub(super) fn awaited(&self, key: u64) -> Vec<NodeId> {
        let all_sizes = NodeId { key, block_size: 0 }..=NodeId { key, block_size: u32::MAX };
        self.children.range(all_sizes).map(|(node, _)| *node).collect()
    }

    /// Ends the waiting of all children of `parent`.
    pub(super) fn take(&mut self, parent: NodeId) -> BTreeSet<u64> {
        let children = self.children.remove(&parent).unwrap_or_default();
        self.count -= children.len();
        children
    }
}
