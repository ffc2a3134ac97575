//! A question's answer: for each replica what its trust lets it use, and how far that goes.

use std::{collections::BTreeSet, ops::Range};

use kvbridge_schemas::{Tier, TierTrust, Trust};

use super::{
    Prompt, Published, Query, ReplicaMatch, ReplicaSlot, TierMatch,
    column::Column,
    model::{Member, Model, Shared},
    page::Window,
    query::PromptHashes,
    tree::{DEVICE, Tree},
    walk::{Depths, Wanted},
};
use crate::view::namespace;

/// A writer died half-way through a batch.
const REASON_FAULT: &str = "index_fault";
/// The engine sends hashes without tokens.
const REASON_NO_CONTENT: &str = "no_content";
/// The prompt is told in a block size that this replica does not use.
pub const REASON_BLOCK_SIZE: &str = "block_size";

/// What a replica's version lets a query use.
struct Terms<'a> {
    slot: ReplicaSlot,
    member: &'a Member,
    column: &'a Column,
    /// Why it cannot be compared, if so.
    refused: Option<&'static str>,
    /// Which of the [`Asked::tiers`].
    tiers: Range<usize>,
}

/// A query to some replicas of one version of a model.
struct Asked<'a> {
    terms: Vec<Terms<'a>>,
    /// For each replica those that count, nearest first.
    tiers: Vec<&'a Tier>,
    /// In use, smallest block size first.
    windows: Vec<Window>,
}

/// What a walk with each window found.
type Walked = Vec<(Window, Depths)>;

impl Model {
    /// The part of an answer of each replica, by key, or of one. Adds the block sizes in use to
    /// `used`.
    pub(super) fn answer(
        &self,
        only: Option<ReplicaSlot>,
        query: &Query<'_>,
        hashes: &mut PromptHashes<'_>,
        used: &mut BTreeSet<u32>,
    ) -> Vec<ReplicaMatch> {
        let (shared, died) = match self.read() {
            Ok(shared) => (shared, false),
            Err(shared) => (shared, true),
        };
        let asked = Asked::new(query, &shared, only, died);
        used.extend(asked.windows.iter().map(|window| window.block_size));
        let walked = asked.walk(query, &shared.tree, hashes);
        asked.terms.iter().map(|terms| terms.answer(&walked, &asked.tiers)).collect()
    }

    /// The matched blocks of all replicas that have any.
    pub(super) fn depths(
        &self,
        query: &Query<'_>,
        hashes: &mut PromptHashes<'_>,
        depths: &mut Vec<(ReplicaSlot, u64)>,
    ) {
        let Ok(shared) = self.read() else { return };
        let asked = Asked::new(query, &shared, None, false);
        let walked = asked.walk(query, &shared.tree, hashes);
        for terms in asked.terms.iter().filter(|terms| terms.refused.is_none()) {
            let withdrawn = terms.member.entry.withdrawn(&terms.member.published).is_some();
            match terms.best(&walked) {
                Some((blocks, ..)) if blocks > 0 && !withdrawn => depths.push((terms.slot, blocks)),
                Some(_) | None => (),
            }
        }
    }

    /// The block sizes of all replicas' blocks, smallest first.
    pub(super) fn block_sizes(&self) -> Vec<u32> {
        let Ok(shared) = self.read() else { return Vec::new() };
        let columns = shared.members.values().filter_map(|it| shared.tree.column(it.column));
        let sizes: BTreeSet<u32> =
            columns.flat_map(|column| column.windows.keys()).map(|it| it.block_size).collect();
        sizes.into_iter().collect()
    }

    /// The windows of a replica's blocks, smallest block size first.
    pub(super) fn windows(&self, slot: ReplicaSlot) -> Vec<Window> {
        let Ok(shared) = self.read() else { return Vec::new() };
        let column = shared.members.get(&slot).map(|member| member.column);
        let column = column.and_then(|column| shared.tree.column(column));
        column.map(|column| column.windows.keys().copied().collect()).unwrap_or_default()
    }
}

