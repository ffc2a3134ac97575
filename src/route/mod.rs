//! PURE. Which replica a request should go to: what it holds of the prompt against how busy it is.
//!
//! ```text
//! utilisation  u = load / capacity
//! load term    l = (u - lowest u) * min(1, highest u - lowest u)
//! match term   m = matched tokens / prompt tokens, 0 for a replica that may not be matched
//! score          = m - l; the highest wins
//! ```
//!
//! Both terms are parts of a whole: `m` is the part of the prefill that is saved, `u` the part of
//! the replica that is in use. A constant in place of the capacity makes load count twice as much
//! on a fleet that is twice as large, until no conversation returns to its replica. The spread in
//! the load term keeps small differences of a balanced fleet from doing the same.
//!
//! A replica below exact trust may have guesses instead: blocks that routers say it computed, see
//! [`Index::backfill`](crate::index::Index::backfill). Without them a replica without trust has its
//! load term alone. It is never left out: its cache is unknown, not its health.

mod judge;
#[cfg(test)]
mod tests;

use kvbridge_schemas::{ReplicaKey, Trust};

pub use judge::choose;

use crate::index::{Answer, ReplicaMatch};

/// What is known of one replica that could serve the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Work in flight, in any unit that all candidates share: requests, tokens.
    pub load: u32,
    /// How much of it the replica is made for, in the same unit, above 0. Absent: the median of the
    /// others'; absent everywhere: the mean load, as if the fleet were just full.
    pub capacity: Option<u32>,
    /// Tokens of the prompt it is proven to hold, or below exact trust guessed to; absent = nothing
    /// may be said of it.
    pub matched_tokens: Option<u64>,
}

impl Candidate {
    /// What an index says of a replica, with its load.
    pub fn found(answer: &Answer, key: &ReplicaKey, load: u32, capacity: Option<u32>) -> Candidate {
        let found = answer.replicas.iter().find(|found| found.key == *key);
        Candidate { load, capacity, matched_tokens: found.and_then(tokens) }
    }
}

/// A proven match as it is; below exact trust with what is guessed behind it.
fn tokens(found: &ReplicaMatch) -> Option<u64> {
    let proven = found.usable.then_some(found.matched_tokens);
    match found.speculative_tokens {
        guessed if guessed > 0 && found.trust.device < Trust::Exact => {
            Some(proven.unwrap_or(0).saturating_add(guessed))
        }
        _ => proven,
    }
}

/// What decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The longest match won.
    Prefix,
    /// All matches are equal, or the longest is of a replica that is too busy.
    Load,
    /// Others have the same score: the less busy of two drawn ones.
    Tie,
    /// No candidate may be matched: the least busy one.
    Fallback,
}

impl By {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            By::Prefix => "prefix",
            By::Load => "load",
            By::Tie => "tie",
            By::Fallback => "fallback",
        }
    }
}

/// Why a candidate was chosen or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request goes there.
    Chosen,
    /// The same score; another one was drawn.
    TieLost,
    /// It holds less of the prompt than the chosen one.
    ShorterMatch,
    /// It is busier than the chosen one, by more than its match is worth.
    Busier,
    /// Both.
    ShorterAndBusier,
}

impl Verdict {
    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Chosen => "chosen",
            Verdict::TieLost => "tie_lost",
            Verdict::ShorterMatch => "shorter_match",
            Verdict::Busier => "busier",
            Verdict::ShorterAndBusier => "shorter_match_and_busier",
        }
    }
}

/// How one candidate was judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Load by capacity; above 1 work waits.
    pub utilisation: f64,
    /// What its match is worth, 0 to 1.
    pub match_term: f64,
    /// What its load costs, from 0.
    pub load_term: f64,
    /// The one less the other.
    pub score: f64,
    /// What came of it.
    pub verdict: Verdict,
}

/// Where the request goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Position of the chosen candidate.
    pub chosen: usize,
    /// What decided.
    pub by: By,
    /// All of them, in the order they came.
    pub judged: Vec<Judged>,
}
