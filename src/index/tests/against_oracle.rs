//! Ten thousand arbitrary prompts against three replicas under stores, removals, tiers, groups,
//! copies, adapters, salts and holes.

use std::collections::BTreeSet;

use kvbridge_schemas::{Tier, Trust, content_hash};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};

use super::{Feed, query};
use crate::{
    index::{Index, Prompt, Query, ReplicaMatch},
    view::{
        Delta,
        tests::{
            oracle::Oracle,
            world::{namespace_of, op, tokens},
        },
    },
};

const PROMPTS: usize = 10_000;
const PROMPTS_PER_ROUND: usize = 40;
/// Replicas are cleared from time to time by the operations themselves.
const OPS_PER_ROUND: usize = 6;

#[derive(Clone, Debug)]
struct Asked {
    path: Vec<u8>,
    /// Tokens of the last symbol that are cut off.
    cut: usize,
    namespace: u8,
    hints: bool,
    as_hashes: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    let path = prop::collection::vec(0..2_u8, 1..8);
    let namespace = prop_oneof![4 => Just(0_u8), 1 => 1..4_u8];
    let rest = (0..2_usize, namespace, any::<bool>(), any::<bool>());
    (path, rest).prop_map(|(path, (cut, namespace, hints, as_hashes))| Asked {
        path,
        cut,
        namespace,
        hints,
        as_hashes,
    })
}

#[test]
fn ten_thousand_prompts_match_as_the_oracle_says() {
    let mut runner = TestRunner::deterministic();
    let mut draw = || op().new_tree(&mut runner).unwrap().current();
    let mut prompts = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let index = Index::new();
    // Two hash alike, one does not; none may show in the answers.
    let mut feeds = [("a", 1), ("b", 2), ("c", 1)].map(|(name, seed)| {
        (Feed::new(&index, name, seed), Oracle::new(false, super::SETTINGS.orphans_max))
    });
    let (mut asked_count, mut deep_count) = (0, 0);
    while asked_count < PROMPTS {
        for (feed, oracle) in &mut feeds {
            for _ in 0..OPS_PER_ROUND {
                let op = draw();
                oracle.apply(&feed.world.event(&op));
                feed.run(&op);
            }
        }
        for _ in 0..PROMPTS_PER_ROUND {
            let asked = asked().new_tree(&mut prompts).unwrap().current();
            deep_count += check(&index, &feeds, &asked);
            asked_count += 1;
        }
    }
    // The comparison would be worth little if hardly anything matched.
    assert!(deep_count > PROMPTS / 4, "{deep_count} matches of two blocks or more");
}

/// Compares one answer with the oracles; returns how many replicas matched two blocks or more.
fn check(index: &Index, feeds: &[(Feed<'_>, Oracle)], asked: &Asked) -> usize {
    let mut prompt = tokens(&asked.path);
    prompt.truncate(prompt.len() - asked.cut);
    let hashes: Vec<u64> = prompt.chunks_exact(2).map(content_hash).collect();
    let (lora, salt) = namespace_of(asked.namespace);
    let question = Query { lora, salt, hints: asked.hints, ..query(&prompt) };
    let question = match asked.as_hashes {
        true => Query { prompt: Prompt::Content { hashes: &hashes, block_size: 2 }, ..question },
        false => question,
    };
    let Ok(answer) = index.query(&question) else {
        // A question in blocks of 2 has no answer while there are only others.
        let sizes: BTreeSet<u32> = feeds.iter().flat_map(|(feed, _)| linked_sizes(feed)).collect();
        assert!(asked.as_hashes && !sizes.contains(&2) && !sizes.is_empty());
        return 0;
    };
    let mut order: Vec<_> = answer.replicas.iter().collect();
    order.sort_by_key(|found| (u64::MAX - found.matched_tokens, found.key.clone()));
    assert_eq!(order, answer.replicas.iter().collect::<Vec<_>>());
    let mut deep = 0;
    for (feed, oracle) in feeds {
        let name = |found: &&ReplicaMatch| {
            found.replica.key() == found.key && {
                index.register((*found.replica).clone()) == feed.slot
            }
        };
        let found = answer.replicas.iter().find(name).expect("every replica is listed");
        assert_eq!(found.as_of.cursor.next_seq.0, feed.next_seq);
        if found.usable {
            let prefix = |size, tiers: &[Tier]| oracle.matched(&prompt, (lora, salt), size, tiers);
            agree(found, feed, asked, prefix);
            deep += usize::from(found.matched_blocks > 1);
        } else {
            assert!(asked.as_hashes && found.reason == "block_size");
            assert!(!linked_sizes(feed).contains(&2));
        }
    }
    deep
}

fn agree(
    found: &ReplicaMatch,
    feed: &Feed<'_>,
    asked: &Asked,
    prefix: impl Fn(u32, &[Tier]) -> u64,
) {
    let mut counting = vec![Tier::Device];
    if asked.hints || !feed.view.host_is_hint() {
        counting.push(Tier::Host);
    }
    if asked.hints {
        counting.push(Tier::Disk);
    }
    let sizes: &[u32] = if asked.as_hashes { &[2] } else { &[2, 4] };
    let best = sizes.iter().map(|size| prefix(*size, &counting) * u64::from(*size)).max();
    assert_eq!(found.matched_tokens, best.unwrap_or(0));
    assert!(found.trust.device == Trust::Exact);
    let Some(size) = found.block_size else {
        assert!(linked_sizes(feed).is_empty());
        return;
    };
    assert_eq!(found.matched_tokens, found.matched_blocks * u64::from(size));
    for step in &found.by_tier {
        let upto = counting.iter().position(|tier| *tier == step.tier).unwrap();
        assert_eq!(step.blocks, prefix(size, &counting[..=upto]));
        assert_eq!(step.tokens, step.blocks * u64::from(size));
    }
}

/// The sizes of the blocks that a prefix could reach.
fn linked_sizes(feed: &Feed<'_>) -> BTreeSet<u32> {
    let of = |delta| match delta {
        Delta::Linked { node, .. } => Some(node.block_size),
        Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared => None,
    };
    feed.view.links().filter_map(of).collect()
}
