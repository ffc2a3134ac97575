//! PURE. A bounded host tier: a set of blocks, the longest untouched leaves first.

use std::collections::BTreeMap;

use super::hash::Hash;

/// The host tier.
#[derive(Clone, Debug)]
pub(super) struct Host {
    capacity: usize,
    stamps: BTreeMap<Hash, u64>,
    oldest: BTreeMap<u64, Hash>,
    stamp: u64,
}

impl Host {
    pub(super) fn new(capacity: u32) -> Host {
        Host {
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            stamps: BTreeMap::new(),
            oldest: BTreeMap::new(),
            stamp: 0,
        }
    }

    pub(super) fn contains(&self, hash: &Hash) -> bool {
        self.stamps.contains_key(hash)
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = &Hash> {
        self.stamps.keys()
    }

    pub(super) fn touch(&mut self, hashes: &[Hash]) {
        for hash in hashes {
            if self.contains(hash) {
                self.stamp_now(*hash);
            }
        }
    }

    /// Takes the blocks in, as many as fit: what was stored, and what had to leave before.
    pub(super) fn store(&mut self, hashes: &[Hash]) -> (Vec<Hash>, Vec<Hash>) {
        let mut stored = Vec::new();
        let mut evicted = Vec::new();
        for hash in hashes {
            if self.contains(hash) || stored.len() >= self.capacity {
                continue;
            }
            if self.stamps.len() >= self.capacity
                && let Some((_, oldest)) = self.oldest.pop_first()
            {
                self.stamps.remove(&oldest);
                evicted.push(oldest);
            }
            self.stamp_now(*hash);
            stored.push(*hash);
        }
        (stored, evicted)
    }

    fn stamp_now(&mut self, hash: Hash) {
        self.stamp += 1;
        if let Some(before) = self.stamps.insert(hash, self.stamp) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.stamp, hash);
    }
}
