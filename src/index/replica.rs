//! One replica in the index: its tree, the version it is of, and withdrawals that overtake both.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use kvbridge_schemas::{Replica, ReplicaKey, Tier, TierTrust, Trust};

use super::{
    AsOf, BackfillMode, BackfillTerms, Backfilled, Generation, Prompt, Published, Query,
    QueryError, ReplicaMatch, TierMatch,
    query::PromptHashes,
    speculation::{self, Speculation},
    tree::{Tree, Window},
};
use crate::{
    recovery::Tick,
    view::{Delta, namespace},
};

/// A writer died half-way through a batch: the tree is not a version of anything.
const REASON_FAULT: &str = "index_fault";
/// The engine sends hashes without tokens.
const REASON_NO_CONTENT: &str = "no_content";
/// The prompt is told in a block size that this replica does not use.
pub const REASON_BLOCK_SIZE: &str = "block_size";

pub(super) struct Entry {
    pub(super) key: ReplicaKey,
    replica: Arc<Replica>,
    /// The generation in force. Written after `reason`, so that who sees it sees its reason or a
    /// later one.
    generation: AtomicU64,
    /// Why the last withdrawal happened. Also makes withdrawals of one replica take turns.
    reason: Mutex<&'static str>,
    body: RwLock<Body>,
    /// Taken while the body is held, never the other way round.
    speculation: Mutex<Option<Speculation>>,
}

/// What changes together: a reader sees all of a batch with its version, or nothing of it.
pub(super) struct Body {
    pub(super) tree: Tree,
    pub(super) published: Published,
}

/// What the trust of one version lets a query use.
struct Terms {
    trust: TierTrust,
    reason: &'static str,
    tiers: Vec<Tier>,
}

