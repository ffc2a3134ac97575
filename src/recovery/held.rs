//! Live batches that wait for a replay or a snapshot, and the ring of digests already applied.

use std::collections::VecDeque;

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Digest, Seq};

use super::{Limits, Tick};

/// Live batches by seq; each seq once.
#[derive(Debug, Default)]
pub(super) struct Held {
    batches: VecDeque<Batch>,
    bytes: u64,
    /// When the last of them came.
    came_at: Tick,
}

impl Held {
    /// Whether the bound has room for this batch. One batch is always taken: a bound below a single
    /// payload must not starve the replica.
    pub(super) fn takes(&self, batch: &Batch, limits: &Limits) -> bool {
        let bytes = self.bytes + u64::from(batch.bytes);
        let room = self.batches.len() < limits.held_batches_max && bytes <= limits.held_bytes_max;
        room || self.batches.is_empty()
    }

    pub(super) fn push(&mut self, batch: Batch, now: Tick) {
        self.came_at = now;
        self.bytes += u64::from(batch.bytes);
        // Nearly always the newest; a bus may still bring one late.
        let at = self.batches.partition_point(|held| held.seq < batch.seq);
        self.batches.insert(at, batch);
    }

    pub(super) fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.bytes -= u64::from(batch.bytes);
        Some(batch)
    }

    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// When the last one came, if there is any.
    pub(super) fn came_at(&self) -> Option<Tick> {
        (!self.is_empty()).then_some(self.came_at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn first_seq(&self) -> Option<Seq> {
        self.batches.front().map(|batch| batch.seq)
    }

    pub(super) fn digest_of(&self, seq: Seq) -> Option<Digest> {
        self.get(seq).map(|batch| batch.digest)
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Batch> {
        let at = self.batches.binary_search_by_key(&seq, |batch| batch.seq).ok()?;
        self.batches.get(at)
    }

    /// Drops what lies before `seq`: a snapshot already reflects it.
    pub(super) fn drop_below(&mut self, seq: Seq) {
        while self.first_seq().is_some_and(|first| first < seq) {
            self.pop();
        }
    }
}

/// (seq, digest) of the newest applied batches.
#[derive(Debug, Default)]
pub(super) struct DigestRing {
    entries: VecDeque<(Seq, Digest)>,
}

impl DigestRing {
    pub(super) fn push(&mut self, seq: Seq, digest: Digest, limit: usize) {
        if self.entries.len() >= limit.max(1) {
            self.entries.pop_front();
        }
        self.entries.push_back((seq, digest));
    }

    pub(super) fn get(&self, seq: Seq) -> Option<Digest> {
        let at = self.entries.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        self.entries.get(at).map(|(_, digest)| *digest)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(super) fn last(&self) -> Option<(Seq, Digest)> {
        self.entries.back().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, Digest)> + '_ {
        self.entries.iter().copied()
    }
}
