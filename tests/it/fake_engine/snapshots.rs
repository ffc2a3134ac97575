//! SGLang's drafts: a life in every topic, and snapshots of hashes without tiers or content.

use serde_json::{Value, json};

use super::peer::Pair;
use crate::peer::scratch;

/// The journal ends long before a bridge comes that is late.
const SHORT: &str = "--blocks 64 --buffer-steps 8 --snapshot 0";

/// More than the journal holds.
const LATE: u64 = 60;

async fn late(args: &str, faults: &[Value]) -> Pair {
    Pair::late(("sglang", args, ""), LATE, faults).await
}

#[tokio::test]
async fn a_late_bridge_is_exact_by_hashes_and_matches_no_tokens() {
    let pair = late(SHORT, &[]).await;
    let before = pair.is_true().await;
    assert_eq!((pair.fact("truncated").await, pair.fact("installed").await), (1, 1));
    // What comes now has content; what the snapshot told has none.
    pair.burst(2).await;
    pair.is_true().await;
    let prompt: Vec<u32> = (0..64).collect();
    pair.complete(&prompt, 1, "fake").await;
    pair.is_true().await;
    let found = pair.matched(&prompt).await;
    assert_eq!((&found["usable"], &found["reason"]), (&json!(false), &json!("no_content")));
    // Connections stay and nothing is compared: the life in the topic is all that tells.
    pair.fault(json!({"fault": "silent_restart"})).await;
    pair.complete(&prompt, 1, "fake").await;
    let after = pair.is_true().await;
    assert!(after.epoch > before.epoch);
    assert_eq!((pair.fact("rollback").await, pair.fact("digest_mismatch").await), (0, 0));
    let found = pair.matched(&prompt).await;
    assert_eq!((&found["usable"], &found["matched_blocks"]), (&json!(true), &json!(4)));
    pair.end();
}

#[tokio::test]
async fn answers_that_are_none_are_named_and_asked_for_again() {
    let fault = |name: &str| json!({"fault": name, "count": 1});
    let pair =
        late(SHORT, &["snapshot_busy", "snapshot_short", "snapshot_garbled"].map(fault)).await;
    pair.is_true().await;
    for fact in ["busy", "short", "inconsistent", "installed"] {
        assert_eq!(pair.fact(fact).await, 1, "{fact}");
    }
    pair.end();
}

#[tokio::test]
async fn without_an_answer_the_view_goes_on_as_a_lower_bound() {
    // Few attempts: each waits twice as long as the one before.
    let path = scratch("snapshots_refused.toml");
    std::fs::write(&path, "[recovery]\nattempts = 2\n").unwrap();
    let config = format!("--config {}", path.display());
    let busy = json!({"fault": "snapshot_busy", "count": 1000});
    let pair = Pair::late(("sglang", SHORT, &config), LATE, &[busy]).await;
    pair.is_lower_bound().await;
    assert_eq!((pair.fact("busy").await, pair.fact("snapshot_failed").await), (2, 1));
    assert_eq!(pair.fact("installed").await, 0);
    pair.burst(4).await;
    pair.is_lower_bound().await;
    pair.end();
}

/// Its operator says that it is plain, and it is not.
#[tokio::test]
async fn an_engine_with_a_host_tier_is_found_out() {
    let pair = late(&format!("{SHORT} --host-blocks 96"), &[]).await;
    pair.until("found out", |status| status.trust == "lower_bound").await;
    pair.burst(20).await;
    pair.is_lower_bound().await;
    assert_eq!(pair.fact("disproved").await, 1);
    pair.end();
}
