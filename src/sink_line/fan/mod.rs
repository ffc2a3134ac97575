//! What any number of consumers are told of one replica, each at its own pace.
//!
//! An engine that is drained tells each event once, to whoever asks first. A [`Fan`] tells each
//! consumer everything: `created` first, then the whole view, each block behind its parent, then
//! what changes. Numbers are the consumer's own and have no hole.
//!
//! - Steps are kept once for all. A consumer for which they were not kept long enough is told that
//!   all it knows is gone, then the whole view again: what it knows follows from what is kept now
//!   and from the steps that it has not seen.
//! - Without trust nothing is told, and after a grace that everything is gone. What is the same
//!   afterwards is not told again before that.
//! - A consumer that has not asked for long is forgotten: with its next request it is a new one.

mod consumer;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvbridge_schemas::{Tier, Tokens, Trust};

use super::{Change, Standing, Told, batch::Facts, held::Held};
use crate::{recovery::Tick, view::Described};
use consumer::Consumer;
pub use consumer::{FanAnswer, FanEvent};
use tree::{Place, Tree};

/// What a fan depends on beside what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanSettings {
    /// Blocks are told with their tokens; those without are not told.
    pub tokens: bool,
    /// How long trust may be away before everything is taken back.
    pub grace_ms: u64,
    /// Steps kept for consumers that are behind.
    pub steps_max: usize,
    /// Consumers at a time.
    pub consumers_max: usize,
    /// Silence after which a consumer is forgotten.
    pub idle_ms: u64,
    /// Blocks of one answer.
    pub answer_blocks_max: usize,
}

/// Why a consumer is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanRefusal {
    /// As many are told already as may be.
    TooManyConsumers,
    /// The replica is read no more, and the consumer never knew it.
    Gone,
}

/// What consumers cost, since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanCounts {
    /// Consumers that were too slow and are told everything again.
    pub behind: u64,
    /// Consumers that were forgotten.
    pub forgotten: u64,
}

/// One step from what consumers have to what is held.
#[derive(Clone, Debug)]
enum Step {
    Stored { key: u64, place: Place },
    Moved { key: u64, from: Tier, to: Tier },
    Removed { key: u64, parent: Option<u64> },
}

/// One replica, to all its consumers.
#[derive(Debug)]
pub struct Fan {
    settings: FanSettings,
    held: Held,
    standing: Standing,
    /// What was held may be another thing than what was told.
    anew: bool,
    gone: bool,
    /// What a consumer has that has seen all steps.
    told: Tree,
    steps: VecDeque<Step>,
    /// The number of the oldest step that is kept.
    first: u64,
    consumers: BTreeMap<String, Consumer>,
    counts: FanCounts,
    /// In place of tokens that nobody asked to be kept.
    unknown: Arc<Described>,
}

impl Fan {
    /// A fan that has nothing to tell yet.
    pub fn new(settings: FanSettings, now: Tick) -> Fan {
        let tiers = vec![Tier::Device, Tier::Host, Tier::Disk, Tier::External];
        let unknown = Described {
            tokens: Tokens(Vec::new()),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
        };
        Fan {
            held: Held::new(tiers, None),
            standing: Standing::Paused { until: now.plus(settings.grace_ms) },
            anew: false,
            gone: false,
            told: Tree::default(),
            steps: VecDeque::new(),
            first: 0,
            consumers: BTreeMap::new(),
            counts: FanCounts::default(),
            unknown: Arc::new(unknown),
            settings,
        }
    }

    /// Takes what a driver tells.
    pub fn told(&mut self, now: Tick, told: Told<'_>) {
        let trusted = told.trust.device > Trust::None;
        self.gone = false;
        if let (false, Standing::Shown) = (trusted, self.standing) {
            self.standing = Standing::Paused { until: now.plus(self.settings.grace_ms) };
        }
        self.held.trust_hosts(told.trust.host > Trust::None);
        if told.whole {
            self.held.let_go();
        }
        for change in told.changes {
            if matches!(change, Change::Cleared) {
                self.held.forget();
                self.anew = true;
            } else {
                self.take(change);
            }
        }
        if trusted {
            self.show();
        }
        self.due(now);
    }

    /// Does what is due now.
    pub fn due(&mut self, now: Tick) {
        if let Standing::Paused { until } = self.standing
            && until <= now
        {
            self.go_dark();
        }
        let idle_ms = self.settings.idle_ms;
        let before = self.consumers.len();
        self.consumers.retain(|_, consumer| now < consumer.asked_at.plus(idle_ms));
        let forgotten = before - self.consumers.len();
        self.counts.forgotten += u64::try_from(forgotten).unwrap_or(u64::MAX);
    }

