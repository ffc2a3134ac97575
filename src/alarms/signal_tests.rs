//! From what routers and engines do to the alarms that ring.

use std::sync::Arc;

use kvbridge_schemas::{Cursor, Epoch, Replica, ReplicaKey, Seq, TierTrust, Trust};

use super::{
    Alarm, Sight, TRAFFIC_MIN, TRAFFIC_WINDOW_SECONDS,
    asks::Asks,
    holds,
    rules::{EMPTY_MS, NEWS_MS, SKEW_MS, SOURCE_GONE_MS},
    signal::{Signal, SignalCounts, SignalSight},
};
use crate::{
    doctor::DrainCounts,
    index::{Answer, AsOf, ByTier, Prompt, Query, QueryError, ReplicaMatch},
    recovery::Tick,
};

fn held(change: impl FnOnce(&mut Sight)) -> Vec<&'static str> {
    let mut sight = Sight::CALM;
    change(&mut sight);
    Alarm::ALL.into_iter().filter(|it| holds(*it, &sight)).map(Alarm::as_str).collect()
}

fn of(signal: SignalSight) -> Vec<&'static str> {
    held(|sight| sight.signal = signal)
}

#[test]
fn each_rule_of_the_signal_holds_at_its_bound_and_not_before() {
    assert!(held(|_| ()).is_empty());
    let empty = SignalSight {
        empty_ms: Some(EMPTY_MS),
        own_request_count: TRAFFIC_MIN,
        ..SignalSight::default()
    };
    assert_eq!(of(empty), ["view_empty_under_traffic"]);
    assert!(of(SignalSight { empty_ms: Some(EMPTY_MS - 1), ..empty }).is_empty());
    assert!(of(SignalSight { own_request_count: TRAFFIC_MIN - 1, ..empty }).is_empty());
    for (reason, named) in [("detached", "source_gone"), ("over_limit", "over_limit")] {
        let said = held(|sight| (sight.reason, sight.signal) = (reason, empty));
        assert_eq!(said, [named], "an empty view follows from it");
    }
    let zero = SignalSight { repeated: TRAFFIC_MIN, ..SignalSight::default() };
    assert_eq!(of(zero), ["zero_matches_on_repeated_prefixes"]);
    assert!(of(SignalSight { repeated: TRAFFIC_MIN - 1, ..zero }).is_empty());
    assert!(of(SignalSight { matched: 1, ..zero }).is_empty());
    assert!(of(SignalSight { empty_ms: Some(0), ..zero }).is_empty(), "nothing can match it");
    let size = SignalSight { other_size: TRAFFIC_MIN, ..SignalSight::default() };
    assert_eq!(of(size), ["block_size_mismatch"]);
    assert!(of(SignalSight { other_size: TRAFFIC_MIN - 1, ..size }).is_empty());
    let named = SignalSight { unknown: TRAFFIC_MIN, ..SignalSight::default() };
    assert_eq!(of(named), ["instance_name_mismatch"]);
    assert!(of(SignalSight { unknown: TRAFFIC_MIN - 1, ..named }).is_empty());
    assert!(of(SignalSight { named: 1, ..named }).is_empty());
    let skew = SignalSight { skew_ms: Some(SKEW_MS), ..SignalSight::default() };
    assert_eq!(of(skew), ["clock_skew"]);
    assert!(of(SignalSight { skew_ms: Some(SKEW_MS - 1), ..skew }).is_empty());
    let unproven = held(|sight| (sight.is_settled, sight.signal) = (false, skew));
    assert!(unproven.is_empty(), "what is caught up with is old");
    let gone = |ms| held(|sight| (sight.reason, sight.reason_ms) = ("detached", ms));
    assert_eq!(gone(SOURCE_GONE_MS), ["source_gone"]);
    assert!(gone(SOURCE_GONE_MS - 1).is_empty());
    let some = |ago| Some(ago);
    for (news, name) in [
        (
            &(|ms| SignalSight { rollback_ms: some(ms), ..SignalSight::default() })
                as &dyn Fn(u64) -> SignalSight,
            "rollback",
        ),
        (
            &|ms| SignalSight { truncated_ms: some(ms), ..SignalSight::default() },
            "replay_truncated",
        ),
        (&|ms| SignalSight { hole_ms: some(ms), ..SignalSight::default() }, "permanent_hole"),
    ] {
        assert_eq!(of(news(NEWS_MS - 1)), [name]);
        assert!(of(news(NEWS_MS)).is_empty(), "{name} is no news any more");
    }
}

