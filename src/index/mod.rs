//! PURE. All views together, answering prefix queries.
//!
//! The index is a fold of every view's deltas. It is shared by threads and knows no clock, task or
//! channel; the threads that write it are the shell's.
//!
//! The contract with readers:
//! - A batch and the [`Published`] that goes with it become visible in one step. A match carries
//!   the cursor and trust of the version its blocks are of.
//! - Trust is *granted* with data, so that an answer never claims `exact` before the data is in,
//!   and *withdrawn* past it: [`Index::withdraw`] takes effect at once, however much is still
//!   queued.
//! - A withdrawal starts a new [`Generation`]. A version counts only if it was decided in the
//!   generation in force, so queued grants of before cannot bring the trust back.
//! - A dropped replica's slot is never used again: a late write under it changes nothing.
//!
//! Memory is bounded by the views: the index holds nothing that no view holds, but for guesses of
//! routers ([`Index::backfill`]), which have a bound and a lifetime and are never a match. This
//! first form locks per replica and walks maps; what replaces it for speed keeps this interface.
#![deny(clippy::wildcard_enum_match_arm)]

mod answer;
mod query;
mod replica;
mod speculation;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kvbridge_schemas::{Cursor, Replica, ReplicaKey, TierTrust};

pub use answer::{Answer, AsOf, ReplicaMatch, TierMatch};
use query::PromptHashes;
pub use query::{Prompt, Query, QueryError};
pub use replica::REASON_BLOCK_SIZE;
use replica::{Body, Entry};
pub use speculation::{BackfillMode, Backfilled, SPECULATIVE_BLOCKS_MAX, SPECULATIVE_TTL_MS};
use tree::Tree;

use crate::{recovery::Tick, view::Delta};

/// What a router does when no replica is usable.
const FALLBACK_LOAD: &str = "load";

/// One registration of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaSlot(u64);

impl ReplicaSlot {
    /// Its number, by which writers are sharded.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Counts the withdrawals of one slot. A grant counts only in the generation it was decided in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// What is said of one version of a replica's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Every batch of its epoch below its seq is in.
    pub cursor: Cursor,
    /// What may be believed.
    pub trust: TierTrust,
    /// Why it is no better.
    pub reason: &'static str,
    /// When, unix ms by the caller's clock.
    pub at_ms: u64,
    /// The generation in which the trust was decided: that of the last withdrawal the decider knew.
    pub generation: Generation,
    /// The engine sends hashes without tokens, so nothing can be compared.
    pub no_content: bool,
    /// The host tier holds blocks of a source that never announces removals.
    pub host_is_hint: bool,
}

impl Published {
    /// What is said of a replica before anything was published.
    pub fn nothing() -> Published {
        Published {
            cursor: Cursor::default(),
            trust: TierTrust::default(),
            reason: "joining",
            at_ms: 0,
            generation: Generation::default(),
            no_content: false,
            host_is_hint: false,
        }
    }
}

/// How guesses are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillTerms {
    /// When at all.
    pub mode: BackfillMode,
    /// How many blocks the replica can hold, or [`SPECULATIVE_BLOCKS_MAX`].
    pub blocks_max: usize,
    /// Now.
    pub now: Tick,
}

/// All replicas of all models.
#[derive(Default)]
pub struct Index {
    registry: RwLock<Registry>,
}

#[derive(Default)]
struct Registry {
    slots: BTreeMap<ReplicaSlot, Arc<Entry>>,
    models: BTreeMap<String, BTreeMap<ReplicaKey, ReplicaSlot>>,
    slots_given: u64,
}

impl Index {
    /// An index without replicas.
    pub fn new() -> Index {
        Index::default()
    }

    /// The slot of a replica, a new and empty one if it has none.
    pub fn register(&self, replica: Replica) -> ReplicaSlot {
        let key = replica.key();
        let mut registry = self.write();
        let known = registry.models.get(&replica.model).and_then(|slots| slots.get(&key));
        if let Some(slot) = known {
            return *slot;
        }
        let slot = ReplicaSlot(registry.slots_given);
        registry.slots_given += 1;
        let of_model = registry.models.entry(replica.model.clone()).or_default();
        of_model.insert(key.clone(), slot);
        registry.slots.insert(slot, Arc::new(Entry::new(key, replica)));
        slot
    }

    /// Applies one batch's deltas and publishes, in one step for readers.
    pub fn apply(&self, slot: ReplicaSlot, deltas: &[Delta], published: Published) {
        if let Some(entry) = self.entry(slot) {
            entry.apply(deltas, published);
        }
    }

