//! Arbitrary deltas, also such as only a hostile stream makes: children before their parents,
//! blocks that come back elsewhere, twins, rings. The tree says of each replica what its own links
//! say.

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{Tier, Trust};
use proptest::{prelude::*, test_runner::Config};

use super::{published, query, replica};
use crate::{
    index::{Index, Prompt, Query, ReplicaSlot},
    view::{Delta, LinkParent, NodeId, namespace},
};

const TIERS: [Tier; 2] = [Tier::Device, Tier::Host];
const DEPTH: u32 = 5;

/// One replica's links, and nothing else.
#[derive(Clone, Default)]
struct Links(BTreeMap<NodeId, (LinkParent, u64, BTreeSet<Tier>)>);

impl Links {
    /// How many contents are reached from the root on, over blocks in one of the tiers.
    fn walk(&self, contents: &[u64], tiers: &[Tier]) -> u64 {
        let mut reached = BTreeSet::from([LinkParent::Root(namespace(None, None))]);
        let steps = contents.iter().take_while(|asked| {
            let follows = |(id, (parent, content, held)): (&NodeId, &(_, u64, BTreeSet<Tier>))| {
                let fits = content == *asked && tiers.iter().any(|tier| held.contains(tier));
                (fits && reached.contains(parent)).then_some(LinkParent::Block(*id))
            };
            reached = self.0.iter().filter_map(follows).collect();
            !reached.is_empty()
        });
        u64::try_from(steps.count()).unwrap()
    }

    fn deltas(&self) -> Vec<Delta> {
        let all = self.0.iter().flat_map(|(node, (parent, content, tiers))| {
            let one = |tier: &Tier| linked(*node, *parent, *content, tier);
            tiers.iter().map(one).collect::<Vec<_>>()
        });
        all.collect()
    }

    /// What a view would say when it is told that the block is there, or (`gone`) is not.
    fn change(&mut self, change: &Change) -> Option<Delta> {
        let (id, tier) = (node(change.key), &TIERS[change.tier]);
        if change.gone {
            let (.., tiers) = self.0.get_mut(&id)?;
            if !tiers.remove(tier) {
                return None;
            }
            if tiers.is_empty() {
                self.0.remove(&id);
            }
            return Some(Delta::Unlinked { node: id, tier: tier.clone() });
        }
        let parent = match change.parent {
            None => LinkParent::Root(namespace(None, None)),
            Some(key) => LinkParent::Block(node(key)),
        };
        let new = (parent, change.content, BTreeSet::new());
        let (parent, content, tiers) = self.0.entry(id).or_insert(new);
        tiers.insert(tier.clone()).then(|| linked(id, *parent, *content, tier))
    }
}

fn node(key: u64) -> NodeId {
    NodeId { key, block_size: 2 }
}

fn linked(node: NodeId, parent: LinkParent, content: u64, tier: &Tier) -> Delta {
    Delta::Linked { node, parent, content, bigram: false, tier: tier.clone() }
}

#[derive(Clone, Debug)]
struct Change {
    key: u64,
    parent: Option<u64>,
    content: u64,
    tier: usize,
    gone: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<Change>),
    Clear(Vec<Change>),
    Replace,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let parent = prop::option::weighted(0.7, 0..7_u64);
    let change = (0..7_u64, parent, 0..2_u64, 0..2_usize, prop::bool::weighted(0.4));
    let change = change.prop_map(|(key, parent, content, tier, gone)| Change {
        key,
        parent,
        content,
        tier,
        gone,
    });
    let changes = prop::collection::vec(change, 1..6);
    let step = prop_oneof![
        20 => changes.clone().prop_map(Step::Batch),
        1 => changes.prop_map(Step::Clear),
        2 => Just(Step::Replace),
    ];
    (0..3_usize, step)
}

fn run(index: &Index, slot: ReplicaSlot, links: &mut Links, step: &Step) {
    let says = published(Trust::Exact, 1);
    let mut deltas =
        |changes: &[Change]| changes.iter().filter_map(|it| links.change(it)).collect();
    match step {
        Step::Batch(changes) => {
            let deltas: Vec<Delta> = deltas(changes);
            index.apply(slot, &deltas, says);
        }
        Step::Clear(changes) => {
            *links = Links::default();
            let new = changes.iter().filter_map(|it| links.change(it));
            let deltas: Vec<Delta> = [Delta::Cleared].into_iter().chain(new).collect();
            index.apply(slot, &deltas, says);
        }
        Step::Replace => index.replace(slot, links.deltas(), says),
    }
}