#[test]
fn an_empty_view_of_a_drained_engine_rings_at_once_where_it_shows_why() {
    let (mut signal, mut counts) = (Signal::default(), SignalCounts::default());
    let rings = |signal: &mut Signal, second: u64, counts: &SignalCounts| {
        let (sight, _) = signal.look(Tick(second * 1_000), counts);
        of(sight) == ["view_empty_under_traffic"]
    };
    // Before there is traffic empty answers show nothing.
    let quiet = DrainCounts { asked: 9, answered: 9, empty: 9, at_once: 8, ..Default::default() };
    counts.drain = Some(quiet);
    assert!(!rings(&mut signal, 0, &counts));
    counts.told = TRAFFIC_MIN;
    assert!(!rings(&mut signal, 1, &counts));
    counts.drain = Some(DrainCounts { empty: 11, ..quiet });
    assert!(rings(&mut signal, 2, &counts));
    counts.blocks = 1;
    let (sight, _) = signal.look(Tick(3_000), &counts);
    assert_eq!(sight.drain, None, "a view that holds something needs no excuse");
}

#[test]
fn a_view_is_empty_since_it_lost_its_last_block_and_traffic_is_its_own_where_told() {
    let mut signal = Signal::default();
    let mut counts = SignalCounts { blocks: 1, ..SignalCounts::default() };
    let look = |signal: &mut Signal, second: u64, counts: &SignalCounts| {
        signal.look(Tick(second * 1_000), counts)
    };
    assert_eq!(look(&mut signal, 0, &counts).0.empty_ms, None);
    counts.blocks = 0;
    look(&mut signal, 1, &counts);
    counts.of_model.asked = 7;
    let (sight, requests) = look(&mut signal, 9, &counts);
    assert_eq!((sight.empty_ms, sight.own_request_count, requests), (Some(8_000), 7, 7));
    // Its engine tells: the model's requests go to others.
    counts.served = 2;
    let (sight, requests) = look(&mut signal, 10, &counts);
    assert_eq!((sight.own_request_count, requests), (2, 7));
    counts.told = 5;
    assert_eq!(look(&mut signal, 11, &counts).0.own_request_count, 5);
    counts.blocks = 1;
    assert_eq!(look(&mut signal, 12, &counts).0.empty_ms, None);
}

#[test]
fn a_skew_is_what_no_batch_of_the_window_was_below() {
    let mut signal = Signal::default();
    let mut second = 0;
    let mut look = |skew_ms| {
        second += 1;
        let counts = SignalCounts { skew_ms, ..SignalCounts::default() };
        signal.look(Tick(second * 1_000), &counts).0.skew_ms
    };
    for _ in 0..4 {
        assert_eq!(look(Some(9_000)), None, "too few");
    }
    assert_eq!(look(None), None);
    assert_eq!(look(Some(8_000)), Some(8_000));
    assert_eq!(look(Some(20)), Some(20), "one that came in time");
    for _ in 0..TRAFFIC_WINDOW_SECONDS - 1 {
        assert_eq!(look(Some(7_000)), Some(20));
    }
    assert_eq!(look(Some(7_000)), Some(7_000), "it left the window");
}

fn key(instance: &str) -> ReplicaKey {
    Replica { model: "m".to_owned(), instance: instance.to_owned(), rank: 0 }.key()
}

fn answer(matched_tokens: u64, fallback: Option<&'static str>, reason: &'static str) -> Answer {
    let replica = Replica { model: "m".to_owned(), instance: "a".to_owned(), rank: 0 };
    let found = ReplicaMatch {
        key: replica.key(),
        replica: Arc::new(replica),
        trust: TierTrust::all(Trust::Exact),
        usable: fallback.is_none(),
        reason,
        block_size: Some(16),
        matched_blocks: matched_tokens / 16,
        matched_tokens,
        speculative_tokens: 0,
        by_tier: ByTier::default(),
        as_of: AsOf { cursor: Cursor { epoch: Epoch(1), next_seq: Seq(1) }, at_ms: 0 },
    };
    Answer { replicas: vec![found], fallback }
}

