//! What routers say that a replica computed: guesses, kept apart from its view.
//!
//! A guess is a block at its place in a sequence. It is believed for a time that is set and no
//! longer, because nobody says when the engine drops it; what the engine's events say of the same
//! content replaces it at once. It never becomes a match: answers show it in a field of its own.

use std::collections::BTreeSet;

use kvbridge_schemas::{TierTrust, Trust};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    BackfillTerms, Prompt, Query, QueryError, ReplicaMatch, ReplicaSlot, model::Model,
    page::Window, query::PromptHashes, replica::Entry, tree::Tree,
};
use crate::{
    recent::Recent,
    recovery::Tick,
    view::{Delta, StripChange, namespace},
};

/// How long a guess is believed, if nothing else is set. Shorter: a conversation whose user thinks
/// is sent elsewhere. Longer: what a busy engine dropped meanwhile is believed still.
pub const SPECULATIVE_TTL_MS: u64 = 120_000;

/// Guesses of one replica, where its pool is larger or not known. Too small: long contexts do not
/// fit. Too large: memory, about 150 bytes each, for a replica that sends no events. Full: the one
/// told longest ago goes, of one prompt the last block first, as engines do it.
pub const SPECULATIVE_BLOCKS_MAX: usize = 131_072;

/// Tokens of a guessed block while the replica has shown none of its own.
const BLOCK_SIZE: u32 = 16;

/// When guesses are taken and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackfillMode {
    /// Never.
    Off,
    /// While a replica's trust is less than exact.
    #[default]
    Auto,
    /// Always. A route uses them below exact trust alone all the same.
    Always,
}

impl BackfillMode {
    /// Whether guesses count beside that trust.
    pub fn takes(self, trust: TierTrust) -> bool {
        match self {
            BackfillMode::Off => false,
            BackfillMode::Auto => trust.device < Trust::Exact,
            BackfillMode::Always => true,
        }
    }
}

/// What came of telling what a replica computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfilled {
    /// It was taken.
    Taken {
        /// Blocks that are guessed now.
        blocks: u64,
        /// Guesses that made room for them.
        evicted: u64,
    },
    /// Nothing is taken at all.
    Off,
    /// The replica's own events are believed.
    Exact,
}

/// The guesses of one replica. All have one window: blocks of two sizes do not compare.
pub(super) struct Speculation {
    window: Window,
    ttl_ms: u64,
    /// By place: the hash of all contents from the root on. The value is the block's own content.
    blocks: Recent<u64, u64>,
    /// Places by content, to find what an event speaks of.
    places: BTreeSet<(u64, u64)>,
}

impl Speculation {
    fn new(window: Window, ttl_ms: u64) -> Speculation {
        let blocks = Recent::new(SPECULATIVE_BLOCKS_MAX, ttl_ms);
        Speculation { window, ttl_ms, blocks, places: BTreeSet::new() }
    }

    /// Guesses the blocks of a prompt but the first `held`, which the view has. Returns how many
    /// were noted and how many had to go for them.
    fn note(
        &mut self,
        now: Tick,
        (root, contents): (u64, &[u64]),
        held: usize,
        blocks_max: usize,
    ) -> (u64, u64) {
        self.expire(now);
        let max = blocks_max.min(SPECULATIVE_BLOCKS_MAX);
        self.blocks.set_max(max);
        let places = places(root, contents).zip(contents).take(held.saturating_add(max));
        let new: Vec<(u64, u64)> = places.skip(held).map(|(at, content)| (at, *content)).collect();
        let (mut noted, mut evicted) = (0, 0);
        // The last block first: without the first ones the rest is of no use.
        for (place, content) in new.into_iter().rev() {
            self.blocks.note(now, place, content);
            self.places.insert((content, place));
            noted += 1;
            evicted += self.expire(now);
        }
        (noted, evicted)
    }

    /// How many blocks of a prompt are held or guessed, from the first on; `held` are held.
    fn depth(&mut self, now: Tick, (root, contents): (u64, &[u64]), held: usize) -> usize {
        self.expire(now);
        let is_there =
            |(at, place): &(usize, u64)| *at < held || self.blocks.get(now, place).is_some();
        places(root, contents).enumerate().take_while(is_there).count()
    }

