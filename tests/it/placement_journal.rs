//! The placement view, case 5: the gap is older than the engine's replay buffer.

use kvbridge::clock::Clock;
use serde_json::json;

use crate::{
    placement_world::{More, Placement, exact_again},
    proxy::Link,
};

#[tokio::test]
async fn placement_a_gap_older_than_the_journal_is_a_lower_bound_until_a_flush() {
    let placement =
        Placement::start("journal", "--blocks 96 --buffer-steps 8", More::default()).await;
    let before = placement.pair.is_true().await;
    placement.replay.set(Link::Stalled);
    placement.pair.fault(json!({"fault": "drop", "count": 4})).await;
    for _ in 0..6 {
        placement.pair.burst(10).await;
    }
    placement.falls_back("none", "gap_open").await;
    placement.replay.set(Link::Open);
    // Every block that is left was told anew; what was before the gap is not kept.
    placement.pair.is_lower_bound().await;
    placement.falls_back("lower_bound", "history_lost").await;
    assert!(placement.pair.fact("truncated").await >= 1);
    placement.pair.burst(20).await;
    placement.pair.is_lower_bound().await;
    let clock = Clock::start();
    placement.pair.fault(json!({"fault": "clear"})).await;
    placement.pair.burst(10).await;
    let after = exact_again("gap older than the journal, flush", &placement.pair, &clock).await;
    assert_eq!(after.epoch, before.epoch, "the same life");
    placement.pair.end();
}