    /// When [`Fan::due`] has something to do.
    pub fn next_deadline(&self) -> Option<Tick> {
        let paused = match self.standing {
            Standing::Paused { until } => Some(until),
            Standing::Dark | Standing::Shown => None,
        };
        let idle = self.consumers.values().map(|it| it.asked_at.plus(self.settings.idle_ms));
        idle.chain(paused).min()
    }

    /// The replica is read no more: its consumers are still told so.
    pub fn end(&mut self) {
        self.held.forget();
        self.go_dark();
        self.gone = true;
    }

    /// Nobody is left to be told.
    pub fn is_over(&self) -> bool {
        self.gone && self.consumers.is_empty()
    }

    /// How many consumers there are.
    pub fn consumer_count(&self) -> usize {
        self.consumers.len()
    }

    /// What was counted since the last look.
    pub fn take_counts(&mut self) -> FanCounts {
        std::mem::take(&mut self.counts)
    }

    /// What a consumer has not been told. It is told once.
    pub fn take_events(&mut self, now: Tick, name: &str) -> Result<FanAnswer, FanRefusal> {
        self.due(now);
        let end = self.end_number();
        if !self.consumers.contains_key(name) {
            if self.gone {
                return Err(FanRefusal::Gone);
            }
            if self.consumers.len() >= self.settings.consumers_max {
                return Err(FanRefusal::TooManyConsumers);
            }
            self.consumers.insert(name.to_owned(), Consumer::new(now, &self.told, end));
        }
        let Some(consumer) = self.consumers.get_mut(name) else { return Err(FanRefusal::Gone) };
        consumer.asked_at = now;
        consumer.begin_again(&self.told, end);
        Ok(consumer.answer((&self.steps, self.first), self.settings.answer_blocks_max))
    }

    fn take(&mut self, change: &Change) {
        match change {
            Change::Linked { node, parent, tier, described: None } if !self.settings.tokens => {
                self.held.take(&Change::Linked {
                    node: *node,
                    parent: *parent,
                    tier: tier.clone(),
                    described: Some(Arc::clone(&self.unknown)),
                });
            }
            Change::Linked { .. } | Change::Unlinked { .. } | Change::Cleared => {
                self.held.take(change);
            }
        }
    }

    fn show(&mut self) {
        self.standing = Standing::Shown;
        let mut facts = Facts::default();
        self.held.settle(&mut facts);
        let (removed, stored) = facts.keys();
        let candidates = if std::mem::take(&mut self.anew) {
            self.told.parents_first()
        } else {
            removed.iter().rev().copied().collect()
        };
        let leaving =
            self.told.leaving(candidates.into_iter(), |key, place| self.stays(key, place));
        for key in leaving {
            self.remove(key);
        }
        for key in stored.into_iter().chain(removed) {
            self.come(key);
        }
    }

    /// Whether what was told of a block is so still, but for its tier.
    fn stays(&self, key: u64, place: &Place) -> bool {
        self.held.shown_at(key).is_some_and(|(parent, _, described)| {
            parent == place.parent && described.tokens == place.described.tokens
        })
    }

    fn remove(&mut self, key: u64) {
        if let Some(place) = self.told.remove(key) {
            self.push(Step::Removed { key, parent: place.parent });
        }
    }

    fn come(&mut self, key: u64) {
        let Some((parent, tier, described)) = self.held.shown_at(key) else { return };
        let place = Place { parent, tier: tier.clone(), described: Arc::clone(described) };
        match self.told.get(key).map(|before| before.tier.clone()) {
            None => {
                self.told.insert(key, place.clone());
                self.push(Step::Stored { key, place });
            }
            Some(from) if from != place.tier => {
                let to = place.tier.clone();
                self.told.insert(key, place);
                self.push(Step::Moved { key, from, to });
            }
            Some(_) => (),
        }
    }

    fn go_dark(&mut self) {
        self.standing = Standing::Dark;
        for key in self.told.children_first() {
            self.remove(key);
        }
        self.held.unshow();
    }

    fn end_number(&self) -> u64 {
        self.first + u64::try_from(self.steps.len()).unwrap_or(u64::MAX)
    }

    /// Keeps a step. The oldest goes when there is no room, and a consumer that has not seen it
    /// will be told everything again.
    fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        while self.steps.len() > self.settings.steps_max {
            for consumer in self.consumers.values_mut() {
                if consumer.fall_behind((&self.steps, self.first), &self.told) {
                    self.counts.behind += 1;
                }
            }
            self.steps.pop_front();
            self.first += 1;
        }
    }
}
