//! What the engine's journal lost before a bridge could read it is a reset on the bus: readers
//! converge with the bridge, whatever they knew, and a flush makes all of them exact.

use std::collections::BTreeSet;

use async_nats::jetstream::kv::Store;
use kvbridge::schemas::Event;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    bus_reader::{KEY, LIMIT, LOOK, Program, STREAM, World},
    fake_engine::peer::{Block, lines},
    nats_server::Server,
};

/// What a kvbridge holds, with the seq; nothing while it may not be believed.
async fn held(world: &World, of: &Program) -> Option<(u64, String, BTreeSet<Block>)> {
    let text = world.text(&format!("{}/v1/replicas/{KEY}/snapshot", of.url)).await;
    if !text.contains("\"resume_seq\"") {
        return None;
    }
    let (head, held) = lines(&text);
    let trust = head["trust"].as_str().unwrap().to_owned();
    (trust != "none").then(|| (head["resume_seq"].as_u64().unwrap(), trust, held))
}

/// Waits until it is a lower bound at the engine's seq. At no look does it list a block that the
/// engine does not hold.
async fn lower_bound(world: &World, of: &Program) -> BTreeSet<Block> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let (head, truth) = lines(&world.text(&format!("{}/truth?rank=0", world.fake_url)).await);
        let next_seq = head["next_seq"].as_u64().unwrap();
        let found = held(world, of).await;
        if let Some((seq, trust, held)) = &found
            && *seq == next_seq
        {
            let ghosts: Vec<_> = held.difference(&truth).take(3).collect();
            assert!(ghosts.is_empty(), "{trust} with ghosts {ghosts:?}");
            if trust == "lower_bound" && head["pending"] == false {
                return held.clone();
            }
        }
        assert!(Instant::now() < deadline, "engine {head}, reader {}", world.status(of).await);
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a reader holds what its bridge does.
async fn agrees(world: &World, reader: &Program, bridge: &Program) {
    let wanted = lower_bound(world, bridge).await;
    let deadline = Instant::now() + LIMIT;
    while lower_bound(world, reader).await != wanted {
        assert!(Instant::now() < deadline, "the reader holds other blocks than its bridge");
        tokio::time::sleep(LOOK).await;
    }
}

/// Where readers are sent.
async fn pointers(world: &World) -> Store {
    world.server.jetstream().await.get_key_value("KVSNAPPTR").await.unwrap()
}

#[tokio::test]
async fn a_hole_for_good_empties_every_reader_and_a_flush_makes_all_exact() {
    let world = World::of("--buffer-steps 16", Server::started("hole-for-good"), false);
    let bridge = world.bridge("1h").await;
    let index = world.index();
    world.burst(40).await;
    world.is_true(&index).await;
    let before = pointers(&world).await.get(KEY).await.unwrap().unwrap();
    world.fault(json!({"fault": "drop", "count": 60})).await;
    world.burst(100).await;
    agrees(&world, &index, &bridge).await;
    let messages = world.server.read(STREAM).await;
    let is_reset = |event: &Event| matches!(event, Event::Reset(_));
    let resets = messages.iter().filter(|m| m.envelope.events.iter().any(is_reset));
    assert_eq!(resets.count(), 1);
    assert_eq!(world.fact(&index, "reset").await, 1, "the view that was fetched is behind it");
    let fresh = world.index();
    agrees(&world, &fresh, &bridge).await;
    assert_eq!(world.fact(&fresh, "reset").await, 0, "so is the one that is stored");
    // As if none had been stored since: from there the reset is met, and what is behind it asked
    // for.
    let store = pointers(&world).await;
    assert_ne!(store.get(KEY).await.unwrap().unwrap(), before);
    store.put(KEY, before).await.unwrap();
    let late = world.index();
    agrees(&world, &late, &bridge).await;
    assert_eq!(world.fact(&late, "reset").await, 1);
    assert_eq!(world.fact(&late, "installed").await, 2);
    world.burst(20).await;
    for reader in [&index, &fresh, &late] {
        agrees(&world, reader, &bridge).await;
    }
    world.fault(json!({"fault": "clear"})).await;
    world.burst(10).await;
    for program in [&bridge, &index, &fresh, &late] {
        world.is_true(program).await;
    }
    world.end([bridge, index, fresh, late]);
}
