//! The placement view, case 4: a replica restarts: one rank of two, one tensor-parallel member, and
//! while nobody listens.

use kvbridge::clock::Clock;
use serde_json::json;

use crate::{
    fake_engine::peer::Pair,
    placement_world::{More, Placement, exact_again, falls_back, is_usable},
    proxy::Link,
};

#[tokio::test]
async fn placement_a_replica_that_restarts_is_a_new_life_without_ghosts() {
    let placement = Placement::start("restart", "--blocks 96", More::default()).await;
    placement.pair.burst(60).await;
    let before = placement.pair.is_true().await;
    // The new process has said nothing yet: whatever is known is of the old one.
    placement.replay.set(Link::Stalled);
    placement.pair.fault(json!({"fault": "restart"})).await;
    placement.falls_back("none", "verifying").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    placement.pair.burst(30).await;
    let after = exact_again("replica restarts", &placement.pair, &clock).await;
    assert!(after.epoch > before.epoch);
    placement.pair.end();
}

/// The other rank's trust does not change for it.
#[tokio::test]
async fn placement_one_rank_of_two_restarts_and_the_other_is_believed_throughout() {
    let mut pair = Pair::by_server("vllm", "--blocks 96 --dp 2", "--vllm").await;
    let mut before = Vec::new();
    for rank in [0, 1] {
        pair.turn_to(rank);
        pair.burst(20).await;
        before.push(is_usable(&pair).await);
    }
    pair.fault_here(json!({"fault": "restart"})).await;
    // An idle engine proves nothing, so that this lasts until it says something.
    falls_back(&pair, "none", "verifying").await;
    pair.turn_to(0);
    let other = is_usable(&pair).await;
    assert_eq!(other.epoch, before[0].epoch);
    pair.turn_to(1);
    let clock = Clock::start();
    pair.fault_here(json!({"fault": "burst", "count": 20})).await;
    let after = exact_again("one rank of two restarts", &pair, &clock).await;
    assert!(after.epoch > before[1].epoch);
    pair.turn_to(0);
    assert_eq!(is_usable(&pair).await, other, "the other rank was never in doubt");
    pair.end();
}

/// The leader's stream goes on and tells nothing: the member's start time does.
#[tokio::test]
async fn placement_one_tensor_parallel_member_restarts_behind_a_live_leader() {
    let members = |http: &str| {
        let url = |rank: u32| format!("{http}/members/{rank}/metrics");
        ["--member".to_owned(), url(0), "--member".to_owned(), url(1)].to_vec()
    };
    let pair = Pair::start_with("--blocks 96 --tp 2", members).await;
    pair.burst(20).await;
    let before = is_usable(&pair).await;
    let mut after = before.clone();
    while after.epoch == before.epoch {
        // Until it counts: a start moved by less than a second is a clock that was set.
        pair.fault(json!({"fault": "restart_tp_rank", "tp_rank": 1})).await;
        after = pair.status().await;
    }
    let clock = Clock::start();
    pair.burst(10).await;
    let after = exact_again("one TP member restarts", &pair, &clock).await;
    assert!(after.epoch > before.epoch);
    pair.end();
}

/// Nobody saw the old life end; what was kept of it is not believed for a moment.
#[tokio::test]
async fn placement_a_replica_that_restarts_while_nobody_listens_is_a_new_life() {
    let mut placement = Placement::keeping("unseen", "--blocks 96").await;
    placement.pair.burst(60).await;
    let before = placement.pair.is_true().await;
    let replay = &placement.replay;
    placement
        .pair
        .stop_and_start(async |pair| {
            pair.fault(json!({"fault": "restart"})).await;
            // Past the old life's last seq.
            pair.burst(120).await;
            replay.set(Link::Stalled);
        })
        .await;
    placement.falls_back("none", "verifying").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    let after = exact_again("replica restarts unseen", &placement.pair, &clock).await;
    assert!(after.epoch > before.epoch);
    placement.pair.end();
}
