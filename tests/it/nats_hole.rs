//! What the engine's journal lost before a bridge could read it is a reset on the bus: readers
//! converge with the bridge, whatever they knew, and a flush makes all of them exact.

use std::{collections::BTreeSet, path::Path};

use kvbridge::schemas::Event;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    bus_reader::{KEY, LIMIT, LOOK, Program, STREAM, World},
    fake_engine::peer::{Block, lines},
    harness::folder,
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

/// An index with a folder of its own.
fn keeping(world: &World, folder: &Path) -> Program {
    let mut command = world.command("1h", "index");
    command.env("KVBRIDGE__STATE__DIR", folder);
    Program::start(command)
}

#[tokio::test]
async fn a_hole_for_good_empties_every_reader_and_a_flush_makes_all_exact() {
    let world = World::of("--buffer-steps 16", Server::started("hole-for-good"), false);
    let bridge = world.bridge("1h").await;
    let index = world.index();
    let folder = folder("hole-index-state");
    let kept = keeping(&world, &folder);
    world.burst(40).await;
    world.is_true(&index).await;
    world.is_true(&kept).await;
    // Its checkpoint is of a time before the hole.
    assert_eq!(kept.running.end(Some("-TERM")).0, 0);
    world.fault(json!({"fault": "drop", "count": 60})).await;
    world.burst(100).await;
    agrees(&world, &index, &bridge).await;
    let messages = world.server.read(STREAM).await;
    let is_reset = |event: &Event| matches!(event, Event::Reset(_));
    let resets = messages.iter().filter(|m| m.envelope.events.iter().any(is_reset));
    assert_eq!(resets.count(), 1);
    assert_eq!(world.fact(&index, "reset").await, 1, "the view that was fetched is behind it");
    let kept = keeping(&world, &folder);
    agrees(&world, &kept, &bridge).await;
    let fresh = world.index();
    agrees(&world, &fresh, &bridge).await;
    world.burst(20).await;
    for reader in [&index, &kept, &fresh] {
        agrees(&world, reader, &bridge).await;
    }
    world.fault(json!({"fault": "clear"})).await;
    world.burst(10).await;
    for program in [&bridge, &index, &kept, &fresh] {
        world.is_true(program).await;
    }
    world.end([bridge, index, kept, fresh]);
}
