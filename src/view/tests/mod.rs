//! Tests of the view: against an independent oracle, scenario by scenario, and through snapshots.

mod against_oracle;
mod bare;
mod law;
pub(crate) mod oracle;
#[cfg(all(feature = "vllm", feature = "sglang", feature = "trtllm"))]
mod recorded;
mod scenarios;
pub(crate) mod world;

use std::collections::BTreeMap;

use kvbridge_schemas::{Event, Tier};

use super::{Delta, LinkParent, NodeId, STRIP_BLOCKS_MAX, StripChange, StripParent, View};
use crate::recovery::Finding;

/// What outstanding deltas say is linked; panics where they do not alternate.
#[derive(Default)]
pub(crate) struct Linked(BTreeMap<(NodeId, Tier), (LinkParent, u64, bool)>);

impl Linked {
    pub(crate) fn apply(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match delta.clone() {
                Delta::Linked { node, parent, content, bigram, tier } => {
                    let old = self.0.insert((node, tier), (parent, content, bigram));
                    assert!(old.is_none(), "linked twice: {delta:?}");
                }
                Delta::Unlinked { node, tier } => {
                    let old = self.0.remove(&(node, tier));
                    assert!(old.is_some(), "unlinked without a link: {delta:?}");
                }
                Delta::Strip { .. } => panic!("told one by one here: {delta:?}"),
                Delta::Cleared => self.0.clear(),
            }
        }
    }

    pub(crate) fn assert_is(&self, view: &View) {
        let mut all = Linked::default();
        all.apply(&view.links().collect::<Vec<_>>());
        assert_eq!(self.0, all.0);
    }
}

/// Folds one event in.
pub(crate) fn apply(view: &mut View, event: Event) -> (Vec<Delta>, Vec<Finding>) {
    apply_all(view, &[event])
}

/// Folds events in. What deltas say of strips is said block by block, blocks that went in the
/// order of their keys.
pub(crate) fn apply_all(view: &mut View, events: &[Event]) -> (Vec<Delta>, Vec<Finding>) {
    let (mut deltas, mut findings) = (Vec::new(), Vec::new());
    let mut told = Told::of(view);
    view.apply(events, &mut deltas, &mut findings);
    let mut deltas: Vec<Delta> = deltas.into_iter().flat_map(|delta| told.each(delta)).collect();
    told.assert_is(view);
    let is_gone = |delta: &Delta| matches!(delta, Delta::Unlinked { .. });
    for gone in deltas.chunk_by_mut(|a, b| is_gone(a) && is_gone(b)) {
        gone.sort_by_key(|delta| match delta {
            Delta::Unlinked { node, .. } => Some(*node),
            Delta::Linked { .. } | Delta::Strip { .. } | Delta::Cleared => None,
        });
    }
    (deltas, findings)
}

/// What deltas have told of a view's strips.
#[derive(Default)]
pub(crate) struct Told(BTreeMap<u32, ToldStrip>);

#[derive(Clone, Debug, PartialEq)]
struct ToldStrip {
    parent: LinkParent,
    blocks: Vec<(u64, u64)>,
    live: u64,
    block_size: u32,
    bigram: bool,
    tier: Tier,
    parted: bool,
}

impl Told {
    /// As somebody knows it who was told all of the view anew.
    pub(crate) fn of(view: &View) -> Told {
        let mut told = Told::default();
        let deltas: Vec<Delta> = view.as_deltas().flat_map(|delta| told.each(delta)).collect();
        let mut all = Linked::default();
        all.apply(&deltas);
        all.assert_is(view);
        told
    }

    /// Whoever was told of all changes knows as much as who is told all anew.
    fn assert_is(&self, view: &View) {
        let mut anew = Told::default();
        view.as_deltas().for_each(|delta| drop(anew.each(delta)));
        let known = self.0.iter().filter(|(_, strip)| !strip.parted);
        assert!(known.eq(anew.0.iter()), "{:?} and not {:?}", self.0, anew.0);
    }

    /// What a delta says, block by block.
    pub(crate) fn each(&mut self, delta: Delta) -> Vec<Delta> {
        let Delta::Strip { number, change } = delta else {
            if delta == Delta::Cleared {
                self.0.clear();
            }
            return vec![delta];
        };
        match change {
            StripChange::Grown { from, parent, blocks, block_size, bigram, tier } => {
                let from = usize::from(from);
                if from == 0 {
                    let parent = self.parent(parent, block_size);
                    let (blocks, live, parted) = (Vec::new(), 0, false);
                    let strip =
                        ToldStrip { parent, blocks, live, block_size, bigram, tier, parted };
                    let before = self.0.insert(number, strip);
                    assert!(before.is_none(), "strip {number} begins twice");
                }
                let strip = self.0.get_mut(&number).unwrap();
                assert!(strip.blocks.len() == from && !strip.parted && !blocks.is_empty());
                strip.blocks.extend(blocks);
                let new = from..strip.blocks.len();
                assert!(new.end <= STRIP_BLOCKS_MAX);
                new.clone().for_each(|at| strip.live |= 1 << at);
                new.map(|at| strip.linked(at)).collect()
            }
            StripChange::Refilled { bits } => {
                let strip = self.0.get_mut(&number).unwrap();
                assert!(bits != 0 && strip.live & bits == 0 && !strip.parted);
                strip.live |= bits;
                strip.numbers(bits).map(|at| strip.linked(at)).collect()
            }
            StripChange::Thinned { bits, left } => {
                // Who was told all anew never heard of one that is parted.
                let Some(strip) = self.0.get_mut(&number) else {
                    assert_eq!(bits, 0);
                    return Vec::new();
                };
                assert!(strip.live & bits == bits && usize::from(left) <= strip.blocks.len());
                strip.live &= !bits;
                let node = |at: usize| strip.node(at);
                let gone: Vec<NodeId> = strip.numbers(bits).map(node).collect();
                strip.blocks.truncate(usize::from(left));
                assert!(strip.parted || strip.numbers(u64::MAX).count() == usize::from(left));
                let tier = strip.tier.clone();
                if left == 0 {
                    self.0.remove(&number);
                }
                let unlinked = |node| Delta::Unlinked { node, tier: tier.clone() };
                gone.into_iter().map(unlinked).collect()
            }
            StripChange::Parted => {
                let strip = self.0.get_mut(&number).unwrap();
                assert!(!strip.parted);
                (strip.live, strip.parted) = (0, true);
                Vec::new()
            }
        }
    }

    fn parent(&self, parent: StripParent, block_size: u32) -> LinkParent {
        match parent {
            StripParent::Root(namespace) => LinkParent::Root(namespace),
            StripParent::Block(node) => LinkParent::Block(node),
            StripParent::Strip { number, at } => {
                let strip = &self.0[&number];
                assert!(strip.block_size == block_size && !strip.parted);
                LinkParent::Block(strip.node(usize::from(at)))
            }
        }
    }
}

impl ToldStrip {
    fn numbers(&self, bits: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.blocks.len()).filter(move |at| bits & (1 << at) != 0)
    }

    fn node(&self, at: usize) -> NodeId {
        NodeId { key: self.blocks[at].0, block_size: self.block_size }
    }

    fn linked(&self, at: usize) -> Delta {
        let parent = match at.checked_sub(1) {
            Some(before) => LinkParent::Block(self.node(before)),
            None => self.parent,
        };
        let (content, bigram) = (self.blocks[at].1, self.bigram);
        Delta::Linked { node: self.node(at), parent, content, bigram, tier: self.tier.clone() }
    }
}
