//! The model of TensorRT-LLM: what one reader takes no other sees, and nothing comes twice.

use serde_json::json;

use super::peer::{Pair, Status};

/// A fake engine that waits less than the real one, and a bridge that reads so many ranks of it.
fn begin(args: &str, ranks: &str) -> Pair {
    let args = format!("--drain-wait-ms 60 --blocks 64 --dp {ranks} {args}");
    Pair::begin("trtllm", &args, |_| vec!["--dp".to_owned(), ranks.to_owned()])
}

async fn started(args: &str) -> Pair {
    let pair = begin(args, "1");
    pair.burst(3).await;
    pair.reach("exact").await;
    pair
}

/// The very blocks of the engine, whatever is said of them.
async fn holds_the_truth(pair: &Pair) {
    let ((_, truth), (_, held)) = (pair.truth().await, pair.snapshot().await);
    assert_eq!(held, truth);
    assert!(!truth.is_empty());
}

#[tokio::test]
async fn the_newer_manager_with_evictions_adapters_and_turns_is_exact() {
    let pair = started("").await;
    for round in 0..3_u32 {
        let prompt: Vec<u32> = (round * 100..round * 100 + 64).collect();
        let _cached = tokio::join!(
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 20, "adapter"),
        );
        pair.burst(20).await;
        pair.is_true().await;
    }
    pair.end();
}

#[tokio::test]
async fn the_older_manager_is_a_lower_bound_that_misses_nothing_here() {
    let pair = begin("--encoding 1.2", "1");
    pair.burst(40).await;
    let status = pair.is_lower_bound().await;
    assert_eq!(status.reason, "unannounced");
    holds_the_truth(&pair).await;
    pair.burst(40).await;
    pair.is_lower_bound().await;
    holds_the_truth(&pair).await;
    pair.end();
}

#[tokio::test]
async fn a_restart_is_a_new_epoch_without_ghosts() {
    let pair = started("").await;
    pair.burst(40).await;
    let mut before = pair.is_true().await;
    for life in 0..2 {
        pair.fault(json!({"fault": "restart"})).await;
        // The second one has more events than the first ever had.
        pair.burst(if life == 0 { 2 } else { 60 }).await;
        let after = pair.is_true().await;
        assert!(after.epoch > before.epoch, "{after:?}, was {before:?}");
        before = after;
    }
    pair.end();
}

#[tokio::test]
async fn a_buffer_that_overflows_ends_trust_in_what_was_known() {
    // Room enough that what it drops is not held against another reader.
    let pair = started("--buffer-steps 80").await;
    let before = pair.is_true().await;
    // All at once: no reader is that fast.
    pair.burst(300).await;
    let after = pair.is_lower_bound().await;
    assert_eq!((after.reason.as_str(), after.epoch), ("history_lost", before.epoch));
    assert!(pair.fact_of(0, "gap").await > 0);
    // Only another life is exact again.
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(2).await;
    assert!(pair.is_true().await.epoch > before.epoch);
    pair.end();
}

#[tokio::test]
async fn two_pollers_are_never_exact() {
    let pair = started("").await;
    let is_robbed = |status: &Status| status.trust == "lower_bound";
    let mut stolen = 0;
    while !is_robbed(&pair.status().await) {
        pair.burst(4).await;
        stolen += pair.post("/kv_cache_events").await.matches("event_id").count();
        pair.burst(1).await;
    }
    assert!(stolen > 0);
    while !pair.rings("competing_consumer").await {
        pair.burst(4).await;
        pair.post("/kv_cache_events").await;
        let status = pair.until("settled", |status| status.trust != "none").await;
        assert_eq!(status.trust, "lower_bound");
    }
    // The other one is gone, what it took is not back.
    pair.burst(4).await;
    let robbed = pair.is_lower_bound().await;
    assert_eq!(robbed.reason, "competing_consumer");
    assert!(pair.fact_of(0, "gap").await > 0);
    // Only another life is exact again.
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(2).await;
    assert!(pair.is_true().await.epoch > robbed.epoch);
    pair.end();
}

#[tokio::test]
async fn a_gap_of_one_rank_demotes_all_ranks_of_the_engine() {
    let mut pair = begin("", "2");
    for rank in [0, 1] {
        pair.turn_to(rank);
        pair.burst(10).await;
        pair.is_true().await;
    }
    pair.fault_here(json!({"fault": "drop", "count": 2})).await;
    pair.burst(10).await;
    pair.until("demoted", |status| status.trust == "lower_bound").await;
    // A rank that was cleared knows its place again with its next event.
    pair.burst(4).await;
    for rank in [1, 0] {
        pair.turn_to(rank);
        assert_eq!(pair.is_lower_bound().await.reason, "history_lost");
    }
    assert_eq!(pair.fact_of(0, "gap").await, 0);
    assert!(pair.fact_of(1, "gap").await > 0);
    let mut before = Vec::new();
    for rank in [0, 1] {
        pair.turn_to(rank);
        before.push(pair.status().await.epoch);
    }
    // A restart of the process is one of all its ranks.
    pair.fault(json!({"fault": "restart"})).await;
    pair.burst(4).await;
    for (rank, before) in [0, 1].into_iter().zip(before) {
        pair.turn_to(rank);
        assert!(pair.is_true().await.epoch > before);
    }
    pair.end();
}

#[tokio::test]
async fn an_event_that_cannot_be_read_costs_what_it_may_have_been() {
    for (fault, trust) in [("undecodable_event", "lower_bound"), ("unknown_tag", "none")] {
        let pair = started("").await;
        pair.fault(json!({"fault": fault})).await;
        pair.burst(4).await;
        assert_ne!(pair.reach(trust).await.reason, "contiguous");
        pair.end();
    }
}