fn query<'a>(prompt: Prompt<'a>, salt: Option<&'a str>) -> Query<'a> {
    Query { model: "m", prompt, lora: None, salt, accept: Trust::Exact, hints: false }
}

#[test]
fn a_prompt_is_repeated_when_it_begins_as_one_a_while_ago_and_somebody_could_be_matched() {
    let (asks, a) = (Asks::default(), key("a"));
    let zero = answer(0, None, "contiguous");
    let tokens: Vec<u32> = (0..80).collect();
    let prompt = query(Prompt::Tokens(&tokens), None);
    let counts = || {
        let (of_model, _) = asks.counts("m", &a);
        (of_model.asked, of_model.repeated, of_model.matched)
    };
    asks.asked(Tick(0), &prompt, Ok(&zero));
    assert_eq!(counts(), (0, 0, 0), "nobody reads this model");
    asks.keep(&[("m", &a)].into());
    asks.asked(Tick(0), &prompt, Ok(&zero));
    asks.asked(Tick(4_999), &prompt, Ok(&zero));
    assert_eq!(counts(), (2, 0, 0), "its engine may not have said so yet");
    let longer: Vec<u32> = (0..200).collect();
    asks.asked(Tick(5_000), &query(Prompt::Tokens(&longer), None), Ok(&zero));
    assert_eq!(counts(), (3, 1, 0));
    asks.asked(Tick(6_000), &prompt, Ok(&answer(16, None, "contiguous")));
    assert_eq!(counts(), (4, 2, 1));
    let untrusted = answer(0, Some("load"), "gap_open");
    asks.asked(Tick(7_000), &prompt, Ok(&untrusted));
    asks.asked(Tick(7_000), &query(Prompt::Tokens(&tokens), Some("s")), Ok(&zero));
    asks.asked(Tick(7_000), &query(Prompt::Tokens(&tokens[..63]), None), Ok(&zero));
    assert_eq!(counts(), (7, 2, 1), "no trust; another salt; too short to say");
    let hashes = query(Prompt::Content { hashes: &[1, 2], block_size: 16 }, None);
    asks.asked(Tick(8_000), &hashes, Ok(&zero));
    asks.asked(Tick(14_000), &hashes, Ok(&zero));
    assert_eq!(counts(), (9, 3, 1));
    asks.asked(Tick(500_000), &prompt, Ok(&zero));
    assert_eq!(counts(), (10, 3, 1), "it may have been evicted");
    asks.keep(&[("other", &a)].into());
    assert_eq!(counts(), (0, 0, 0));
}

#[test]
fn names_and_sizes_are_counted_by_replica() {
    let (asks, a, b) = (Asks::default(), key("a"), key("b"));
    asks.keep(&[("m", &a), ("m", &b)].into());
    let hashes = query(Prompt::Content { hashes: &[1], block_size: 32 }, None);
    asks.asked(Tick(0), &hashes, Ok(&answer(0, None, "block_size")));
    let sizes = || [&a, &b].map(|key| asks.counts("m", key).1.other_size);
    assert_eq!(sizes(), [1, 0]);
    asks.asked(Tick(0), &hashes, Err(&QueryError::BlockSize { used: vec![16] }));
    assert_eq!(sizes(), [2, 1]);
    asks.named("m", Some(&a));
    asks.named("m", None);
    asks.named("nobody's", None);
    let names = || (asks.counts("m", &a).1.named, asks.counts("m", &b).1.named);
    assert_eq!((names(), asks.counts("m", &a).0.unknown), ((1, 0), 1));
    for at in [1_000, 1_500, 2_000] {
        asks.candidates(Tick(at), "m", [Some(&a), None, None].into_iter());
    }
    assert_eq!((names(), asks.counts("m", &a).0.unknown), ((3, 0), 5), "once a second");
    asks.keep(&[("m", &b)].into());
    assert_eq!(names(), (0, 0));
}
