//! The model of TensorRT-LLM's native stream, as its sources describe it: both sinks, stores that
//! are left out without a word, and never more than a lower bound.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::peer::{Block, Pair, Status};

const SINKS: [&str; 2] = ["python", "cpp"];

async fn begin(sink: &str, args: &str) -> Pair {
    let pair =
        Pair::begin("trtllm", &format!("--native {sink} --blocks 64 {args}"), |_| Vec::new());
    pair.burst(3).await;
    untold(&pair).await;
    pair
}

/// All that the engine said is known, nothing is held that is gone, and no more is believed.
async fn untold(pair: &Pair) -> Status {
    let status = pair.is_lower_bound().await;
    assert_eq!(status.reason, "unannounced");
    status
}

/// What the engine has and the bridge does not know of.
async fn missing(pair: &Pair) -> BTreeSet<Block> {
    let ((_, truth), (_, held)) = (pair.truth().await, pair.snapshot().await);
    truth.difference(&held).cloned().collect()
}

async fn misses_nothing(pair: &Pair) -> Status {
    let status = untold(pair).await;
    let missing = missing(pair).await;
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!pair.truth().await.1.is_empty());
    status
}

/// What its own hashes were compared with.
async fn hashes(pair: &Pair) -> Value {
    let status = pair.client.get(&pair.replica_url).send().await.unwrap().text().await.unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    status["hashes"].clone()
}

/// What a router is told that takes a lower bound for what it is.
async fn matched(pair: &Pair, tokens: &[u32]) -> Value {
    let (url, _) = pair.replica_url.split_once("/v1/").unwrap();
    let body = json!({"model": "fake", "token_ids": tokens, "accept": "lower_bound"}).to_string();
    let answer = pair.client.post(format!("{url}/v1/match")).body(body).send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["replicas"][0].clone()
}

fn prompt(first: u32, count: u32) -> Vec<u32> {
    (first..first + count).collect()
}

#[tokio::test]
async fn evictions_adapters_and_turns_are_a_lower_bound_that_misses_nothing_here() {
    for sink in SINKS {
        let pair = begin(sink, "").await;
        // What is published waits for nobody else.
        assert_eq!(pair.post("/kv_cache_events").await, "[]");
        for round in 0..3 {
            let prompt = prompt(round * 100, 64);
            let _cached = tokio::join!(
                pair.complete(&prompt, 40, "fake"),
                pair.complete(&prompt, 40, "fake"),
                pair.complete(&prompt, 20, "adapter"),
            );
            pair.burst(20).await;
            misses_nothing(&pair).await;
        }
        let hashes = hashes(&pair).await;
        assert_eq!(hashes["scheme"], "trtllm.v2_sha256_64", "{hashes}");
        assert!(hashes["equal"].as_u64().unwrap() >= 30, "{hashes}");
        assert!(!pair.rings("hash_scheme_mismatch").await);
        pair.end();
    }
}

#[tokio::test]
async fn a_prompt_is_matched_by_its_tokens() {
    let pair = begin("cpp", "").await;
    let prompt = prompt(500, 64);
    pair.complete(&prompt, 1, "fake").await;
    untold(&pair).await;
    let told = matched(&pair, &prompt).await;
    assert_eq!((&told["matched_tokens"], &told["trust"]), (&json!(64), &json!("lower_bound")));
    // An adapter that has a number and no name matches nothing, rather than everybody.
    let other = self::prompt(9_000, 64);
    pair.complete(&other, 1, "adapter").await;
    misses_nothing(&pair).await;
    assert_eq!(matched(&pair, &other).await["matched_tokens"], 0);
    pair.end();
}

#[tokio::test]
async fn a_gap_is_repaired_by_replay() {
    for (sink, faults) in [
        ("python", [json!({"fault": "drop", "count": 3})].as_slice()),
        ("cpp", &[json!({"fault": "drop", "count": 3}), json!({"fault": "end_lost", "on": true})]),
    ] {
        let pair = begin(sink, "").await;
        let before = untold(&pair).await;
        for fault in faults {
            pair.fault(fault.clone()).await;
        }
        pair.burst(8).await;
        let after = misses_nothing(&pair).await;
        assert_eq!(after.epoch, before.epoch);
        assert!(pair.fact("gap").await > 0 && pair.fact("replayed").await > 0);
        pair.end();
    }
}

#[tokio::test]
async fn what_is_in_no_journal_is_history_that_is_lost() {
    let pair = begin("python", "").await;
    pair.fault(json!({"fault": "hole", "count": 2})).await;
    pair.fault(json!({"fault": "drop", "count": 2})).await;
    pair.burst(8).await;
    let status = pair.is_lower_bound().await;
    assert_eq!(status.reason, "history_lost");
    pair.end();
}