fn check(index: &Index, replicas: &[(ReplicaSlot, Links)]) {
    for number in 0..1_u64 << DEPTH {
        let contents: Vec<u64> = (0..DEPTH).map(|at| number >> at & 1).collect();
        let prompt = Prompt::Content { hashes: &contents, block_size: 2 };
        let question = Query { prompt, ..query(&[]) };
        let answer = index.query(&question).unwrap();
        let mut depths = Vec::new();
        index.depths(&question, &mut depths).unwrap();
        for (number, (slot, links)) in replicas.iter().enumerate() {
            let name = number.to_string();
            let found = answer.replicas.iter().find(|found| found.replica.instance == name);
            let found = found.unwrap();
            assert!(found.usable);
            for (step, upto) in found.by_tier.iter().zip([&TIERS[..1], &TIERS]) {
                assert_eq!(step.blocks, links.walk(&contents, upto), "{contents:?}");
            }
            let all = links.walk(&contents, &TIERS);
            assert_eq!(found.matched_blocks, all, "{contents:?}");
            let depth = depths.iter().find(|(of, _)| of == slot).map_or(0, |(_, depth)| *depth);
            assert_eq!(depth, all);
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn each_replica_matches_as_its_own_links_say(steps in prop::collection::vec(step(), 1..50)) {
        let index = Index::new();
        let mut replicas: Vec<(ReplicaSlot, Links)> =
            (0..3).map(|number| (index.register(replica(&number.to_string())), Links::default())).collect();
        for (slot, _) in &replicas {
            index.publish(*slot, published(Trust::Exact, 1));
        }
        for (number, step) in &steps {
            let (slot, links) = &mut replicas[*number];
            run(&index, *slot, links, step);
            check(&index, &replicas);
        }
        // What no view holds is not held here either.
        for (slot, links) in &mut replicas {
            let gone = |delta| match delta {
                Delta::Linked { node, tier, .. } => Delta::Unlinked { node, tier },
                gone @ (Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared) => gone,
            };
            let deltas: Vec<Delta> = links.deltas().into_iter().map(gone).collect();
            index.apply(*slot, &deltas, published(Trust::Exact, 2));
        }
        let model = index.model("m").unwrap();
        let Ok(shared) = model.read() else { panic!("no writer died") };
        for member in shared.members.iter() {
            prop_assert_eq!(shared.tree.column(member.column).unwrap().node_count(), 0);
        }
        prop_assert_eq!(shared.tree.page_count(), 0);
    }
}

/// Long chains cross pages, branch in their middle, and are dropped while others hold them.
#[test]
fn chains_longer_than_a_page_branch_and_outlive_a_replica() {
    let index = Index::new();
    let slots = ["a", "b"].map(|name| index.register(replica(name)));
    let chain = |from: u64, to: u64, shift: u64| -> Vec<Delta> {
        let parent = |key| match key {
            0 => LinkParent::Root(namespace(None, None)),
            key if key == from => LinkParent::Block(node(key - 1)),
            key => LinkParent::Block(node(key - 1 + shift)),
        };
        (from..to)
            .map(|key| linked(node(key + shift), parent(key), key + shift, &TIERS[0]))
            .collect()
    };
    let says = published(Trust::Exact, 1);
    slots.iter().for_each(|slot| index.apply(*slot, &chain(0, 300, 0), says));
    index.apply(slots[1], &chain(100, 200, 1_000), says);
    let matched = |contents: &[u64]| {
        let prompt = Prompt::Content { hashes: contents, block_size: 2 };
        let mut depths = Vec::new();
        index.depths(&Query { prompt, ..query(&[]) }, &mut depths).unwrap();
        depths
    };
    let main: Vec<u64> = (0..400).collect();
    let branch: Vec<u64> = (0..100).chain(1_100..1_200).collect();
    assert_eq!(matched(&main), [(slots[0], 300), (slots[1], 300)]);
    assert_eq!(matched(&branch), [(slots[0], 100), (slots[1], 200)]);
    index.drop_replica(slots[0]);
    assert_eq!(matched(&main), [(slots[1], 300)]);
    let hole = Delta::Unlinked { node: node(70), tier: Tier::Device };
    index.apply(slots[1], &[hole], says);
    assert_eq!(matched(&branch), [(slots[1], 70)]);
    index.apply(slots[1], &chain(70, 71, 0), says);
    assert_eq!(matched(&branch), [(slots[1], 200)]);
}

/// A page remembers a page behind it, and another one may have taken its number since.
#[test]
fn what_follows_a_block_is_not_taken_from_a_page_that_went() {
    let index = Index::new();
    let slots = ["a", "b"].map(|name| index.register(replica(name)));
    let says = published(Trust::Exact, 1);
    let root = LinkParent::Root(namespace(None, None));
    let block = |key, parent| linked(node(key), parent, key, &TIERS[0]);
    let behind = |key, before| block(key, LinkParent::Block(node(before)));
    slots.iter().for_each(|slot| index.apply(*slot, &[block(1, root), behind(2, 1)], says));
    index.apply(slots[0], &[behind(3, 2)], says);
    index.apply(slots[1], &[behind(9, 2)], says);
    let matched = |contents: &[u64]| {
        let prompt = Prompt::Content { hashes: contents, block_size: 2 };
        let mut depths = Vec::new();
        index.depths(&Query { prompt, ..query(&[]) }, &mut depths).unwrap();
        depths.into_iter().map(|(_, blocks)| blocks).collect::<Vec<_>>()
    };
    assert_eq!(matched(&[1, 2, 9]), [2, 3]);
    let gone = Delta::Unlinked { node: node(9), tier: Tier::Device };
    index.apply(slots[1], &[gone, behind(7, 1)], says);
    assert_eq!(matched(&[1, 2, 7]), [2, 2]);
    assert_eq!(matched(&[1, 2, 9]), [2, 2]);
    assert_eq!(matched(&[1, 7]), [1, 2]);
}