    /// An event is about to change the view. Under trust a store is as good as the guess; without
    /// any the guess stays, because the view may not be used. A removal ends the guess always.
    pub(super) fn follow(&mut self, delta: &Delta, (tree, column): (&Tree, u32), trust: TierTrust) {
        match delta {
            Delta::Linked { content, .. } => {
                if trust.device > Trust::None {
                    self.forget(*content);
                }
            }
            Delta::Unlinked { node, .. } => {
                if let Some(content) = tree.content(column, node) {
                    self.forget(content);
                }
            }
            Delta::Strip { number, change } => {
                let (bits, stored) = match change {
                    StripChange::Grown { blocks, .. } => {
                        if trust.device > Trust::None {
                            blocks.iter().for_each(|(_, content)| self.forget(*content));
                        }
                        return;
                    }
                    StripChange::Parted => return,
                    StripChange::Refilled { bits } => (*bits, true),
                    StripChange::Thinned { bits, .. } => (*bits, false),
                };
                if !stored || trust.device > Trust::None {
                    let contents = tree.contents_in(column, *number, bits);
                    contents.into_iter().for_each(|content| self.forget(content));
                }
            }
            Delta::Cleared => *self = Speculation::new(self.window, self.ttl_ms),
        }
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn forget(&mut self, content: u64) {
        let of_content = self.places.range((content, 0)..=(content, u64::MAX));
        let gone: Vec<(u64, u64)> = of_content.copied().collect();
        for (content, place) in gone {
            self.places.remove(&(content, place));
            self.blocks.remove(&place);
        }
    }

    /// Takes out what is old or too much.
    fn expire(&mut self, now: Tick) -> u64 {
        let mut count = 0;
        while let Some((place, content)) = self.blocks.pop_old(now) {
            self.places.remove(&(content, place));
            count += 1;
        }
        count
    }
}

impl Model {
    /// Takes what a router says was computed. See [`Index::backfill`](super::Index::backfill).
    pub(super) fn backfill(
        &self,
        (slot, entry): (ReplicaSlot, &Entry),
        query: &Query<'_>,
        terms: BackfillTerms,
    ) -> Result<Backfilled, QueryError> {
        if terms.mode == BackfillMode::Off {
            return Ok(Backfilled::Off);
        }
        let (mut hashes, mut used) = (PromptHashes::new(query.prompt), BTreeSet::new());
        let held = self.answer(Some(slot), &lowered(query), &mut hashes, &mut used);
        let Some(held) = held.first() else { return Err(QueryError::UnknownModel) };
        if !terms.mode.takes(held.trust) {
            return Ok(Backfilled::Exact);
        }
        let told = match query.prompt {
            Prompt::Tokens(_) => None,
            Prompt::Content { block_size, .. } => Some(block_size),
        };
        if told.is_some_and(|size| !used.is_empty() && !used.contains(&size)) {
            return Err(QueryError::BlockSize { used: used.into_iter().collect() });
        }
        let window = window(self.windows(slot).into_iter(), told);
        let contents = hashes.of(window).unwrap_or_default();
        let mut guessed = entry.speculation();
        let speculation = match &mut *guessed {
            Some(speculation) if speculation.window == window => speculation,
            other => other.insert(Speculation::new(window, terms.ttl_ms)),
        };
        let sequence = (namespace(query.lora, query.salt), contents);
        let held = in_blocks(held.matched_tokens, window);
        let (blocks, evicted) = speculation.note(terms.now, sequence, held, terms.blocks_max);
        Ok(Backfilled::Taken { blocks, evicted })
    }

    /// Tokens of the prompt that are held, however little that is believed, or guessed.
    pub(super) fn speculate(
        &self,
        (slot, entry): (ReplicaSlot, &Entry),
        query: &Query<'_>,
        now: Tick,
        hashes: &mut PromptHashes<'_>,
    ) -> u64 {
        if entry.speculation().as_ref().is_none_or(Speculation::is_empty) {
            return 0;
        }
        let held = self.answer(Some(slot), &lowered(query), hashes, &mut BTreeSet::new());
        let held = held.first().map_or(0, |found: &ReplicaMatch| found.matched_tokens);
        let mut guessed = entry.speculation();
        let Some(speculation) = &mut *guessed else { return 0 };
        let window = speculation.window;
        let Some(contents) = hashes.of(window) else { return 0 };
        let sequence = (namespace(query.lora, query.salt), contents);
        let depth = speculation.depth(now, sequence, in_blocks(held, window));
        u64::try_from(depth).unwrap_or(u64::MAX).saturating_mul(u64::from(window.block_size))
    }
}

/// The same question to whatever may be believed at all.
fn lowered<'a>(query: &Query<'a>) -> Query<'a> {
    Query { accept: Trust::LowerBound, hints: false, ..*query }
}

fn in_blocks(tokens: u64, window: Window) -> usize {
    usize::try_from(tokens / u64::from(window.block_size.max(1))).unwrap_or(usize::MAX)
}

/// The window of guesses for a replica whose blocks have these: told in that size, or in tokens.
fn window(mut of_view: impl Iterator<Item = Window>, told: Option<u32>) -> Window {
    let fits = |window: &Window| told.is_none_or(|size| window.block_size == size);
    let block_size = told.unwrap_or(BLOCK_SIZE);
    of_view.find(fits).unwrap_or(Window { block_size, bigram: false })
}

/// The place of each block: who shares it shares everything before it.
fn places(root: u64, contents: &[u64]) -> impl Iterator<Item = u64> + '_ {
    contents.iter().scan(root, |place, content| {
        *place = xxh3_64_with_seed(&content.to_le_bytes(), *place);
        Some(*place)
    })
}
