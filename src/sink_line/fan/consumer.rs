//! One consumer: how far it has read, and what it is owed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvbridge_schemas::Tier;

use super::{
    Step,
    tree::{Place, Tree, parents_first},
};
use crate::{recovery::Tick, view::Described};

/// An event as consumers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FanEvent {
    /// The first of all.
    Created,
    /// Blocks that follow one another.
    Stored {
        /// What comes before the first.
        parent: Option<u64>,
        /// Where they are.
        tier: Tier,
        /// The blocks.
        blocks: Vec<(u64, Arc<Described>)>,
    },
    /// A block is in another tier.
    Moved {
        /// Which.
        key: u64,
        /// Where it was.
        from: Tier,
        /// Where it is.
        to: Tier,
    },
    /// Blocks are gone.
    Removed(Vec<u64>),
}

/// What a consumer is told at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanAnswer {
    /// The number of the first event; the others follow.
    pub first_id: u64,
    /// The events.
    pub events: Vec<FanEvent>,
    /// There is more to ask for.
    pub more: bool,
}

/// What is owed to a consumer beside the steps that are kept.
#[derive(Debug)]
enum Owed {
    Nothing,
    /// These, then the kept steps.
    Steps(VecDeque<Step>),
    /// That all of these are gone, then the whole view. Each with its parent.
    Again(BTreeMap<u64, Option<u64>>),
}

#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) asked_at: Tick,
    next_id: u64,
    /// The number of the next step.
    at: u64,
    owed: Owed,
}

type Kept<'a> = (&'a VecDeque<Step>, u64);

impl Consumer {
    /// One that comes when all that was told is `told`.
    pub(super) fn new(now: Tick, told: &Tree, end: u64) -> Consumer {
        Consumer { asked_at: now, next_id: 0, at: end, owed: Owed::Steps(whole(told).collect()) }
    }

    /// Makes what a consumer that fell behind is owed, now that it asks.
    pub(super) fn begin_again(&mut self, told: &Tree, end: u64) {
        if let Owed::Again(known) = &self.owed {
            let gone = parents_first(known).into_iter().rev().map(|key| {
                let parent = known.get(&key).copied().flatten();
                Step::Removed { key, parent }
            });
            self.owed = Owed::Steps(gone.chain(whole(told)).collect());
            self.at = end;
        }
    }

    /// The oldest step goes: whether the consumer needed it.
    pub(super) fn fall_behind(&mut self, (steps, first): Kept<'_>, told: &Tree) -> bool {
        if self.at > first || matches!(self.owed, Owed::Again(_)) {
            return false;
        }
        let mut known = told.parents();
        let owed = match &self.owed {
            Owed::Steps(owed) => Some(owed.iter().rev()),
            Owed::Nothing | Owed::Again(_) => None,
        };
        // From the last step back to the first that it has not seen.
        for step in steps.iter().rev().chain(owed.into_iter().flatten()) {
            match step {
                Step::Stored { key, .. } => drop(known.remove(key)),
                Step::Removed { key, parent } => drop(known.insert(*key, *parent)),
                Step::Moved { .. } => (),
            }
        }
        self.owed = Owed::Again(known);
        true
    }

    /// As many events as one answer takes.
    pub(super) fn answer(&mut self, (steps, first): Kept<'_>, blocks_max: usize) -> FanAnswer {
        let mut answer = FanAnswer { first_id: self.next_id, events: Vec::new(), more: false };
        if self.next_id == 0 {
            answer.events.push(FanEvent::Created);
        }
        let mut last = None;
        for _ in 0..blocks_max {
            let Some(step) = self.next((steps, first)) else { break };
            add(&mut answer.events, step, &mut last);
        }
        self.next_id += u64::try_from(answer.events.len()).unwrap_or(u64::MAX);
        answer.more = matches!(&self.owed, Owed::Steps(owed) if !owed.is_empty())
            || self.at < first + u64::try_from(steps.len()).unwrap_or(0);
        answer
    }

    fn next(&mut self, (steps, first): Kept<'_>) -> Option<Step> {
        if let Owed::Steps(owed) = &mut self.owed {
            if let Some(step) = owed.pop_front() {
                return Some(step);
            }
            self.owed = Owed::Nothing;
        }
        let at = usize::try_from(self.at.checked_sub(first)?).ok()?;
        let step = steps.get(at)?.clone();
        self.at += 1;
        Some(step)
    }
}

fn whole(told: &Tree) -> impl Iterator<Item = Step> + '_ {
    told.parents_first().into_iter().filter_map(|key| {
        let place = told.get(key)?.clone();
        Some(Step::Stored { key, place })
    })
}

/// Adds a step to the event before it where both are one. `last` is the last block stored.
fn add(events: &mut Vec<FanEvent>, step: Step, last: &mut Option<u64>) {
    let before = events.last_mut();
    match step {
        Step::Stored { key, place: Place { parent, tier, described } } => {
            let follows = parent.is_some() && parent == *last;
            *last = Some(key);
            match before {
                Some(FanEvent::Stored { tier: same, blocks, .. }) if follows && *same == tier => {
                    blocks.push((key, described));
                }
                _ => events.push(FanEvent::Stored { parent, tier, blocks: vec![(key, described)] }),
            }
        }
        Step::Removed { key, .. } => {
            *last = None;
            match before {
                Some(FanEvent::Removed(keys)) => keys.push(key),
                _ => events.push(FanEvent::Removed(vec![key])),
            }
        }
        Step::Moved { key, from, to } => {
            *last = None;
            events.push(FanEvent::Moved { key, from, to });
        }
    }
}
