//! What a router gets.

use std::{ops::Deref, slice, sync::Arc};

use kvbridge_schemas::{Cursor, Replica, ReplicaKey, Tier, TierTrust};

/// Every replica of the model, the longest match first, then by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The replicas, also those that must not be matched now: they still serve.
    pub replicas: Vec<ReplicaMatch>,
    /// What to route by when no replica is usable.
    pub fallback: Option<&'static str>,
}

/// How much of the prompt one replica holds. All of it is of one published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaMatch {
    /// The replica's one name.
    pub key: ReplicaKey,
    /// Its parts.
    pub replica: Arc<Replica>,
    /// What may be believed, after withdrawals.
    pub trust: TierTrust,
    /// Whether the match may be used. If not, the numbers are zero and say nothing.
    pub usable: bool,
    /// Why trust is what it is, or why the replica cannot be compared (`no_content`, `block_size`).
    pub reason: &'static str,
    /// Tokens per block of this match; absent while the replica's view has no block that can match.
    pub block_size: Option<u32>,
    /// The longest prefix over the tiers that count, in blocks.
    pub matched_blocks: u64,
    /// The same in tokens.
    pub matched_tokens: u64,
    /// How many tokens behind these it may hold as well, by what routers said that it computed: a
    /// guess, and 0 unless asked for with [`Index::speculate`](super::Index::speculate).
    pub speculative_tokens: u64,
    /// Cumulative: each entry is the longest prefix in which every block is in that tier or in one
    /// of those before it.
    pub by_tier: ByTier,
    /// Which published version this is.
    pub as_of: AsOf,
}

/// What a replica matches, tier by tier: a list, most often of one, which takes no memory of its
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByTier(Entries);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entries {
    One([TierMatch; 1]),
    Many(Vec<TierMatch>),
}

impl Default for ByTier {
    fn default() -> ByTier {
        ByTier(Entries::Many(Vec::new()))
    }
}

impl Deref for ByTier {
    type Target = [TierMatch];

    fn deref(&self) -> &[TierMatch] {
        match &self.0 {
            Entries::One(one) => one,
            Entries::Many(many) => many,
        }
    }
}

impl FromIterator<TierMatch> for ByTier {
    fn from_iter<I: IntoIterator<Item = TierMatch>>(entries: I) -> ByTier {
        let mut entries = entries.into_iter();
        match (entries.next(), entries.next()) {
            (Some(one), None) => ByTier(Entries::One([one])),
            (first, second) => {
                ByTier(Entries::Many(first.into_iter().chain(second).chain(entries).collect()))
            }
        }
    }
}

impl<'a> IntoIterator for &'a ByTier {
    type Item = &'a TierMatch;
    type IntoIter = slice::Iter<'a, TierMatch>;

    fn into_iter(self) -> slice::Iter<'a, TierMatch> {
        self.iter()
    }
}

/// The longest prefix over the tiers up to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierMatch {
    /// The last tier added.
    pub tier: Tier,
    /// In blocks.
    pub blocks: u64,
    /// In tokens.
    pub tokens: u64,
}

/// Which version an answer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// Every batch of its epoch below its seq is in.
    pub cursor: Cursor,
    /// When it was published, unix ms by the publisher's clock.
    pub at_ms: u64,
}
