//! The model of SGLang: every form of its wire, the clear at its start, faults. The snapshot is the
//! truth, at the same seq.

use serde_json::json;

use super::peer::Pair;

/// Traffic with evictions, adapters that share hashes, and turns.
async fn traffic(pair: &Pair) {
    pair.burst(40).await;
    for round in 0..3_u32 {
        let prompt: Vec<u32> = (round * 100..round * 100 + 64).collect();
        let _cached = tokio::join!(
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 40, "fake"),
            pair.complete(&prompt, 20, "adapter"),
        );
        pair.is_true().await;
    }
    pair.burst(40).await;
}

async fn true_with(args: &str) {
    let pair = Pair::of("sglang", args).await;
    traffic(&pair).await;
    pair.is_true().await;
    pair.end();
}

#[tokio::test]
async fn arrays_with_a_page_an_event() {
    true_with("--blocks 64 --encoding 0.5.9").await;
}

#[tokio::test]
async fn arrays_with_salts() {
    true_with("--blocks 64 --encoding 0.5.18").await;
}

#[tokio::test]
async fn maps_with_replay_that_has_no_topic() {
    true_with("--blocks 64 --encoding 0.5.20").await;
}

#[tokio::test]
async fn maps_of_the_newest_release() {
    true_with("--blocks 64").await;
}

#[tokio::test]
async fn host_tier_is_counted_beside_the_device() {
    let pair = Pair::of("sglang", "--blocks 64 --host-blocks 96").await;
    traffic(&pair).await;
    pair.is_true().await;
    let (_, held) = pair.snapshot().await;
    assert!(held.iter().any(|(_, tier, ..)| tier == "host"), "{held:?}");
    pair.end();
}

#[tokio::test]
async fn pages_of_one_token() {
    true_with("--blocks 1024 --block-size 1").await;
}

#[tokio::test]
async fn namespaces_share_hashes_and_are_counted() {
    let pair = Pair::of("sglang", "--blocks 1024").await;
    traffic(&pair).await;
    pair.is_true().await;
    let (_, held) = pair.snapshot().await;
    assert!(held.iter().any(|(.., count)| *count > 1), "{held:?}");
    pair.end();
}

#[tokio::test]
async fn a_flush_is_published_at_once_and_is_exact() {
    let pair = Pair::of("sglang", "--blocks 64").await;
    pair.burst(20).await;
    let before = pair.is_true().await;
    pair.post("/flush_cache").await;
    let after = pair.until_seq(before.next_seq + 1).await;
    assert_eq!((after.epoch, after.trust.as_str()), (before.epoch, "exact"));
    let (_, held) = pair.snapshot().await;
    assert!(held.is_empty(), "{held:?}");
    pair.end();
}

#[tokio::test]
async fn a_restart_is_a_new_epoch_although_its_first_batch_is_missed() {
    for fault in ["restart", "silent_restart"] {
        let pair = Pair::of("sglang", "--blocks 64").await;
        pair.burst(40).await;
        let before = pair.is_true().await;
        pair.fault(json!({"fault": fault})).await;
        pair.burst(5).await;
        pair.until("a new epoch", |status| status.epoch != before.epoch).await;
        pair.is_true().await;
        pair.end();
    }
}

#[tokio::test]
async fn dropped_batches_come_back_by_replay_in_both_framings() {
    for release in ["0.5.20", "0.5.23"] {
        let pair = Pair::of("sglang", &format!("--blocks 64 --encoding {release}")).await;
        let before = pair.is_true().await;
        pair.fault(json!({"fault": "drop", "count": 5})).await;
        pair.burst(12).await;
        assert_eq!(pair.is_true().await.epoch, before.epoch);
        pair.end();
    }
}
