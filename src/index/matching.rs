//! A question's answer: for each replica what its trust lets it use, and how far that goes.

use std::collections::BTreeSet;

use kvbridge_schemas::{Tier, TierTrust};

use super::{
    ByTier, Prompt, Query, ReplicaMatch, ReplicaSlot, TierMatch,
    members::Member,
    model::{Model, Shared},
    page::Window,
    query::PromptHashes,
    walk::{Alone, Depths},
    weighing::{Claim, Weight},
};
use crate::view::namespace;

/// The prompt is told in a block size that this replica does not use.
pub const REASON_BLOCK_SIZE: &str = "block_size";

/// What a walk with each window found. Nearly always there is one window, and a list of one would
/// cost as much as a question that matches nothing.
#[derive(Default)]
struct Walked {
    first: Option<(Window, Depths)>,
    others: Vec<(Window, Depths)>,
}

impl Walked {
    fn iter(&self) -> impl Iterator<Item = &(Window, Depths)> {
        self.first.iter().chain(&self.others)
    }

    /// What was found, where one window and one tier say all.
    fn alone(&self) -> Option<Alone<'_>> {
        let (_, depths) = self.first.as_ref().filter(|_| self.others.is_empty())?;
        depths.alone()
    }

    /// Whether no replica has the first block.
    fn is_empty(&self) -> bool {
        self.iter().all(|(_, depths)| depths.is_empty())
    }
}

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
        let shared = match self.read() {
            Ok(shared) => shared,
            Err(shared) => {
                return shared.asked(only).map(|member| member.entry.faulted()).collect();
            }
        };
        let claim = Claim::of(query);
        let windows = match only.map(|only| shared.members.get(only)) {
            Some(Some(member)) => &member.weights.windows,
            Some(None) | None => &shared.windows,
        };
        used.extend(windows.iter().map(|window| window.block_size));
        let walked = shared.walk(windows, query, hashes);
        shared.asked(only).map(|member| member.answer(claim, query, &walked)).collect()
    }

    /// The matched blocks of all replicas that have any.
    pub(super) fn depths(
        &self,
        query: &Query<'_>,
        hashes: &mut PromptHashes<'_>,
        depths: &mut Vec<(ReplicaSlot, u64)>,
    ) {
        let Ok(shared) = self.read() else { return };
        let walked = shared.walk(&shared.windows, query, hashes);
        if walked.is_empty() {
            return;
        }
        match walked.alone() {
            Some(blocks) => shared.list(|column| blocks.of(column), depths),
            None => shared.list(|column| longest(&walked, |_| true, column).0, depths),
        }
    }

    /// The block sizes of all replicas' blocks, smallest first.
    pub(super) fn block_sizes(&self) -> Vec<u32> {
        let Ok(shared) = self.read() else { return Vec::new() };
        let sizes: BTreeSet<u32> = shared.windows.iter().map(|it| it.block_size).collect();
        sizes.into_iter().collect()
    }

    /// The windows of a replica's blocks, smallest block size first.
    pub(super) fn windows(&self, slot: ReplicaSlot) -> Vec<Window> {
        let Ok(shared) = self.read() else { return Vec::new() };
        shared.members.get(slot).map(|it| it.weights.windows.clone()).unwrap_or_default()
    }
}

impl Shared {
    /// Those that are asked, by key.
    fn asked(&self, only: Option<ReplicaSlot>) -> impl Iterator<Item = &Member> + '_ {
        let one = only.and_then(|only| self.members.get(only));
        let all = only.is_none().then(|| self.members.iter());
        one.into_iter().chain(all.into_iter().flatten())
    }

    /// Lists those that hold any blocks and may be used.
    fn list(&self, blocks_of: impl Fn(u32) -> u64, depths: &mut Vec<(ReplicaSlot, u64)>) {
        for listed in &self.order {
            let blocks = blocks_of(listed.column);
            if blocks > 0 && listed.stands() {
                depths.push((listed.slot, blocks));
            }
        }
    }

    fn walk(&self, windows: &[Window], query: &Query<'_>, hashes: &mut PromptHashes<'_>) -> Walked {
        let wanted = &self.wanted[Claim::of(query)];
        let root = namespace(query.lora, query.salt);
        let walk = |window: &Window| {
            let contents = hashes.of(*window)?;
            Some((*window, self.tree.walk(root, contents, *window, wanted)))
        };
        let mut found = windows.iter().filter_map(walk);
        Walked { first: found.next(), others: found.collect() }
    }
}

/// The longest match in tokens, of a column with such windows: how many blocks, and what was walked
/// for it. Of equal ones that in the smaller blocks.
fn longest(
    walked: &Walked,
    has: impl Fn(&Window) -> bool,
    column: u32,
) -> (u64, Option<&(Window, Depths)>) {
    let (mut most, mut best) = (0, None);
    for found in walked.iter().filter(|(window, _)| has(window)) {
        let (window, depths) = found;
        let tokens = depths.all_of(column) * u64::from(window.block_size);
        if best.is_none() || tokens > most {
            (most, best) = (tokens, Some(found));
        }
    }
    (best.map_or(0, |(_, depths)| depths.all_of(column)), best)
}

impl Member {
    fn answer(&self, claim: usize, query: &Query<'_>, walked: &Walked) -> ReplicaMatch {
        let Member { entry, published, weights, column, .. } = self;
        if self.faulted {
            return entry.faulted();
        }
        // Asked after the walk, so that a withdrawal during it still counts.
        if let Some(reason) = entry.withdrawn(published) {
            return entry.unusable(published, TierTrust::default(), reason);
        }
        let Weight { tiers, refused } = weights.of(claim);
        if let Some(reason) = refused.or_else(|| self.told_otherwise(query)) {
            return entry.unusable(published, published.trust, reason);
        }
        let (_, best) = longest(walked, |window| weights.windows.contains(window), *column);
        let size = best.map_or(0, |(window, _)| u64::from(window.block_size));
        let step = |(number, tier): (usize, &Tier)| {
            let blocks = best.map_or(0, |(_, depths)| depths.of(*column, number));
            TierMatch { tier: tier.clone(), blocks, tokens: blocks * size }
        };
        let by_tier: ByTier = tiers.iter().enumerate().map(step).collect();
        ReplicaMatch {
            usable: true,
            block_size: best.map(|(window, _)| window.block_size),
            matched_blocks: by_tier.last().map_or(0, |all| all.blocks),
            matched_tokens: by_tier.last().map_or(0, |all| all.tokens),
            by_tier,
            ..entry.unusable(published, published.trust, published.reason)
        }
    }

    /// Whether the prompt is told in a block size that this replica does not use.
    fn told_otherwise(&self, query: &Query<'_>) -> Option<&'static str> {
        let Prompt::Content { block_size, .. } = query.prompt else { return None };
        let windows = &self.weights.windows;
        let is_other = windows.iter().all(|it| it.block_size != block_size);
        (is_other && !windows.is_empty()).then_some(REASON_BLOCK_SIZE)
    }
}
