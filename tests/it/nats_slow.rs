//! An index that stands still while the engine works: others do not notice, and when it goes on it
//! catches up in bounded memory, from the log or from a snapshot.

use tokio::time::Instant;

use crate::bus_reader::{LIMIT, Program, STREAM, World};

/// Far more than the client asks the server for at a time.
const MISSED: u64 = 6_000;

/// What a reader may grow by while it catches up. What it missed, folded, is a cache of 96 blocks.
const GROWTH_KIB: u64 = 96 * 1024;

/// The most memory that a program ever had.
fn peak_kib(program: &Program) -> u64 {
    let path = format!("/proc/{}/status", program.running.id());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A stopped index beside one that runs, until the log is that much further; and how many snapshots
/// the stopped one had taken by then.
async fn stopped_under_load(world: &World, bridge: &Program) -> (Program, Program, u64) {
    let (slow, other) = (world.index(), world.index());
    world.is_true(&slow).await;
    world.is_true(&other).await;
    let installed = world.fact(&slow, "installed").await;
    slow.running.signal("-STOP");
    let deadline = Instant::now() + LIMIT;
    let from = world.status(bridge).await["next_seq"].as_u64().unwrap();
    let mut at = from;
    while at < from + MISSED {
        assert!(Instant::now() < deadline, "{at} of {from} and {MISSED}");
        world.burst(200).await;
        at = world.is_true(&other).await["next_seq"].as_u64().unwrap();
    }
    // Nobody was told to do without anything.
    for fact in ["overflowed", "truncated", "no_history"] {
        assert_eq!(world.fact(&other, fact).await, 0, "{fact}");
    }
    (slow, other, installed)
}

#[tokio::test]
async fn a_slow_reader_catches_up_from_the_log_and_disturbs_nobody() {
    let world = World::start("slow-log");
    let bridge = world.bridge("1h").await;
    let (slow, other, installed) = stopped_under_load(&world, &bridge).await;
    let before = peak_kib(&slow);
    slow.running.signal("-CONT");
    world.is_true(&slow).await;
    let after = peak_kib(&slow);
    assert!(after < before + GROWTH_KIB, "{before} KiB before, {after} KiB after");
    assert_eq!(world.fact(&slow, "installed").await, installed, "the log has all of it");
    world.burst(20).await;
    world.is_true(&slow).await;
    world.end([bridge, slow, other]);
}

#[tokio::test]
async fn a_slow_reader_that_the_log_has_outrun_takes_a_snapshot() {
    let world = World::start("slow-snapshot");
    let bridge = world.bridge("1h").await;
    let (slow, other, installed) = stopped_under_load(&world, &bridge).await;
    let stream = world.server.jetstream().await.get_stream(STREAM).await.unwrap();
    stream.purge().await.unwrap();
    slow.running.signal("-CONT");
    world.burst(1).await;
    world.is_true(&slow).await;
    assert!(world.fact(&slow, "installed").await > installed);
    world.burst(20).await;
    world.is_true(&slow).await;
    world.is_true(&other).await;
    world.end([bridge, slow, other]);
}
