//! The order that was reported, on a small form of the same fleet; and that a seed is a run.

use crate::{
    REPORTED, chats,
    policy::Policy,
    work::Recorded,
    world::{Outcome, Setting},
};

/// As many conversations, because what a constant is worth depends on them; a tenth of the tokens
/// on replicas that are as busy, and fewer turns.
const SMALL: Setting = Setting {
    first_tokens: REPORTED.first_tokens / 10,
    output_tokens: REPORTED.output_tokens / 10,
    asked_tokens: REPORTED.asked_tokens / 10,
    block_tokens: 32,
    pool_tokens: REPORTED.pool_tokens / 10,
    prefill_tokens_s: REPORTED.prefill_tokens_s / 10,
    output_token_us: REPORTED.output_token_us * 10,
    warm_requests: 384 * 8,
    requests: 384 * 8,
    ..REPORTED
};

/// What the report's own figures were apart: less than this is the same.
const SAME: f64 = 0.01;

fn of(policy: Policy) -> Outcome {
    chats(SMALL, policy, 1)
}

#[test]
fn the_reported_order_comes_out() {
    let sticky = of(Policy::Sticky);
    let empty = of(Policy::EmptyTable { constant: 64 });
    let small = of(Policy::RoutedTable { constant: 64 });
    let large = of(Policy::RoutedTable { constant: 512 });
    let rates = [empty, small, large].map(|it| it.hit_rate);
    assert!(rates.is_sorted_by(|a, b| a < b), "{rates:?}");
    assert!(sticky.hit_rate > large.hit_rate - SAME, "{sticky:?}, {large:?}");
    let scatters = [sticky, large, small, empty].map(|it| it.scatter);
    assert!(scatters.is_sorted(), "{scatters:?}");
    assert!(empty.scatter > 0.05, "load alone scatters turns: {empty:?}");
}

/// With its capacity told, in front of an index or of guesses, as good as a conversation's home.
#[test]
fn ours_is_within_a_point_of_sticky_with_events_and_with_backfill() {
    let sticky = of(Policy::Sticky);
    let capacity = Some(512);
    for ours in [of(Policy::Ours { capacity }), of(Policy::OursBackfill { capacity })] {
        assert!(ours.hit_rate > sticky.hit_rate - SAME, "{ours:?}, {sticky:?}");
        assert!(ours.scatter < 0.01, "{ours:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let [first, second] = [0, 1].map(|_| of(Policy::Ours { capacity: None }));
    assert_eq!(first.hit_rate.to_bits(), second.hit_rate.to_bits());
    assert_eq!(first.waited_s, second.waited_s);
}

#[test]
fn a_trace_is_read_as_it_is_written() {
    let text = r#"{"timestamp": 27, "input_length": 1100, "output_length": 5, "hash_ids": [0, 7, 9]}
{"timestamp": 30, "input_length": 1600, "output_length": 6, "hash_ids": [0, 7, 10, 11]}"#;
    let turns = Recorded::mooncake(text, 3).unwrap().turns;
    let (at_us, first) = &turns[0];
    assert_eq!((*at_us, &first.blocks[..]), (9_000, &[0, 7][..]), "the third block is not full");
    assert_eq!(first.conversation, turns[1].1.conversation);
    assert!(Recorded::mooncake("{}", 1).is_err());
}
