//! The placement view, case 2: the consumer restarts and has lost its memory.

use kvbridge::clock::Clock;

use crate::{
    placement_world::{More, Placement, exact_again},
    proxy::Link,
};

#[tokio::test]
async fn placement_a_consumer_without_memory_believes_nothing_until_it_has_learnt_all_anew() {
    let mut placement = Placement::start("memory", "--blocks 96", More::default()).await;
    placement.pair.burst(100).await;
    placement.is_usable().await;
    let replay = &placement.replay;
    placement
        .pair
        .kill_and_start(async |pair| {
            // The engine does not wait.
            pair.burst(30).await;
            replay.set(Link::Stalled);
        })
        .await;
    placement.pair.burst(1).await;
    placement.falls_back("none", "joined_late").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    exact_again("consumer lost its memory", &placement.pair, &clock).await;
    placement.pair.end();
}

/// Its memory is on disk, and older than what the engine did since.
#[tokio::test]
async fn placement_a_consumer_with_memory_proves_it_before_it_believes_it() {
    let mut placement = Placement::keeping("kept", "--blocks 96").await;
    placement.pair.burst(100).await;
    let before = placement.pair.is_true().await;
    let replay = &placement.replay;
    placement
        .pair
        .stop_and_start(async |pair| {
            pair.burst(30).await;
            replay.set(Link::Stalled);
        })
        .await;
    placement.falls_back("none", "verifying").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    let after = exact_again("consumer with its memory", &placement.pair, &clock).await;
    assert_eq!(after.epoch, before.epoch, "the same life");
    placement.pair.end();
}
