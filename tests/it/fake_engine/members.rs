//! What an engine says of itself over HTTP: members that start anew, and the size of its cache.

use std::time::Duration;

use serde_json::json;

use super::peer::Pair;

/// Nobody listens there.
const AWAY: &str = "http://127.0.0.1:9/metrics";

fn members(http: &str) -> Vec<String> {
    let urls = [format!("{http}/members/0/metrics"), format!("{http}/members/1/metrics")];
    let urls = urls.into_iter().chain([AWAY.to_owned()]);
    urls.flat_map(|url| ["--member".to_owned(), url]).collect()
}

#[tokio::test]
async fn a_tp_rank_that_restarts_behind_a_live_leader_is_a_new_epoch() {
    let pair = Pair::start_with("--blocks 64 --tp 2", members).await;
    pair.burst(20).await;
    let before = pair.is_true().await;
    let polled = "kvbridge_engine_polls_failed_total{replica=\"fake.i=3A1.0\"} ";
    let polls = |text: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(polled));
        value.map_or(0, |value| value.parse().unwrap())
    };
    // Looked at several times, once in vain each: one that is away has not started anew.
    while polls(&pair.bridge_metrics().await) < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pair.status().await, before);
    let mut after = before.clone();
    while after.epoch == before.epoch {
        // The leader and its stream go on. Until it counts: a start moved by less than a second is
        // a clock that was set.
        pair.fault(json!({"fault": "restart_tp_rank", "tp_rank": 1})).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        after = pair.status().await;
    }
    assert!(after.epoch > before.epoch);
    pair.burst(3).await;
    assert!(pair.is_true().await.next_seq > before.next_seq);
    pair.end();
}

#[tokio::test]
async fn the_pool_that_the_engine_tells_bounds_the_view() {
    let metrics = |http: &str| vec!["--metrics".to_owned(), format!("{http}/metrics")];
    for engine in ["vllm", "sglang"] {
        // With its host tier the engine holds far more than two pools of its device.
        let pair = Pair::begin(engine, "--blocks 32 --host-blocks 256", metrics);
        pair.burst(3).await;
        let status = pair.until("over its limit", |status| status.reason == "over_limit").await;
        assert_eq!(status.trust, "none", "{engine}");
        pair.end();
    }
}
