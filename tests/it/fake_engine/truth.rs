//! Healthy engines of several releases and shapes: the snapshot is the truth, at the same seq.

use super::peer::Pair;

/// Traffic with evictions, copies, adapters and turns.
async fn traffic(pair: &Pair) {
    pair.burst(60).await;
    for round in 0..4_u32 {
        let prompt: Vec<u32> = (round * 100..round * 100 + 64).collect();
        // Whole blocks, twice at once, greedy: the same output blocks twice.
        let _cached = tokio::join!(
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 20, "adapter"),
        );
        pair.is_true().await;
    }
    pair.burst(60).await;
}

async fn true_with(args: &str) {
    let pair = Pair::start(args).await;
    traffic(&pair).await;
    pair.is_true().await;
    assert!(pair.metrics().await.contains("vllm:prefix_cache_hits_total{engine=\"0\""));
    pair.end();
}

#[tokio::test]
async fn the_newest_release_with_copies_and_evictions() {
    true_with("--blocks 64").await;
}

#[tokio::test]
async fn twins_hold_copies_that_are_counted() {
    let pair = Pair::start("--blocks 1024").await;
    traffic(&pair).await;
    pair.is_true().await;
    let (_, held) = pair.snapshot().await;
    assert!(held.iter().any(|(.., count)| *count > 1), "{held:?}");
    pair.end();
}

#[tokio::test]
async fn a_sliding_group_beside_the_full_one() {
    true_with("--blocks 96 --sliding-window 64").await;
}

#[tokio::test]
async fn a_host_tier_with_removals() {
    true_with("--blocks 64 --host-blocks 40").await;
}

#[tokio::test]
async fn arrays_with_whole_hashes() {
    true_with("--encoding 0.16 --blocks 64 --hashes bytes").await;
}

#[tokio::test]
async fn groups_and_host_bytes_of_the_last_array_release() {
    true_with("--encoding 0.23 --blocks 96 --sliding-window 48 --host-blocks 30").await;
}

#[tokio::test]
async fn the_first_release() {
    true_with("--encoding 0.9.1 --blocks 64").await;
}

#[tokio::test]
async fn a_hit_is_reported_and_true_metrics_are_served() {
    let pair = Pair::start("--blocks 64 --tp 2").await;
    let prompt: Vec<u32> = (7000..7040).collect();
    assert_eq!(pair.complete(&prompt, 1, "fake").await, 0);
    assert_eq!(pair.complete(&prompt, 1, "fake").await, 32);
    assert_eq!(pair.complete(&prompt, 1, "adapter").await, 0);
    pair.is_true().await;
    let metrics = pair.metrics().await;
    for line in ["num_gpu_blocks=\"64\"", "block_size=\"16\"", "process_start_time_seconds "] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let member = |metrics: &str, rank: u32| {
        let name =
            format!("fake_engine_member_start_time_seconds{{engine=\"0\",tp_rank=\"{rank}\"}}");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap();
        line.to_owned()
    };
    pair.fault(serde_json::json!({"fault": "restart_tp_rank", "tp_rank": 1})).await;
    let after = pair.metrics().await;
    assert_eq!(member(&metrics, 0), member(&after, 0));
    assert_ne!(member(&metrics, 1), member(&after, 1));
    pair.end();
}
