//! The placement view, case 1: router or index starts after the caches are populated.

use kvbridge::clock::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    bus_reader::{LIMIT, LOOK, Program, World},
    placement_world::{Placement, exact_again},
    proxy::Link,
};

#[tokio::test]
async fn placement_a_router_that_starts_late_says_so_until_the_journal_has_told_it_all() {
    let placement = Placement::late("late", "--blocks 96", 200, Link::Stalled).await;
    placement.falls_back("none", "joining").await;
    placement.pair.burst(1).await;
    placement.falls_back("none", "joined_late").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    exact_again("late start, whole journal", &placement.pair, &clock).await;
    placement.pair.burst(40).await;
    placement.is_usable().await;
    placement.pair.end();
}

/// The journal no longer has the start: nothing is made up, and a flush heals it.
#[tokio::test]
async fn placement_a_router_that_starts_late_behind_a_short_journal_is_a_lower_bound() {
    let args = "--blocks 96 --buffer-steps 8";
    let placement = Placement::late("late-short", args, 200, Link::Open).await;
    placement.pair.burst(1).await;
    placement.pair.is_lower_bound().await;
    placement.falls_back("lower_bound", "joined_late").await;
    let clock = Clock::start();
    placement.pair.fault(serde_json::json!({"fault": "clear"})).await;
    placement.pair.burst(8).await;
    exact_again("late start, short journal, flush", &placement.pair, &clock).await;
    placement.pair.end();
}

/// The log has everything, and nobody vouches for it while no bridge is there.
#[tokio::test]
async fn placement_an_index_that_starts_late_waits_for_a_bridge_that_vouches() {
    let world = World::start("placement-late");
    let bridge = world.bridge("1h").await;
    world.burst(120).await;
    world.is_true(&bridge).await;
    assert_eq!(bridge.running.end(Some("-TERM")).0, 0);
    let index = world.index();
    let told = until_told(&world, &index, "none").await;
    assert_eq!(told["fallback"], "load", "{told}");
    let clock = Clock::start();
    let bridge = world.bridge("1h").await;
    world.is_true(&index).await;
    println!(
        "placement: late index: exact and true {} ms after a bridge came",
        clock.elapsed().as_millis()
    );
    until_told(&world, &index, "exact").await;
    world.end([bridge, index]);
}

/// Waits until a match says this of the replica, and tells the whole answer.
async fn until_told(world: &World, of: &Program, trust: &str) -> Value {
    let deadline = Instant::now() + LIMIT;
    let body = json!({"model": "fake", "token_ids": [1, 2, 3]}).to_string();
    loop {
        let request = world.client.post(format!("{}/v1/match", of.url)).body(body.clone());
        let text = request.send().await.unwrap().text().await.unwrap();
        let told: Value = serde_json::from_str(&text).unwrap();
        if told["replicas"][0]["trust"] == trust {
            return told;
        }
        assert!(Instant::now() < deadline, "not {trust}: {told}");
        tokio::time::sleep(LOOK).await;
    }
}
