//! Alarms of the bus, with a real server: a stream that is deleted under its readers, and a bridge
//! that is killed.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::bus_reader::{KEY, LOOK, Program, STREAM, World};

/// An alarm clears when it was calm for half a minute.
const LIMIT: Duration = Duration::from_secs(90);

/// What rings there.
async fn ringing(world: &World, of: &Program) -> Vec<String> {
    let text = world.text(&format!("{}/v1/alarms", of.url)).await;
    let listed: Value = serde_json::from_str(&text).unwrap_or_default();
    let all = listed["alarms"].as_array().cloned().unwrap_or_default();
    let of_it = all.iter().filter(|alarm| alarm["replica"] == KEY);
    of_it.map(|alarm| alarm["alarm"].as_str().unwrap().to_owned()).collect()
}

async fn until(world: &World, of: &Program, alarm: &str, rings: bool) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let all = ringing(world, of).await;
        if all.iter().any(|it| it == alarm) == rings {
            return;
        }
        assert!(Instant::now() < deadline, "{alarm} rings: not {rings}, but {all:?}");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test]
async fn a_deleted_stream_and_a_killed_bridge_ring_at_the_reader() {
    let world = World::start("alarms");
    let bridge = world.bridge("300ms").await;
    let index = world.index();
    world.burst(20).await;
    world.is_true(&index).await;
    assert_eq!(ringing(&world, &index).await, [""; 0]);
    world.server.jetstream().await.delete_stream(STREAM).await.unwrap();
    world.burst(5).await;
    world.is_true(&bridge).await;
    world.is_true(&index).await;
    until(&world, &index, "bus_reset", true).await;
    // SIGKILL.
    drop(bridge);
    until(&world, &index, "bridge_silent", true).await;
    let gauge = world.text(&format!("{}/metrics", index.url)).await;
    let line = format!("kvbridge_alarm{{replica=\"{KEY}\",alarm=\"bridge_silent\"}} 1");
    assert!(gauge.contains(&line));
    let bridge = world.bridge("300ms").await;
    world.is_true(&index).await;
    until(&world, &index, "bridge_silent", false).await;
    world.end([bridge, index]);
}
