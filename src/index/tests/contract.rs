//! Trust, versions, errors, what is never compared.

use kvbridge_schemas::{BlockHash, Event, Tier, TierTrust, Trust, content_hash};

use super::{Feed, PATH, at, matched, prompt, published, query, replica, spot};
use crate::{
    index::{Generation, Index, Prompt, Published, Query, QueryError, TierMatch},
    view::{
        Delta, LinkParent, NodeId, View,
        tests::world::{At, Form, Op, SETTINGS, Spot, Store, World},
    },
};

/// Replica `a` with five blocks of `PATH` on the device, the next two on the host, one more on
/// disk.
fn three_tiers(index: &Index) -> Feed<'_> {
    let mut feed = Feed::new(index, "a", 1);
    feed.store(&PATH[..5], 0);
    for (upto, count, tier) in [(7, 2, 1), (8, 1, 3)] {
        let spot = Spot { tier, ..spot() };
        let at = at(&PATH[..upto]);
        feed.run(&Op::Store(Store { at, count, size: 2, form: Form::Dense, spot }));
    }
    feed
}

#[test]
fn tiers_add_up_and_hints_count_when_asked_for() {
    let index = Index::new();
    let _feed = three_tiers(&index);
    let by_tier = |hints| {
        let answer = index.query(&Query { hints, ..query(&prompt()) }).unwrap();
        answer.replicas[0].by_tier.to_vec()
    };
    let tier = |tier, blocks| TierMatch { tier, blocks, tokens: blocks * 2 };
    let proven = [tier(Tier::Device, 5), tier(Tier::Host, 7)];
    assert_eq!(by_tier(false), proven);
    assert_eq!(by_tier(true), [proven.as_slice(), &[tier(Tier::Disk, 8)]].concat());
}

#[test]
fn tier_counts_only_with_the_trust_asked_for() {
    let index = Index::new();
    let feed = three_tiers(&index);
    let trust = TierTrust { device: Trust::Exact, host: Trust::LowerBound };
    index.publish(feed.slot, Published { trust, ..published(Trust::None, 9) });
    let blocks = |accept| {
        let answer = index.query(&Query { accept, ..query(&prompt()) }).unwrap();
        (answer.replicas[0].matched_blocks, answer.fallback)
    };
    assert_eq!(blocks(Trust::Exact), (5, None));
    assert_eq!(blocks(Trust::LowerBound), (7, None));
    index.publish(feed.slot, published(Trust::LowerBound, 9));
    assert_eq!(blocks(Trust::Exact), (0, Some("load")));
    index.publish(feed.slot, published(Trust::None, 9));
    assert_eq!(blocks(Trust::None), (0, Some("load")), "nobody vouches: never a match");
}

#[test]
fn untrusted_replica_is_listed_with_its_reason() {
    let index = Index::new();
    index.register(replica("new"));
    let feed = three_tiers(&index);
    index.publish(feed.slot, Published { reason: "gap_open", ..published(Trust::None, 9) });
    let answer = index.query(&query(&prompt())).unwrap();
    let listed: Vec<_> = answer.replicas.iter().map(|r| (r.usable, r.reason)).collect();
    assert_eq!(listed, [(false, "gap_open"), (false, "joining")]);
    assert_eq!(answer.fallback, Some("load"));
    assert_eq!(answer.replicas[0].as_of.cursor.next_seq.0, 9);
    assert_eq!(answer.replicas[0].as_of.at_ms, 1_009);
}

