//! Blocks that are told in a row come to the same as blocks that are told one by one.

use kvbridge_schemas::{Tier, Trust};
use proptest::{prelude::*, test_runner::Config};

use super::{published, query, replica};
use crate::{
    index::{Index, Prompt, Query, ReplicaSlot},
    view::{Delta, LinkParent, NodeId, namespace},
};

/// Longer than two pages.
const LENGTH: u64 = 150;
const CHAINS: u64 = 3;
/// Contents up to here are the same in all chains: their blocks are twins.
const ALIKE: u64 = 40;

/// Some blocks of one chain come, or go.
#[derive(Clone, Debug)]
struct Step {
    chain: u64,
    from: u64,
    count: u64,
    tier: usize,
    gone: bool,
    last_first: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let part = (0..CHAINS, 0..LENGTH, prop_oneof![1..4_u64, 30..LENGTH]);
    let how = (0..8_usize, prop::bool::weighted(0.4), any::<bool>());
    (part, how).prop_map(|((chain, from, count), (tier, gone, last_first))| Step {
        chain,
        from: if count > 20 { from / 4 } else { from },
        count,
        tier: usize::from(tier == 0),
        gone,
        last_first,
    })
}

fn node(chain: u64, at: u64) -> NodeId {
    NodeId { key: chain * 1_000 + at, block_size: 2 }
}

fn content(chain: u64, at: u64) -> u64 {
    if at < ALIKE { at } else { chain * 1_000 + at }
}

/// Which blocks are held in which tiers, and what a view would say of a step.
struct Held(Vec<[bool; 2]>);

impl Held {
    fn deltas(&mut self, step: &Step) -> Vec<Delta> {
        let mut blocks: Vec<u64> = (step.from..LENGTH.min(step.from + step.count)).collect();
        if step.last_first {
            blocks.reverse();
        }
        let tier = [Tier::Device, Tier::Host][step.tier].clone();
        let change = |at: u64| {
            let number = usize::try_from(step.chain * LENGTH + at).unwrap();
            let held = &mut self.0[number][step.tier];
            if *held != step.gone {
                return None;
            }
            *held = !step.gone;
            let (node, tier) = (node(step.chain, at), tier.clone());
            if step.gone {
                return Some(Delta::Unlinked { node, tier });
            }
            let parent = match at.checked_sub(1) {
                None => LinkParent::Root(namespace(None, None)),
                Some(before) => LinkParent::Block(self::node(step.chain, before)),
            };
            let content = content(step.chain, at);
            Some(Delta::Linked { node, parent, content, bigram: false, tier })
        };
        blocks.into_iter().filter_map(change).collect()
    }
}

fn depths(index: &Index, contents: &[u64], slot: ReplicaSlot) -> u64 {
    let prompt = Prompt::Content { hashes: contents, block_size: 2 };
    let mut depths = Vec::new();
    index.depths(&Query { prompt, ..query(&[]) }, &mut depths).unwrap();
    depths.iter().find(|(of, _)| *of == slot).map_or(0, |(_, depth)| *depth)
}

proptest! {
    #![proptest_config(Config { cases: 40, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_row_comes_to_the_same_as_its_blocks(steps in prop::collection::vec(step(), 1..25)) {
        // Each in an index of its own, so that neither finds the other's pages.
        let [rows, blocks] = [(); 2].map(|()| Index::new());
        let [in_rows, one_by_one] =
            [&rows, &blocks].map(|index| index.register(replica("a")));
        let says = published(Trust::Exact, 1);
        let mut held = Held(vec![[false; 2]; usize::try_from(CHAINS * LENGTH).unwrap()]);
        for step in &steps {
            let deltas = held.deltas(step);
            rows.apply(in_rows, &deltas, says);
            for delta in &deltas {
                blocks.apply(one_by_one, std::slice::from_ref(delta), says);
            }
            for chain in 0..CHAINS {
                let contents: Vec<u64> = (0..LENGTH).map(|at| content(chain, at)).collect();
                let of_chain = |at: u64| usize::try_from(chain * LENGTH + at).unwrap();
                let alone = (0..LENGTH).take_while(|at| held.0[of_chain(*at)].contains(&true));
                let alone = u64::try_from(alone.count()).unwrap();
                let depth = depths(&rows, &contents, in_rows);
                prop_assert_eq!(depth, depths(&blocks, &contents, one_by_one));
                // Twins reach as far into what all have alike.
                prop_assert!(depth == alone || depth <= ALIKE && depth > alone);
            }
        }
        // What no view holds is not held here either.
        for chain in 0..CHAINS {
            for tier in 0..2 {
                let (from, count, gone, last_first) = (0, LENGTH, true, chain == 1);
                let deltas = held.deltas(&Step { chain, from, count, tier, gone, last_first });
                rows.apply(in_rows, &deltas, says);
            }
        }
        let model = rows.model("m").unwrap();
        let Ok(shared) = model.read() else { panic!("no writer died") };
        for member in shared.members.iter() {
            let column = shared.tree.column(member.column).unwrap();
            prop_assert_eq!(column.node_count(), 0);
            prop_assert!(column.windows.is_empty() && column.tiers.is_empty());
        }
        prop_assert_eq!(shared.tree.page_count(), 0);
    }
}
