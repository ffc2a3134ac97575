//! What events mean: sizes, tiers, windows, what goes with a removal.

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_trtllm::{Fault, Instance, ServerInfo, Step};
use kvbridge_schemas::Event;
use serde_json::{Value, json};

use crate::{batches, block, created, meaning, removed, steps, stored, with};

/// The last event of an answer, read by one rank whose server tells blocks of 4 tokens.
fn last(events: &[Value]) -> Step {
    let mut instance = Instance::new(0, 1);
    instance.told(&ServerInfo { tokens_per_block: Some(4), ..ServerInfo::default() });
    let body = json!(events).to_string();
    steps(&mut instance, &body).pop().expect("an event")
}

fn hashes(events: &Value, kind: &str) -> Vec<String> {
    let events = events.as_array().expect("a list").iter();
    let of = |event: &Value| match kind {
        "removed" => event["hashes"].as_array().expect("hashes").clone(),
        _ => event["blocks"].as_array().expect("blocks").iter().map(|b| b[0].clone()).collect(),
    };
    let found = events.filter(|event| event["type"] == kind).flat_map(of);
    found.map(|hash| hash.as_str().expect("a text").trim_start_matches('0').to_owned()).collect()
}

#[test]
fn a_chain_is_one_store_and_its_short_end_another() {
    let told =
        meaning(&last(&[created(0), stored(1, None, &[block(1, 4), block(2, 4), block(3, 2)])]));
    assert_eq!(told.as_array().unwrap().len(), 2);
    assert_eq!((&told[0]["token_count"], &told[0]["partial"]), (&json!(8), &Value::Null));
    assert_eq!((&told[1]["token_count"], &told[1]["partial"]), (&json!(2), &json!(true)));
    assert_eq!(told[1]["parent"], "0000000000000002");
    assert_eq!(told[1]["blocks"][0][1], Value::Null);
}

#[test]
fn a_block_that_is_too_long_costs_the_rest_of_its_chain() {
    let step = last(&[created(0), stored(1, None, &[block(1, 4), block(2, 5), block(3, 4)])]);
    assert_eq!(step.faults, [Fault::LongBlock { block_size: 4 }]);
    let batches = batches(&step);
    assert_eq!((batches[0].1.loss, batches[0].1.events.len()), (Loss::Stores, 1));
}

#[test]
fn without_a_server_that_tells_it_the_size_shows_in_a_chain() {
    let mut instance = Instance::new(0, 1);
    let alone = stored(1, None, &[block(1, 4)]);
    let chain = stored(2, None, &[block(2, 4), block(3, 1)]);
    let after = stored(3, None, &[block(4, 4)]);
    let read = steps(&mut instance, &json!([created(0), alone, chain, after]).to_string());
    // Nobody can tell whether a block by itself is whole.
    assert_eq!(meaning(&read[1])[0]["partial"], true);
    assert_eq!(meaning(&read[2])[0]["partial"], Value::Null);
    assert_eq!(meaning(&read[3])[0]["partial"], Value::Null);
}

#[test]
fn a_removal_takes_what_hangs_below_and_names_each_tier() {
    let moved = json!({"type": "updated", "block_hash": 3, "priority": null,
        "cache_level": {"type": "event_diff", "new_value": 1, "old_value": 0}});
    let moved = json!({"event_id": 3, "data": moved, "window_size": 256});
    let events = [
        created(0),
        stored(1, None, &[block(1, 4), block(2, 4), block(3, 4)]),
        stored(2, Some(1), &[block(4, 4), block(5, 2)]),
        moved,
        removed(4, &[2, 2]),
    ];
    let told = meaning(&last(&events));
    assert_eq!(hashes(&told, "removed"), ["2", "3"]);
    assert_eq!((&told[0]["tier"], &told[1]["tier"]), (&json!("device"), &json!("host")));
    let more = [&events[..], &[removed(5, &[1])]].concat();
    assert_eq!(hashes(&meaning(&last(&more)), "removed"), ["1", "4", "5"]);
    let again = [&more[..], &[removed(6, &[1, 9])]].concat();
    assert_eq!(meaning(&last(&again)), json!([]));
}

#[test]
fn a_block_stored_again_is_one_block() {
    let first = stored(1, None, &[block(1, 4), block(2, 4)]);
    let again = stored(2, None, &[block(1, 4), block(2, 4), block(3, 4)]);
    let told = meaning(&last(&[created(0), first.clone(), again]));
    assert_eq!(hashes(&told, "stored"), ["3"]);
    let mut elsewhere = block(2, 4);
    elsewhere["cache_level"] = json!(2);
    let told = meaning(&last(&[created(0), first, stored(2, Some(1), &[elsewhere])]));
    assert_eq!(
        (hashes(&told, "removed"), hashes(&told, "stored")),
        (vec!["2".into()], vec!["2".into()])
    );
    assert_eq!(told[1]["tier"], "disk");
}