#[test]
fn withdrawal_overtakes_grants_that_wait_in_a_queue() {
    let index = Index::new();
    let feed = three_tiers(&index);
    let generation = index.withdraw(feed.slot, "detached");
    let state = || {
        let found = index.query(&query(&prompt())).unwrap().replicas[0].clone();
        (found.usable, found.trust.device, found.reason, found.matched_blocks)
    };
    assert_eq!(state(), (false, Trust::None, "detached", 0));
    // Decided before the withdrawal, applied after it: data goes in, trust does not come back.
    index.publish(feed.slot, published(Trust::Exact, 10));
    assert_eq!(state(), (false, Trust::None, "detached", 0));
    index.replace(feed.slot, feed.view.as_deltas(), published(Trust::Exact, 11));
    assert_eq!(state(), (false, Trust::None, "detached", 0));
    index.publish(feed.slot, Published { generation, ..published(Trust::Exact, 12) });
    assert_eq!(state(), (true, Trust::Exact, "contiguous", 7));
    let later = index.withdraw(feed.slot, "gap_open");
    assert!(later > generation && later == index.generation(feed.slot));
    index.publish(feed.slot, Published { generation, ..published(Trust::Exact, 13) });
    assert_eq!(state(), (false, Trust::None, "gap_open", 0));
}

#[test]
fn lists_of_depths_follow_withdrawals_while_others_come_and_go() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "m", 1);
    feed.store(&PATH[..5], 0);
    let depths = || {
        let mut depths = Vec::new();
        index.depths(&query(&prompt()), &mut depths).unwrap();
        depths
    };
    let held = [(feed.slot, 5)];
    assert_eq!(depths(), held);
    let generation = index.withdraw(feed.slot, "gap_open");
    assert_eq!(depths(), []);
    // Before it and behind it in the list; they have nothing.
    let others = ["a", "z"].map(|name| index.register(replica(name)));
    index.publish(feed.slot, published(Trust::Exact, 10));
    assert_eq!(depths(), [], "decided before the withdrawal");
    let says = Published { generation, ..published(Trust::Exact, 11) };
    index.publish(feed.slot, says);
    assert_eq!(depths(), held);
    others.iter().for_each(|slot| index.publish(*slot, published(Trust::Exact, 1)));
    index.drop_replica(others[0]);
    assert_eq!(depths(), held);
    index.replace(feed.slot, feed.view.as_deltas(), says);
    assert_eq!(depths(), held);
    let later = index.withdraw(feed.slot, "detached");
    index.withdraw(others[1], "detached");
    assert_eq!(depths(), []);
    let says = Published { generation: later, ..published(Trust::Exact, 12) };
    index.replace(feed.slot, feed.view.as_deltas(), says);
    assert_eq!(depths(), held);
}

#[test]
fn replace_swaps_the_whole_view() {
    let index = Index::new();
    let feed = three_tiers(&index);
    let mut other = View::new(SETTINGS);
    let store =
        Op::Store(Store { at: at(&PATH[..3]), count: 3, size: 2, form: Form::Dense, spot: spot() });
    other.apply(&[World { seed: 2 }.event(&store)], &mut Vec::new(), &mut Vec::new());
    index.replace(feed.slot, other.as_deltas(), published(Trust::Exact, 20));
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 3)]);
    let empty = View::new(SETTINGS);
    index.replace(feed.slot, empty.as_deltas(), published(Trust::Exact, 21));
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 0)]);
}

#[test]
fn dropped_replica_is_gone_and_its_slot_is_not_used_again() {
    let index = Index::new();
    let feed = three_tiers(&index);
    assert_eq!(index.register(replica("a")), feed.slot, "one slot per replica");
    index.drop_replica(feed.slot);
    assert_eq!(index.query(&query(&prompt())), Err(QueryError::UnknownModel));
    let again = index.register(replica("a"));
    assert_ne!(again, feed.slot);
    index.replace(feed.slot, feed.view.as_deltas(), published(Trust::Exact, 20));
    index.publish(again, published(Trust::Exact, 1));
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 0)]);
    assert_eq!(index.withdraw(feed.slot, "detached"), Generation::default());
}