    /// Publishes without a change of data.
    pub fn publish(&self, slot: ReplicaSlot, published: Published) {
        self.apply(slot, &[], published);
    }

    /// Puts a whole view in the place of what is there. It is built aside; readers wait for one
    /// swap.
    pub fn replace(
        &self,
        slot: ReplicaSlot,
        deltas: impl IntoIterator<Item = Delta>,
        published: Published,
    ) {
        let Some(entry) = self.entry(slot) else { return };
        let mut tree = Tree::default();
        deltas.into_iter().for_each(|delta| tree.apply(&delta));
        drop(entry.replace(Body { tree, published }));
    }

    /// Takes all trust in the replica away, at once. Returns the new generation: only what is
    /// published with it can grant again.
    pub fn withdraw(&self, slot: ReplicaSlot, reason: &'static str) -> Generation {
        self.entry(slot).map_or_else(Generation::default, |entry| entry.withdraw(reason))
    }

    /// The generation in force.
    pub fn generation(&self, slot: ReplicaSlot) -> Generation {
        self.entry(slot).map_or_else(Generation::default, |entry| entry.generation())
    }

    /// Forgets a replica. Its blocks are freed here, while queries go on.
    pub fn drop_replica(&self, slot: ReplicaSlot) {
        let mut registry = self.write();
        let Some(entry) = registry.slots.remove(&slot) else { return };
        if let Some(slots) = registry.models.get_mut(entry.model()) {
            slots.remove(&entry.key);
            if slots.is_empty() {
                registry.models.remove(entry.model());
            }
        }
        drop(registry);
        drop(entry);
    }

    /// How much of a prompt each replica of the model holds.
    pub fn query(&self, query: &Query<'_>) -> Result<Answer, QueryError> {
        let mut hashes = PromptHashes::new(query.prompt);
        let mut used = BTreeSet::new();
        let entries = self.entries(query.model).ok_or(QueryError::UnknownModel)?;
        let mut replicas: Vec<ReplicaMatch> =
            entries.iter().map(|entry| entry.answer(query, &mut hashes, &mut used)).collect();
        match query.prompt {
            Prompt::Content { block_size, .. }
                if !used.is_empty() && !used.contains(&block_size) =>
            {
                return Err(QueryError::BlockSize { used: used.into_iter().collect() });
            }
            Prompt::Content { .. } | Prompt::Tokens(_) => (),
        }
        replicas.sort_by(|a, b| {
            b.matched_tokens.cmp(&a.matched_tokens).then_with(|| a.key.cmp(&b.key))
        });
        let usable = replicas.iter().any(|replica| replica.usable);
        Ok(Answer { replicas, fallback: (!usable).then_some(FALLBACK_LOAD) })
    }

    /// Takes what a router says that a replica computed for a prompt, as a guess: it shows in
    /// [`Index::speculate`] alone.
    pub fn backfill(
        &self,
        key: &ReplicaKey,
        query: &Query<'_>,
        terms: BackfillTerms,
    ) -> Result<Backfilled, QueryError> {
        let entry = self.entry_of(query.model, key).ok_or(QueryError::UnknownModel)?;
        entry.backfill(query, terms)
    }

    /// Adds to an answer of the same question what its replicas are guessed to hold beyond it.
    pub fn speculate(&self, query: &Query<'_>, answer: &mut Answer, mode: BackfillMode, now: Tick) {
        let mut hashes = PromptHashes::new(query.prompt);
        for found in answer.replicas.iter_mut().filter(|found| mode.takes(found.trust)) {
            if let Some(entry) = self.entry_of(query.model, &found.key) {
                let tokens = entry.speculate(query, now, &mut hashes);
                found.speculative_tokens = tokens.saturating_sub(found.matched_tokens);
            }
        }
    }

    fn entry_of(&self, model: &str, key: &ReplicaKey) -> Option<Arc<Entry>> {
        let registry = self.read();
        let slot = registry.models.get(model)?.get(key)?;
        registry.slots.get(slot).map(Arc::clone)
    }

    fn entry(&self, slot: ReplicaSlot) -> Option<Arc<Entry>> {
        self.read().slots.get(&slot).map(Arc::clone)
    }

    fn entries(&self, model: &str) -> Option<Vec<Arc<Entry>>> {
        let registry = self.read();
        let slots = registry.models.get(model)?;
        Some(slots.values().filter_map(|slot| registry.slots.get(slot)).map(Arc::clone).collect())
    }

    // The registry's own changes are single inserts and removals: nothing in them can panic
    // half-way.
    fn read(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}
