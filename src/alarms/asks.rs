//! SHELL around a pure count. What routers ask and name, by model: the fleet alone makes it grow,
//! no request does.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
};

use kvbridge_schemas::ReplicaKey;

use crate::{
    index::{Answer, Prompt, Query, QueryError, REASON_BLOCK_SIZE},
    recent::Recent,
    recovery::Tick,
};

/// Tokens by which prompts begin alike. Fewer: all prompts with one system prompt of a line. More:
/// short prompts are not looked at. No engine's block is larger.
const PREFIX_TOKENS: usize = 64;

/// An engine has announced the blocks of a prompt by then: a repeat that comes sooner proves
/// nothing.
const REPEAT_AFTER_MS: u64 = 5_000;

/// A prompt that is longer ago may be evicted.
const REPEAT_WITHIN_MS: u64 = 180_000;

/// Beginnings remembered of each model. Fewer: under many conversations none is known again. More:
/// memory.
const PREFIXES_MAX: usize = 4_096;

/// Between two notes of the candidates of routes: there may be thousands, all the same each time.
const CANDIDATES_EVERY_MS: u64 = 1_000;

/// What was counted of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests.
    pub(super) asked: u64,
    /// Prompts that began as one before, while a replica could be matched.
    pub(super) repeated: u64,
    /// Those of them that matched a block of any replica.
    pub(super) matched: u64,
    /// Times that routers named an instance that nobody knows.
    pub(super) unknown: u64,
}

/// What was counted of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfReplica {
    /// Times that routers named it.
    pub(super) named: u64,
    /// Prompts that came in blocks of another size than its own.
    pub(super) other_size: u64,
}

/// One model, over time.
struct OfModel {
    counts: Counts,
    /// Of replicas, once something was counted of them.
    replicas: BTreeMap<ReplicaKey, OfReplica>,
    /// Beginnings, with when each was first seen.
    prefixes: Recent<u64, Tick>,
    candidates_at: Option<Tick>,
}

impl Default for OfModel {
    fn default() -> OfModel {
        OfModel {
            counts: Counts::default(),
            replicas: BTreeMap::new(),
            prefixes: Recent::new(PREFIXES_MAX, REPEAT_WITHIN_MS),
            candidates_at: None,
        }
    }
}

impl OfModel {
    fn asked(&mut self, now: Tick, prefix: Option<u64>, answer: Result<&Answer, &QueryError>) {
        self.counts.asked += 1;
        let answer = match answer {
            Ok(answer) => answer,
            Err(QueryError::BlockSize { .. }) => {
                self.replicas.values_mut().for_each(|replica| replica.other_size += 1);
                return;
            }
            Err(QueryError::UnknownModel) => return,
        };
        for found in answer.replicas.iter().filter(|found| found.reason == REASON_BLOCK_SIZE) {
            self.replicas.entry(found.key.clone()).or_default().other_size += 1;
        }
        if let (Some(prefix), None) = (prefix, answer.fallback)
            && self.is_repeated(now, prefix)
        {
            self.counts.repeated += 1;
            let is_matched = answer.replicas.iter().any(|found| found.matched_tokens > 0);
            self.counts.matched += u64::from(is_matched);
        }
    }

    /// Whether a prompt began so a while ago.
    fn is_repeated(&mut self, now: Tick, prefix: u64) -> bool {
        while self.prefixes.pop_old(now).is_some() {}
        if let Some(first_at) = self.prefixes.get(now, &prefix) {
            return now >= first_at.plus(REPEAT_AFTER_MS);
        }
        self.prefixes.note(now, prefix, now);
        false
    }

    /// A router named this one; `None` = one that nobody knows.
    fn named(&mut self, key: Option<&ReplicaKey>) {
        match key {
            Some(key) => self.replicas.entry(key.clone()).or_default().named += 1,
            None => self.counts.unknown += 1,
        }
    }
}

/// All models that are read.
pub(super) struct Asks {
    by_model: RwLock<BTreeMap<String, Mutex<OfModel>>>,
    /// Its keys are drawn at the start: what is remembered of prompts cannot be compared with
    /// prompts from elsewhere.
    hasher: RandomState,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks { by_model: RwLock::default(), hasher: RandomState::new() }
    }
}

impl Asks {
    /// A request for a model, and what became of it.
    pub(super) fn asked(&self, now: Tick, query: &Query<'_>, answer: Result<&Answer, &QueryError>) {
        let prefix = self.prefix(query);
        self.with(query.model, |model| model.asked(now, prefix, answer));
    }

    /// A request without a prompt.
    pub(super) fn counted(&self, model: &str) {
        self.with(model, |model| model.counts.asked += 1);
    }

    /// A router named a replica, or one that nobody knows.
    pub(super) fn named(&self, model: &str, key: Option<&ReplicaKey>) {
        self.with(model, |model| model.named(key));
    }

    /// A router named these as candidates.
    pub(super) fn candidates<'a>(
        &self,
        now: Tick,
        model: &str,
        keys: impl Iterator<Item = Option<&'a ReplicaKey>>,
    ) {
        self.with(model, |model| {
            if model.candidates_at.is_none_or(|at| now >= at.plus(CANDIDATES_EVERY_MS)) {
                model.candidates_at = Some(now);
                keys.for_each(|key| model.named(key));
            }
        });
    }

    /// What was counted so far of a model, and of one of its replicas.
    pub(super) fn counts(&self, model: &str, key: &ReplicaKey) -> (Counts, OfReplica) {
        let models = self.read();
        let Some(model) = models.get(model).map(lock) else { return Default::default() };
        (model.counts, model.replicas.get(key).copied().unwrap_or_default())
    }

    /// From now on these are read, and no others.
    pub(super) fn keep(&self, replicas: &BTreeSet<(&str, &ReplicaKey)>) {
        let mut models = self.by_model.write().unwrap_or_else(PoisonError::into_inner);
        let is_read = |model: &str| replicas.iter().any(|(of, _)| *of == model);
        models.retain(|model, _| is_read(model));
        for (model, key) in replicas {
            let of_model = models.entry((*model).to_owned()).or_default();
            let of_model = of_model.get_mut().unwrap_or_else(PoisonError::into_inner);
            of_model.replicas.entry((*key).clone()).or_default();
        }
        for (model, of_model) in models.iter_mut() {
            let of_model = of_model.get_mut().unwrap_or_else(PoisonError::into_inner);
            of_model.replicas.retain(|key, _| replicas.contains(&(model.as_str(), key)));
        }
    }

    fn prefix(&self, query: &Query<'_>) -> Option<u64> {
        match query.prompt {
            Prompt::Tokens(tokens) => {
                let first = tokens.get(..PREFIX_TOKENS)?;
                Some(self.hasher.hash_one((first, query.lora, query.salt)))
            }
            Prompt::Content { hashes, block_size } => {
                let first = hashes.first()?;
                Some(self.hasher.hash_one((first, block_size, query.lora, query.salt)))
            }
        }
    }

    fn with(&self, model: &str, count: impl FnOnce(&mut OfModel)) {
        if let Some(model) = self.read().get(model) {
            count(&mut lock(model));
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Mutex<OfModel>>> {
        // Single inserts and removals, and single counts: nothing in them can panic half-way.
        self.by_model.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(model: &Mutex<OfModel>) -> MutexGuard<'_, OfModel> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}
