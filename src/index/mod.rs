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
//! routers ([`Index::backfill`]), which have a bound and a lifetime and are never a match.
//!
//! All replicas of a model share one tree of contents (`tree`), so that a question is one walk,
//! however many replicas there are.
#![deny(clippy::wildcard_enum_match_arm)]

mod answer;
mod column;
mod leaving;
mod matching;
mod members;
mod model;
mod moving;
mod page;
mod query;
mod replica;
mod running;
mod speculation;
mod strip;
mod strips;
#[cfg(test)]
mod tests;
mod tree;
mod walk;
mod weighing;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kvbridge_schemas::{Cursor, Replica, ReplicaKey, TierTrust};

pub use answer::{Answer, AsOf, ByTier, ReplicaMatch, TierMatch};
pub use matching::REASON_BLOCK_SIZE;
use model::Model;
use query::PromptHashes;
pub use query::{Prompt, Query, QueryError};
use replica::Entry;
pub use speculation::{BackfillMode, Backfilled, SPECULATIVE_BLOCKS_MAX, SPECULATIVE_TTL_MS};

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
    /// How long each is believed; [`SPECULATIVE_TTL_MS`] where nobody says.
    pub ttl_ms: u64,
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
    slots: BTreeMap<ReplicaSlot, Seat>,
    models: BTreeMap<String, Served>,
    slots_given: u64,
}

/// Where a slot's data is.
#[derive(Clone)]
struct Seat {
    model: Arc<Model>,
    entry: Arc<Entry>,
}

#[derive(Default)]
struct Served {
    model: Arc<Model>,
    slots: BTreeMap<ReplicaKey, ReplicaSlot>,
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
        let served = registry.models.get(&replica.model);
        let known = served.and_then(|served| served.slots.get(&key));
        if let Some(slot) = known {
            return *slot;
        }
        let slot = ReplicaSlot(registry.slots_given);
        registry.slots_given += 1;
        let served = registry.models.entry(replica.model.clone()).or_default();
        served.slots.insert(key.clone(), slot);
        let (model, entry) = (Arc::clone(&served.model), Arc::new(Entry::new(key, replica)));
        model.add(slot, Arc::clone(&entry));
        registry.slots.insert(slot, Seat { model, entry });
        slot
    }

    /// Applies one batch's deltas and publishes, in one step for readers.
    pub fn apply(&self, slot: ReplicaSlot, deltas: &[Delta], published: Published) {
        if let Some(seat) = self.seat(slot) {
            seat.model.apply(slot, deltas, published);
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
        if let Some(seat) = self.seat(slot) {
            seat.model.replace(slot, deltas, published);
        }
    }

    /// Takes all trust in the replica away, at once. Returns the new generation: only what is
    /// published with it can grant again.
    pub fn withdraw(&self, slot: ReplicaSlot, reason: &'static str) -> Generation {
        self.seat(slot).map_or_else(Generation::default, |seat| seat.entry.withdraw(reason))
    }

    /// The generation in force.
    pub fn generation(&self, slot: ReplicaSlot) -> Generation {
        self.seat(slot).map_or_else(Generation::default, |seat| seat.entry.generation())
    }

    /// Forgets a replica. Its blocks are freed here, while queries go on.
    pub fn drop_replica(&self, slot: ReplicaSlot) {
        let mut registry = self.write();
        let Some(Seat { model, entry }) = registry.slots.remove(&slot) else { return };
        if let Some(served) = registry.models.get_mut(entry.model()) {
            served.slots.remove(&entry.key);
            if served.slots.is_empty() {
                registry.models.remove(entry.model());
            }
        }
        drop(registry);
        model.remove(slot);
    }

    /// How much of a prompt each replica of the model holds.
    pub fn query(&self, query: &Query<'_>) -> Result<Answer, QueryError> {
        let mut hashes = PromptHashes::new(query.prompt);
        let mut used = BTreeSet::new();
        let registry = self.read();
        let served = registry.models.get(query.model).ok_or(QueryError::UnknownModel)?;
        let mut replicas = served.model.answer(None, query, &mut hashes, &mut used);
        drop(registry);
        match query.prompt {
            Prompt::Content { block_size, .. }
                if !used.is_empty() && !used.contains(&block_size) =>
            {
                return Err(QueryError::BlockSize { used: used.into_iter().collect() });
            }
            Prompt::Content { .. } | Prompt::Tokens(_) => (),
        }
        // They come by key, and a stable sort keeps that.
        replicas.sort_by_key(|found| Reverse(found.matched_tokens));
        let usable = replicas.iter().any(|replica| replica.usable);
        Ok(Answer { replicas, fallback: (!usable).then_some(FALLBACK_LOAD) })
    }

    /// How many blocks of a prompt each replica holds, for those that hold any and may be used: the
    /// numbers of [`Index::query`] into the caller's own list, without names and reasons.
    pub fn depths(
        &self,
        query: &Query<'_>,
        depths: &mut Vec<(ReplicaSlot, u64)>,
    ) -> Result<(), QueryError> {
        depths.clear();
        let registry = self.read();
        let served = registry.models.get(query.model).ok_or(QueryError::UnknownModel)?;
        served.model.depths(query, &mut PromptHashes::new(query.prompt), depths);
        Ok(())
    }

    /// Takes what a router says that a replica computed for a prompt, as a guess: it shows in
    /// [`Index::speculate`] alone.
    pub fn backfill(
        &self,
        key: &ReplicaKey,
        query: &Query<'_>,
        terms: BackfillTerms,
    ) -> Result<Backfilled, QueryError> {
        let (slot, seat) = self.seat_of(query.model, key).ok_or(QueryError::UnknownModel)?;
        seat.model.backfill((slot, &seat.entry), query, terms)
    }

    /// Adds to an answer of the same question what its replicas are guessed to hold beyond it.
    pub fn speculate(&self, query: &Query<'_>, answer: &mut Answer, mode: BackfillMode, now: Tick) {
        let mut hashes = PromptHashes::new(query.prompt);
        for found in answer.replicas.iter_mut().filter(|found| mode.takes(found.trust)) {
            if let Some((slot, seat)) = self.seat_of(query.model, &found.key) {
                let of = (slot, &*seat.entry);
                let tokens = seat.model.speculate(of, query, now, &mut hashes);
                found.speculative_tokens = tokens.saturating_sub(found.matched_tokens);
            }
        }
    }

    /// Tokens per block of the model's blocks, smallest first; none while it has no block.
    pub fn block_sizes(&self, model: &str) -> Vec<u32> {
        self.model(model).map(|model| model.block_sizes()).unwrap_or_default()
    }

    fn seat_of(&self, model: &str, key: &ReplicaKey) -> Option<(ReplicaSlot, Seat)> {
        let registry = self.read();
        let slot = *registry.models.get(model)?.slots.get(key)?;
        registry.slots.get(&slot).map(|seat| (slot, seat.clone()))
    }

    fn seat(&self, slot: ReplicaSlot) -> Option<Seat> {
        self.read().slots.get(&slot).cloned()
    }

    fn model(&self, name: &str) -> Option<Arc<Model>> {
        self.read().models.get(name).map(|served| Arc::clone(&served.model))
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