impl<'a> Asked<'a> {
    fn new(
        query: &Query<'_>,
        shared: &'a Shared,
        only: Option<ReplicaSlot>,
        died: bool,
    ) -> Asked<'a> {
        let slots = shared.order.iter().filter(|slot| only.is_none_or(|only| only == **slot));
        let capacity = if only.is_none() { shared.order.len() } else { 1 };
        let mut asked = Asked {
            terms: Vec::with_capacity(capacity),
            tiers: Vec::with_capacity(capacity),
            windows: Vec::new(),
        };
        for slot in slots {
            let Some(member) = shared.members.get(slot) else { continue };
            let Some(column) = shared.tree.column(member.column) else { continue };
            let fault = (died || member.faulted).then_some(REASON_FAULT);
            let at = asked.tiers.len();
            let mut terms = Terms { slot: *slot, member, column, refused: fault, tiers: at..at };
            if fault.is_none() {
                terms.weigh(query, &shared.tree, &mut asked.tiers);
                for window in column.windows.keys() {
                    if !asked.windows.contains(window) {
                        asked.windows.push(*window);
                    }
                }
            }
            asked.terms.push(terms);
        }
        asked.windows.sort_unstable();
        asked
    }

    fn walk(&self, query: &Query<'_>, tree: &Tree, hashes: &mut PromptHashes<'_>) -> Walked {
        let width = self.terms.iter().map(|terms| terms.tiers.len()).max().unwrap_or(0);
        let mut wanted = Wanted::nothing(tree.column_count(), width);
        for terms in self.terms.iter().filter(|terms| terms.refused.is_none()) {
            for (number, tier) in self.tiers[terms.tiers.clone()].iter().enumerate() {
                wanted.set(terms.member.column, number, tree.tier_number(tier));
            }
        }
        let root = namespace(query.lora, query.salt);
        let walk = |window: &Window| {
            let contents = hashes.of(*window)?;
            Some((*window, tree.walk(root, contents, *window, &wanted)))
        };
        self.windows.iter().filter_map(walk).collect()
    }
}

impl<'a> Terms<'a> {
    /// Finds out what may be used, and appends the tiers that count.
    fn weigh(&mut self, query: &Query<'_>, tree: &'a Tree, tiers: &mut Vec<&'a Tier>) {
        let published = &self.member.published;
        let accept = query.accept.max(Trust::LowerBound);
        let proven = |tier: &Tier| !is_hint(tier, published) && published.trust.of(tier) >= accept;
        // A hint adds to what is proven; alone it is nobody's word.
        if proven(&Tier::Device) || proven(&Tier::Host) {
            let counts = |tier: &&Tier| proven(tier) || (query.hints && is_hint(tier, published));
            let held = self.column.tiers.keys().filter_map(|number| tree.tier(*number));
            let device = self.column.tiers.get(&DEVICE).is_none().then_some(&Tier::Device);
            tiers.extend(device.into_iter().chain(held).filter(counts));
            if tiers.len() == self.tiers.start {
                tiers.push(&Tier::Host); // proven to hold nothing
            }
        }
        self.tiers.end = tiers.len();
        tiers[self.tiers.clone()].sort_unstable();
        let told_otherwise = match query.prompt {
            Prompt::Tokens(_) => false,
            Prompt::Content { block_size, .. } => {
                let mut windows = self.column.windows.keys();
                !self.column.windows.is_empty() && windows.all(|it| it.block_size != block_size)
            }
        };
        self.refused = if self.tiers.is_empty() {
            Some(published.reason)
        } else if published.no_content {
            Some(REASON_NO_CONTENT)
        } else {
            told_otherwise.then_some(REASON_BLOCK_SIZE)
        };
    }

    /// The longest match in tokens: its blocks, its block size, and what was walked for it. Of
    /// equal ones that in the smaller blocks.
    fn best<'w>(&self, walked: &'w Walked) -> Option<(u64, u32, &'w Depths)> {
        let mut best: Option<(u64, u32, &Depths)> = None;
        for (window, depths) in walked {
            if self.column.windows.get(window).is_none() {
                continue;
            }
            let blocks = depths.of(self.member.column, self.tiers.len().saturating_sub(1));
            let tokens = |blocks: u64, size: u32| blocks * u64::from(size);
            let matched = tokens(blocks, window.block_size);
            if best.is_none_or(|(most, size, _)| matched > tokens(most, size)) {
                best = Some((blocks, window.block_size, depths));
            }
        }
        best
    }

    fn answer(&self, walked: &Walked, tiers: &[&Tier]) -> ReplicaMatch {
        let Member { entry, published, .. } = self.member;
        if self.refused == Some(REASON_FAULT) {
            return entry.unusable(&Published::nothing(), TierTrust::default(), REASON_FAULT);
        }
        // Asked after the walk, so that a withdrawal during it still counts.
        if let Some(reason) = entry.withdrawn(published) {
            return entry.unusable(published, TierTrust::default(), reason);
        }
        if let Some(reason) = self.refused {
            return entry.unusable(published, published.trust, reason);
        }
        let best = self.best(walked);
        let size = best.map_or(0, |(_, size, _)| u64::from(size));
        let step = |(number, tier): (usize, &&Tier)| {
            let blocks = best.map_or(0, |(.., depths)| depths.of(self.member.column, number));
            TierMatch { tier: (*tier).clone(), blocks, tokens: blocks * size }
        };
        let by_tier: Vec<TierMatch> =
            tiers[self.tiers.clone()].iter().enumerate().map(step).collect();
        ReplicaMatch {
            usable: true,
            block_size: best.map(|(_, size, _)| size),
            matched_blocks: by_tier.last().map_or(0, |all| all.blocks),
            matched_tokens: by_tier.last().map_or(0, |all| all.tokens),
            by_tier,
            ..entry.unusable(published, published.trust, published.reason)
        }
    }
}

fn is_hint(tier: &Tier, published: &Published) -> bool {
    tier.is_hint() || (*tier == Tier::Host && published.host_is_hint)
}