#[test]
fn models_adapters_and_salts_never_share_a_match() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    for namespace in 0..4 {
        let upto = usize::from(namespace) + 1;
        let at = At { namespace, ..at(&PATH[..upto]) };
        feed.run(&Op::Store(Store { at, count: upto, size: 2, form: Form::Dense, spot: spot() }));
    }
    let prompt = prompt();
    let blocks = |lora, salt| {
        let question = Query { lora, salt, ..query(&prompt) };
        index.query(&question).unwrap().replicas[0].matched_blocks
    };
    assert_eq!(blocks(None, None), 1);
    assert_eq!(blocks(Some("ad"), None), 2);
    assert_eq!(blocks(None, Some("pepper")), 3);
    assert_eq!(blocks(Some("ad"), Some("pepper")), 4);
    assert_eq!(blocks(Some("pepper"), None), 0);
    assert_eq!(blocks(Some(""), Some("")), 1);
    let other = Query { model: "n", ..query(&prompt) };
    assert_eq!(index.query(&other), Err(QueryError::UnknownModel));
}

/// With a view that is replaced by one without blocks nobody uses its size any more.
#[test]
fn a_block_size_goes_with_the_view_that_used_it() {
    let index = Index::new();
    let feed = three_tiers(&index);
    let hashes: Vec<u64> = prompt().chunks_exact(2).map(content_hash).collect();
    let prompt = Prompt::Content { hashes: &hashes, block_size: 64 };
    let ask = || index.query(&Query { prompt, ..query(&[]) });
    assert_eq!(ask(), Err(QueryError::BlockSize { used: vec![2] }));
    index.apply(feed.slot, &[Delta::Cleared], published(Trust::Exact, 9));
    assert_eq!(matched(&ask().unwrap()), [("a", 0)], "an empty view compares with anything");
}

#[test]
fn block_size_that_nobody_uses_is_an_error_and_one_that_some_use_is_told_apart() {
    let index = Index::new();
    let hashes: Vec<u64> = prompt().chunks_exact(2).map(content_hash).collect();
    let ask = |block_size| {
        let prompt = Prompt::Content { hashes: &hashes, block_size };
        index.query(&Query { prompt, ..query(&[]) })
    };
    let empty = Feed::new(&index, "empty", 1);
    index.publish(empty.slot, published(Trust::Exact, 0));
    assert_eq!(matched(&ask(64).unwrap()), [("empty", 0)], "an empty view compares with anything");

    let _two = three_tiers(&index);
    let mut four = Feed::new(&index, "four", 1);
    four.run(&Op::Store(Store {
        at: at(&PATH),
        count: 5,
        size: 4,
        form: Form::Dense,
        spot: spot(),
    }));
    assert_eq!(ask(64), Err(QueryError::BlockSize { used: vec![2, 4] }));
    let answer = ask(2).unwrap();
    let listed: Vec<_> = answer
        .replicas
        .iter()
        .map(|r| (r.replica.instance.as_str(), r.matched_blocks, r.usable, r.reason))
        .collect();
    let expected = [
        ("a", 7, true, "contiguous"),
        ("empty", 0, true, "contiguous"),
        ("four", 0, false, "block_size"),
    ];
    assert_eq!(listed, expected);
    // Tokens are hashed in each replica's own size.
    let prompt = prompt();
    let tokens = index.query(&query(&prompt)).unwrap();
    assert_eq!(matched(&tokens), [("four", 5), ("a", 7), ("empty", 0)]);
    assert_eq!(tokens.replicas[0].block_size, Some(4));
}

#[test]
fn hashes_told_in_the_wrong_size_match_nothing() {
    let index = Index::new();
    let mut feed = three_tiers(&index);
    let (at, spot) = (at(&PATH), spot());
    feed.run(&Op::Store(Store { at, count: 5, size: 4, form: Form::Dense, spot }));
    let hashes: Vec<u64> = prompt().chunks_exact(4).map(content_hash).collect();
    let blocks = |block_size| {
        let prompt = Prompt::Content { hashes: &hashes, block_size };
        let answer = index.query(&Query { prompt, ..query(&[]) }).unwrap();
        answer.replicas[0].matched_blocks
    };
    assert_eq!((blocks(4), blocks(2)), (5, 0));
}