#[tokio::test]
async fn stores_left_out_are_never_exact_and_leave_no_ghost() {
    for sink in SINKS {
        let pair = begin(sink, "").await;
        let before = misses_nothing(&pair).await;
        let prompt = prompt(500, 96);
        pair.fault(json!({"fault": "leave_out", "count": 1})).await;
        pair.complete(&prompt[..32], 1, "fake").await;
        // Nothing was said, so nothing shows it: not even a seq.
        let after = untold(&pair).await;
        assert_eq!((after.next_seq, after.epoch), (before.next_seq, before.epoch));
        assert_eq!(missing(&pair).await.len(), 2);
        assert_eq!(matched(&pair, &prompt).await["matched_tokens"], 0);
        assert_eq!(pair.fact("store_missing").await, 0);
        // One sink says what hangs below; that proves it.
        pair.complete(&prompt, 1, "fake").await;
        untold(&pair).await;
        let (proofs, untold_count) = if sink == "python" { (1, 2) } else { (0, 6) };
        assert_eq!(pair.fact("store_missing").await, proofs, "{sink}");
        assert_eq!(missing(&pair).await.len(), untold_count, "{sink}");
        assert_eq!(matched(&pair, &prompt).await["matched_tokens"], 0);
        // All of it is evicted: removals of what was never told contradict nothing.
        pair.burst(100).await;
        untold(&pair).await;
        assert_eq!(pair.fact("anomaly").await, 0);
        assert_eq!(matched(&pair, &prompt).await["matched_tokens"], 0);
        pair.end();
    }
}

#[tokio::test]
async fn a_bound_that_every_step_reaches_is_a_lower_bound() {
    for sink in SINKS {
        let pair = begin(sink, "--max-entries 1").await;
        let mut missed = 0;
        for round in 0..8 {
            pair.burst(8).await;
            pair.complete(&prompt(round * 1_000, 64), 20, "fake").await;
            untold(&pair).await;
            missed += missing(&pair).await.len();
        }
        assert!(missed > 0, "the bound was never reached");
        assert_eq!(pair.fact("anomaly").await + pair.fact("gap").await, 0);
        assert_eq!(pair.fact("store_missing").await > 0, sink == "python");
        pair.end();
    }
}

#[tokio::test]
async fn a_restart_is_a_new_epoch_without_ghosts() {
    for (sink, fault) in [("python", "restart"), ("cpp", "restart"), ("cpp", "silent_restart")] {
        let pair = begin(sink, "").await;
        pair.burst(40).await;
        let mut before = misses_nothing(&pair).await;
        for life in 0..2 {
            pair.fault(json!({"fault": fault})).await;
            // The second one has more batches than the first ever had.
            pair.burst(if life == 0 { 2 } else { 60 }).await;
            pair.until("another life", |status| status.epoch > before.epoch).await;
            before = misses_nothing(&pair).await;
        }
        pair.end();
    }
}

#[tokio::test]
async fn a_late_start_learns_all_from_the_journal_or_says_that_it_is_gone() {
    let pair = Pair::late(("trtllm", "--native cpp --blocks 64", ""), 40, &[]).await;
    misses_nothing(&pair).await;
    pair.end();
    let short = "--native cpp --blocks 64 --buffer-steps 5";
    let pair = Pair::late(("trtllm", short, ""), 40, &[]).await;
    assert_eq!(pair.is_lower_bound().await.reason, "joined_late");
    // Blocks below such as were told before it came: no store was left out.
    pair.burst(40).await;
    pair.is_lower_bound().await;
    assert_eq!(pair.fact("store_missing").await, 0);
    pair.end();
}

#[tokio::test]
async fn a_view_that_was_kept_goes_on_and_is_no_better_for_it() {
    let state = crate::harness::folder("native-kept");
    let args = "--native python --blocks 64";
    let mut pair = Pair::begin_keeping("trtllm", args, state);
    pair.burst(20).await;
    let before = misses_nothing(&pair).await;
    pair.stop_and_start(async |pair| pair.burst(5).await).await;
    let after = misses_nothing(&pair).await;
    assert_eq!(after.epoch, before.epoch);
    pair.end();
}

#[tokio::test]
async fn an_event_that_cannot_be_read_costs_what_it_may_have_been() {
    for (fault, trust) in [("undecodable_event", "lower_bound"), ("unknown_tag", "none")] {
        let pair = begin("cpp", "").await;
        pair.fault(json!({"fault": fault})).await;
        pair.burst(4).await;
        assert_ne!(pair.reach(trust).await.reason, "unannounced");
        pair.end();
    }
}
