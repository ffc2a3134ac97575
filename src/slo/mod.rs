//! PURE. What routing was worth: what was predicted of a request against what its engine had.
//!
//! Routers report of a request that was served how long its input was and how much of it the
//! engine took from its cache. A conversation has turns; what an earlier turn computed need not be
//! computed again, and where it is, this says why as far as that is known:
//!
//! - `scattered`: the turn before was served by another replica.
//! - `evicted`: by the same one, and the prediction knew already that those blocks are gone.
//! - `unknown`: by the same one, and nothing explains it: the prediction had them, or there is
//!   none.

mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use share::Share;

use crate::{recent::Recent, recovery::Tick};

/// Conversations remembered. Too few: follow-up turns look like first ones. Too many: memory, about
/// 150 bytes each. Full: the one that was silent longest is forgotten.
pub const CONVERSATIONS_MAX: usize = 65_536;

/// How long a conversation may be silent. After it nobody expects its blocks to be there still.
pub const CONVERSATION_TTL_MS: u64 = 3_600_000;

/// Models of which shares are kept. Whoever reports has shown that a replica serves the model, so
/// this is reached by none; above it a new model's turns are counted and have no share.
pub const MODELS_MAX: usize = 1024;

/// Where a prediction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// What a match or route answered before the request was sent.
    Routed,
    /// What the index has once the request was served: too much wherever the engine has announced
    /// the request's own blocks meanwhile.
    Late,
    /// There is none: nobody told one, and the replica may not be matched.
    None,
}

impl Prediction {
    /// All of them.
    pub const ALL: [Prediction; 3] = [Prediction::Routed, Prediction::Late, Prediction::None];

    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Prediction::Routed => "routed",
            Prediction::Late => "late",
            Prediction::None => "none",
        }
    }
}

/// A request that was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which replica served it; any number that is the same for the same one.
    pub replica: u64,
    /// Tokens of its input.
    pub input_tokens: u64,
    /// Of these, what the engine had.
    pub cached_tokens: u64,
    /// What was predicted before it was sent.
    pub predicted_tokens: Option<u64>,
}

/// What a turn of a conversation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// None was remembered before it.
    First,
    /// One was, and at least half of the input was cached.
    FollowUp,
    /// One was, and less than half of the input was cached.
    Scattered,
}

impl Turn {
    /// All of them.
    pub const ALL: [Turn; 3] = [Turn::First, Turn::FollowUp, Turn::Scattered];

    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Turn::First => "first",
            Turn::FollowUp => "follow_up",
            Turn::Scattered => "scattered",
        }
    }
}

/// Tokens of an earlier turn that were computed again, by reason. Blocks are cached whole, so up to
/// one block less than the earlier turn had is counted too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reprefilled {
    /// The turn before was served elsewhere.
    pub scattered: u64,
    /// The blocks were known to be gone.
    pub evicted: u64,
    /// Nothing explains it.
    pub unknown: u64,
}

/// The conversations of late, and how many of their turns were scattered.
pub struct Conversations {
    turns: Recent<u64, Last>,
    shares: BTreeMap<String, Share>,
}

/// The last turn of a conversation.
struct Last {
    replica: u64,
    input_tokens: u64,
}

impl Default for Conversations {
    fn default() -> Conversations {
        let turns = Recent::new(CONVERSATIONS_MAX, CONVERSATION_TTL_MS);
        Conversations { turns, shares: BTreeMap::new() }
    }
}

impl Conversations {
    /// Notes a turn. `conversation` is a hash that tells models apart too.
    pub fn note(
        &mut self,
        now: Tick,
        model: &str,
        conversation: u64,
        served: Served,
    ) -> (Turn, Reprefilled) {
        let Served { replica, input_tokens, cached_tokens, .. } = served;
        let (turn, again) = match self.turns.get(now, &conversation) {
            None => (Turn::First, Reprefilled::default()),
            Some(last) => {
                let is_scattered = cached_tokens.saturating_mul(2) < input_tokens;
                let turn = if is_scattered { Turn::Scattered } else { Turn::FollowUp };
                (turn, reprefilled(last, served))
            }
        };
        self.turns.note(now, conversation, Last { replica, input_tokens });
        while self.turns.pop_old(now).is_some() {}
        if turn != Turn::First {
            self.share(now, model, turn == Turn::Scattered);
        }
        (turn, again)
    }

    fn share(&mut self, now: Tick, model: &str, is_scattered: bool) {
        if let Some(share) = self.shares.get_mut(model) {
            share.add(now, is_scattered);
        } else if self.shares.len() < MODELS_MAX {
            self.shares.entry(model.to_owned()).or_default().add(now, is_scattered);
        }
    }

    /// Of the follow-up turns of late those that were scattered, by model.
    pub fn scatter_ratios(&self, now: Tick) -> impl Iterator<Item = (&str, f64)> {
        self.shares.iter().map(move |(model, share)| (model.as_str(), share.ratio(now)))
    }

    /// Forgets models that are not served any more.
    pub fn keep_models(&mut self, is_served: impl Fn(&str) -> bool) {
        self.shares.retain(|model, _| is_served(model));
    }
}

/// What of the last turn's input was computed again.
fn reprefilled(last: &Last, served: Served) -> Reprefilled {
    let had = last.input_tokens.min(served.input_tokens);
    let again = had.saturating_sub(served.cached_tokens);
    if last.replica != served.replica {
        return Reprefilled { scattered: again, ..Reprefilled::default() };
    }
    let known_gone = |predicted: u64| had.saturating_sub(predicted.max(served.cached_tokens));
    let evicted = served.predicted_tokens.map_or(0, known_gone);
    Reprefilled { scattered: 0, evicted, unknown: again - evicted }
}
