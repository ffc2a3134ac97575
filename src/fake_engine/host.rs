//! PURE. A bounded host tier: a set of blocks, the longest untouched leaves first.

use std::collections::BTreeMap;

use super::hash::Hash;

/// The host tier.
#[derive(Clone, Debug)]
pub(super) struct Host<K = Hash> {
    capacity: usize,
    stamps: BTreeMap<K, u64>,
    oldest: BTreeMap<u64, K>,
    stamp: u64,
}

impl<K: Ord + Clone> Host<K> {
    pub(super) fn new(capacity: u32) -> Host<K> {
        Host {
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            stamps: BTreeMap::new(),
            oldest: BTreeMap::new(),
            stamp: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn clear(&mut self) {
        self.stamps.clear();
        self.oldest.clear();
    }

    pub(super) fn contains(&self, hash: &K) -> bool {
        self.stamps.contains_key(hash)
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = &K> {
        self.stamps.keys()
    }

    pub(super) fn touch<'k>(&mut self, hashes: impl IntoIterator<Item = &'k K>)
    where
        K: 'k,
    {
        for hash in hashes {
            if self.contains(hash) {
                self.stamp_now(hash.clone());
            }
        }
    }

    /// Takes the blocks in, as many as fit: what was stored, and what had to leave before.
    pub(super) fn store(&mut self, hashes: &[K]) -> (Vec<K>, Vec<K>) {
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
            self.stamp_now(hash.clone());
            stored.push(hash.clone());
        }
        (stored, evicted)
    }

    fn stamp_now(&mut self, hash: K) {
        self.stamp += 1;
        if let Some(before) = self.stamps.insert(hash.clone(), self.stamp) {
            self.oldest.remove(&before);
        }
        self.oldest.insert(self.stamp, hash);
    }
}