impl Entry {
    pub(super) fn new(key: ReplicaKey, replica: Replica) -> Entry {
        let published = Published::nothing();
        Entry {
            key,
            replica: Arc::new(replica),
            generation: AtomicU64::new(published.generation.0),
            reason: Mutex::new(published.reason),
            body: RwLock::new(Body { tree: Tree::default(), published }),
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

    /// Applies deltas in one step. A body that a dead writer left half-changed stays as it is, and
    /// unusable, until it is replaced.
    pub(super) fn apply(&self, deltas: &[Delta], published: Published) {
        let Ok(mut body) = self.body.write() else { return };
        let mut speculation = self.speculation();
        for delta in deltas {
            if let Some(speculation) = &mut *speculation {
                speculation.follow(delta, &body.tree, published.trust);
            }
            body.tree.apply(delta);
        }
        body.published = published;
    }

    /// Puts a new body in and returns the old one, to be freed when no lock is held.
    pub(super) fn replace(&self, new: Body) -> Body {
        let mut body = self.body.write().unwrap_or_else(PoisonError::into_inner);
        self.body.clear_poison();
        *self.speculation() = None;
        std::mem::replace(&mut *body, new)
    }

    /// This replica's part of an answer. Adds the block sizes it uses to `used`.
    pub(super) fn answer(
        &self,
        query: &Query<'_>,
        hashes: &mut PromptHashes<'_>,
        used: &mut BTreeSet<u32>,
    ) -> ReplicaMatch {
        let Ok(body) = self.body.read() else {
            return self.unusable(&Published::nothing(), TierTrust::default(), REASON_FAULT);
        };
        let Body { tree, published } = &*body;
        used.extend(tree.windows().map(|window| window.block_size));
        let found = self.compare(query, hashes, tree, published);
        // Asked last, so that a withdrawal during the walk still counts.
        match self.withdrawn(published) {
            Some(reason) => self.unusable(published, TierTrust::default(), reason),
            None => found,
        }
    }

    /// Takes what a router says was computed. See [`Index::backfill`](super::Index::backfill).
    pub(super) fn backfill(
        &self,
        query: &Query<'_>,
        terms: BackfillTerms,
    ) -> Result<Backfilled, QueryError> {
        if terms.mode == BackfillMode::Off {
            return Ok(Backfilled::Off);
        }
        let (mut hashes, mut used) = (PromptHashes::new(query.prompt), BTreeSet::new());
        let held = self.answer(&lowered(query), &mut hashes, &mut used);
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
        let windows =
            self.body.read().map_or_else(|_| Vec::new(), |it| it.tree.windows().collect());
        let window = speculation::window(windows.into_iter(), told);
        let contents = hashes.of(window).unwrap_or_default();
        let mut guessed = self.speculation();
        let speculation = match &mut *guessed {
            Some(speculation) if speculation.window == window => speculation,
            other => other.insert(Speculation::new(window)),
        };
        let sequence = (namespace(query.lora, query.salt), contents);
        let held = in_blocks(held.matched_tokens, window);
        let (blocks, evicted) = speculation.note(terms.now, sequence, held, terms.blocks_max);
        Ok(Backfilled::Taken { blocks, evicted })
    }

    /// Tokens of the prompt that are held, however little that is believed, or guessed.
    pub(super) fn speculate(
        &self,
        query: &Query<'_>,
        now: Tick,
        hashes: &mut PromptHashes<'_>,
    ) -> u64 {
        if self.speculation().as_ref().is_none_or(Speculation::is_empty) {
            return 0;
        }
        let held = self.answer(&lowered(query), hashes, &mut BTreeSet::new()).matched_tokens;
        let mut guessed = self.speculation();
        let Some(speculation) = &mut *guessed else { return 0 };
        let window = speculation.window;
        let Some(contents) = hashes.of(window) else { return 0 };
        let sequence = (namespace(query.lora, query.salt), contents);
        let depth = speculation.depth(now, sequence, in_blocks(held, window));
        u64::try_from(depth).unwrap_or(u64::MAX).saturating_mul(u64::from(window.block_size))
    }

    // Guesses that a panic left half-changed are guesses still.
    fn speculation(&self) -> MutexGuard<'_, Option<Speculation>> {
        self.speculation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compare(
        &self,
        query: &Query<'_>,
        hashes: &mut PromptHashes<'_>,
        tree: &Tree,
        published: &Published,
    ) -> ReplicaMatch {
        let terms = Terms::of(query, tree, published);
        if terms.tiers.is_empty() {
            return self.unusable(published, terms.trust, terms.reason);
        }
        if published.no_content {
            return self.unusable(published, terms.trust, REASON_NO_CONTENT);
        }
        let windows: Vec<Window> = tree.windows().collect();
        let told_otherwise = match query.prompt {
            Prompt::Tokens(_) => false,
            Prompt::Content { block_size, .. } => {
                !windows.is_empty() && windows.iter().all(|window| window.block_size != block_size)
            }
        };
        if told_otherwise {
            return self.unusable(published, terms.trust, REASON_BLOCK_SIZE);
        }
        let root = namespace(query.lora, query.salt);
        let mut best = self.matched(published, &terms, None, &|_| 0);
        for window in windows {
            let Some(contents) = hashes.of(window) else { continue };
            let blocks = |tiers: &[Tier]| tree.walk(root, contents, window, tiers);
            let found = self.matched(published, &terms, Some(window.block_size), &blocks);
            if best.block_size.is_none() || found.matched_tokens > best.matched_tokens {
                best = found;
            }
        }
        best
    }

    fn matched(
        &self,
        published: &Published,
        terms: &Terms,
        block_size: Option<u32>,
        blocks: &dyn Fn(&[Tier]) -> u64,
    ) -> ReplicaMatch {
        let size = u64::from(block_size.unwrap_or(0));
        let mut by_tier = Vec::with_capacity(terms.tiers.len());
        for (i, tier) in terms.tiers.iter().enumerate() {
            let blocks = blocks(terms.tiers.get(..=i).unwrap_or_default());
            by_tier.push(TierMatch { tier: tier.clone(), blocks, tokens: blocks * size });
        }
        ReplicaMatch {
            usable: true,
            block_size,
            matched_blocks: by_tier.last().map_or(0, |all| all.blocks),
            matched_tokens: by_tier.last().map_or(0, |all| all.tokens),
            by_tier,
            ..self.unusable(published, terms.trust, terms.reason)
        }
    }

    fn unusable(
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
            by_tier: Vec::new(),
            as_of: AsOf { cursor: published.cursor, at_ms: published.at_ms },
        }
    }

    /// The reason, if the version's trust was withdrawn after it was decided.
    fn withdrawn(&self, published: &Published) -> Option<&'static str> {
        if self.generation() == published.generation {
            return None;
        }
        Some(*self.reason.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Terms {
    fn of(query: &Query<'_>, tree: &Tree, published: &Published) -> Terms {
        let accept = query.accept.max(Trust::LowerBound);
        let trust = published.trust;
        let proven = |tier: &Tier| !is_hint(tier, published) && trust.of(tier) >= accept;
        // A hint adds to what is proven; alone it is nobody's word.
        let mut tiers: Vec<Tier> = Vec::new();
        if proven(&Tier::Device) || proven(&Tier::Host) {
            let held: BTreeSet<&Tier> = tree.tiers().chain([&Tier::Device]).collect();
            let counts = |tier: &Tier| proven(tier) || (query.hints && is_hint(tier, published));
            tiers = held.into_iter().filter(|tier| counts(tier)).cloned().collect();
            if tiers.is_empty() {
                tiers.push(Tier::Host); // proven to hold nothing
            }
        }
        Terms { trust, reason: published.reason, tiers }
    }
}

/// The same question to whatever may be believed at all.
fn lowered<'a>(query: &Query<'a>) -> Query<'a> {
    Query { accept: Trust::LowerBound, hints: false, ..*query }
}

fn in_blocks(tokens: u64, window: Window) -> usize {
    usize::try_from(tokens / u64::from(window.block_size.max(1))).unwrap_or(usize::MAX)
}

fn is_hint(tier: &Tier, published: &Published) -> bool {
    tier.is_hint() || (*tier == Tier::Host && published.host_is_hint)
}