#[test]
fn replica_whose_writer_died_is_unusable_until_replaced() {
    let index = Index::new();
    let feed = three_tiers(&index);
    let moved = |parent| {
        let node = NodeId { key: 1, block_size: 2 };
        Delta::Linked { node, parent, content: 1, bigram: false, tier: Tier::Device }
    };
    let twice = [moved(LinkParent::Root(1)), moved(LinkParent::Root(2))];
    let died = std::thread::scope(|scope| {
        let write = || index.apply(feed.slot, &twice, published(Trust::Exact, 9));
        scope.spawn(write).join().is_err()
    });
    assert_eq!(died, cfg!(debug_assertions), "a view never sends this");
    if died {
        let found = &index.query(&query(&prompt())).unwrap().replicas[0];
        assert_eq!((found.usable, found.reason), (false, "index_fault"));
        index.publish(feed.slot, published(Trust::Exact, 10));
        assert!(!index.query(&query(&prompt())).unwrap().replicas[0].usable);
    }
    index.replace(feed.slot, feed.view.as_deltas(), published(Trust::Exact, 11));
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 7)]);
}

#[test]
fn replica_without_content_is_not_comparable() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    let form = Form::Placeholder;
    feed.run(&Op::Store(Store { at: at(&PATH), count: 4, size: 2, form, spot: spot() }));
    let no_content = feed.view.lacks_content();
    index.publish(feed.slot, Published { no_content, ..published(Trust::Exact, 1) });
    let found = &index.query(&query(&prompt())).unwrap().replicas[0];
    assert_eq!((found.usable, found.reason), (false, "no_content"));
}

#[test]
fn plain_prompt_does_not_match_an_image_with_the_same_tokens() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    feed.store(&[0, 2, 0], 0);
    let plain = crate::view::tests::world::tokens(&[0, 0, 0]);
    assert_eq!(matched(&index.query(&query(&plain)).unwrap()), [("a", 1)]);
}

#[test]
fn eagle_pairs_are_hashed_over_one_token_more() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    let prompt = prompt();
    let store =
        Op::Store(Store { at: at(&PATH[..3]), count: 3, size: 2, form: Form::Dense, spot: spot() });
    let Event::Stored(mut stored) = feed.world.event(&store) else { panic!("a store") };
    stored.bigram = true;
    for (i, block) in stored.blocks.iter_mut().enumerate() {
        block.hash = BlockHash::from_u64(u64::try_from(i).unwrap());
        block.content = Some(content_hash(&prompt[i * 2..=(i + 1) * 2]));
    }
    feed.apply(Event::Stored(stored));
    assert_eq!(matched(&index.query(&query(&prompt)).unwrap()), [("a", 3)]);
    // The last block needs the token after it.
    assert_eq!(matched(&index.query(&query(&prompt[..6])).unwrap()), [("a", 2)]);
}

#[test]
fn host_that_is_a_hint_counts_only_when_asked_for() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    let spot = Spot { tier: 2, ..spot() };
    feed.run(&Op::Store(Store { at: at(&PATH), count: 10, size: 2, form: Form::Dense, spot }));
    let prompt = prompt();
    assert_eq!(matched(&index.query(&query(&prompt)).unwrap()), [("a", 0)]);
    let hints = Query { hints: true, ..query(&prompt) };
    assert_eq!(matched(&index.query(&hints).unwrap()), [("a", 10)]);
    // A hint adds to what is proven; alone it makes no replica usable.
    index.publish(feed.slot, Published { host_is_hint: true, ..published(Trust::None, 9) });
    assert_eq!(matched(&index.query(&hints).unwrap()), [("a", 0)]);
}
