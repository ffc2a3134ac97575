//! One replica in the index: its names, withdrawals that overtake its data, and guesses.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use kvbridge_schemas::{Replica, ReplicaKey, TierTrust};

use super::{AsOf, ByTier, Generation, Published, ReplicaMatch, speculation::Speculation};

/// A writer died half-way through a batch.
const REASON_FAULT: &str = "index_fault";

pub(super) struct Entry {
    pub(super) key: ReplicaKey,
    replica: Arc<Replica>,
    /// The generation in force. Written after `reason`, so that who sees it sees its reason or a
    /// later one.
    generation: AtomicU64,
    /// Why the last withdrawal happened. Also makes withdrawals of one replica take turns.
    reason: Mutex<&'static str>,
    /// Taken while the model is held, never the other way round.
    speculation: Mutex<Option<Speculation>>,
}

impl Entry {
    pub(super) fn new(key: ReplicaKey, replica: Replica) -> Entry {
        let published = Published::nothing();
        Entry {
            key,
            replica: Arc::new(replica),
            generation: AtomicU64::new(published.generation.0),
            reason: Mutex::new(published.reason),
            speculation: Mutex::default(),
        }
    }

    pub(super) fn model(&self) -> &str {
        &self.replica.model
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    pub(super) fn withdraw(&self, reason: &'static str) -> Generation {
        let mut current = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        *current = reason;
        Generation(self.generation.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// The reason, if the version's trust was withdrawn after it was decided.
    pub(super) fn withdrawn(&self, published: &Published) -> Option<&'static str> {
        if self.generation() == published.generation {
            return None;
        }
        Some(*self.reason.lock().unwrap_or_else(PoisonError::into_inner))
    }

    // Guesses that a panic left half-changed are guesses still.
    pub(super) fn speculation(&self) -> MutexGuard<'_, Option<Speculation>> {
        self.speculation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The replica while a writer's death left nothing of it that can be read.
    pub(super) fn faulted(&self) -> ReplicaMatch {
        self.unusable(&Published::nothing(), TierTrust::default(), REASON_FAULT)
    }

    /// The replica as one that must not be matched now.
    pub(super) fn unusable(
        &self,
        published: &Published,
        trust: TierTrust,
        reason: &'static str,
    ) -> ReplicaMatch {
        ReplicaMatch {
            key: self.key.clone(),
            replica: Arc::clone(&self.replica),
            trust,
            usable: false,
            reason,
            block_size: None,
            matched_blocks: 0,
            matched_tokens: 0,
            speculative_tokens: 0,
            by_tier: ByTier::default(),
            as_of: AsOf { cursor: published.cursor, at_ms: published.at_ms },
        }
    }
}