#[test]
fn the_largest_window_and_its_lowest_group_are_kept_and_all_ids_count() {
    let of = |event: Value, window: u64, group: u32| {
        with(with(event, "window_size", window), "layer_group_id", group)
    };
    let mut instance = Instance::new(0, 1);
    let chain = [block(1, 4), block(2, 4)];
    let body = json!([
        of(created(0), 128, 0),
        of(created(1), 256, 2),
        of(created(2), 256, 1),
        of(stored(3, None, &chain), 128, 0),
        of(stored(4, None, &chain), 256, 2),
        of(stored(5, None, &chain), 256, 1),
        of(removed(6, &[1]), 256, 2),
        of(removed(7, &[2]), 256, 1),
    ]);
    let read = steps(&mut instance, &body.to_string());
    let counts: Vec<usize> =
        read.iter().map(|step| meaning(step).as_array().unwrap().len()).collect();
    assert_eq!(counts, [0, 0, 0, 0, 0, 1, 0, 1]);
    let seqs: Vec<u64> = read.iter().map(|step| batches(step)[0].1.seq.0).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_larger_window_that_shows_late_clears_what_was_kept() {
    let mut instance = Instance::new(0, 1);
    let small = |event| with(event, "window_size", 128);
    let body = json!([
        small(stored(7, None, &[block(1, 4), block(2, 4)])),
        stored(8, None, &[block(1, 4), block(2, 4)]),
        small(removed(9, &[1])),
    ]);
    let read = steps(&mut instance, &body.to_string());
    assert_eq!(kinds_of(&read[0]), ["stored"]);
    assert_eq!(kinds_of(&read[1]), ["cleared", "stored"]);
    assert_eq!(kinds_of(&read[2]), Vec::<Value>::new());
}

/// A clear of ours is nothing that an engine sends, so it is looked at by itself.
fn kinds_of(step: &Step) -> Vec<Value> {
    let kind = |event: &Event| match event {
        Event::Cleared(_) => json!("cleared"),
        Event::Stored(_) => json!("stored"),
        other => panic!("not expected: {other:?}"),
    };
    batches(step)[0].1.events.iter().map(kind).collect()
}

#[test]
fn tokens_may_be_digests_negative_or_have_extra_ids() {
    let token = |id: Value, extra: u64| json!({"token_id": id, "token_extra_id": extra});
    let with_tokens = |tokens: Vec<Value>| json!({"block_hash": "0a", "tokens": tokens});
    let digest = "ab".repeat(32);
    let media = with_tokens(vec![
        token(json!(digest), 0),
        token(json!(9), 0),
        token(json!(9), 0),
        token(json!(9), 0),
    ]);
    let told = meaning(&last(&[created(0), stored(1, None, &[media])]));
    assert_eq!(told[0]["blocks"], json!([["0a", null]]));
    assert_eq!(told[0]["token_count"], 0);
    let extra = with_tokens(vec![
        token(json!(-1), 0),
        token(json!(2), 7),
        token(json!(3), 0),
        token(json!(4), 0),
    ]);
    let told = meaning(&last(&[created(0), stored(1, None, &[extra])]));
    let bytes = format!("{}{}{}", "00".repeat(8), "0700000000000000", "00".repeat(16));
    assert_eq!(told[0]["extra"], json!([[{"bytes": bytes}]]));
}

#[test]
fn an_algorithm_is_named_by_the_event_or_the_server() {
    let scheme = |event: &Value, algorithm: Option<&str>| {
        let mut instance = Instance::new(0, 1);
        let kv_cache_hash_algo = algorithm.map(str::to_owned);
        instance.told(&ServerInfo { kv_cache_hash_algo, tokens_per_block: None });
        let step = steps(&mut instance, &json!([event]).to_string()).pop().unwrap();
        batches(&step)[0].1.hash.scheme.as_str().to_owned()
    };
    let named = with(created(0), "hash_algo", "v2_sha256_64");
    assert_eq!(scheme(&created(0), None), "trtllm.v1_block_key");
    assert_eq!(scheme(&created(0), Some("v2_sha256")), "trtllm.v2_sha256");
    assert_eq!(scheme(&named, Some("v2_sha256")), "trtllm.v2_sha256_64");
    assert_eq!(scheme(&with(created(0), "hash_algo", "homegrown"), None), "unknown");
}
