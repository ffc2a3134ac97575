//! What a replica that is no more leaves on the server is deleted by those that are.

use async_nats::jetstream;
use futures::TryStreamExt;
use kvbridge::clock::Clock;
use tokio::time::Instant;

use crate::bus_reader::{KEY, LIMIT, LOOK, Program, STREAM, World};

/// Milliseconds for which messages are kept.
const RETENTION_MS: u64 = 2_000;

fn bridge(world: &World, instance: &str) -> Program {
    let mut command = world.command("300ms", "bridge");
    command.args(["--vllm", &world.ports.0, "--replay", &world.ports.1, "--model", "fake"]);
    command.args(["--instance", instance]).env("KVBRIDGE__BUS__RETENTION", "2s");
    command.env("KVBRIDGE__BUS__DUPLICATE_WINDOW", "1s");
    Program::start(command)
}

/// Objects of the replica, and how long ago its pointer was moved, if it has one.
async fn left(context: &jetstream::Context) -> (usize, Option<u64>) {
    let objects = context.get_object_store("KVSNAP").await.unwrap();
    let listed: Vec<_> = objects.list().await.unwrap().try_collect().await.unwrap();
    let count = listed.iter().filter(|info| info.name.starts_with(KEY)).count();
    let pointers = context.get_key_value("KVSNAPPTR").await.unwrap();
    let entry = pointers.entry(KEY).await.unwrap();
    let entry = entry.filter(|entry| entry.operation == jetstream::kv::Operation::Put);
    let moved_ms = entry.map(|entry| {
        let at_ms = u64::try_from(entry.created.unix_timestamp_nanos() / 1_000_000).unwrap();
        Clock::unix_ms().saturating_sub(at_ms)
    });
    (count, moved_ms)
}

/// A bridge that was killed while it stored a view: chunks, and no object that has them.
#[tokio::test]
async fn chunks_of_an_upload_that_was_cut_off_are_deleted_and_no_others() {
    const CHUNKS: &str = "$O.KVSNAP.C.cut0off";
    let world = World::start("cut-off");
    let context = world.server.jetstream().await;
    let first = bridge(&world, "i:1");
    world.burst(20).await;
    world.is_true(&first).await;
    world.until_stored(&first, 1).await;
    assert_eq!(first.running.end(Some("-TERM")).0, 0);
    for _ in 0..3 {
        let sent = context.publish(CHUNKS, vec![7; 1_000].into()).await.unwrap();
        sent.await.unwrap();
    }
    let sent_at = Clock::unix_ms();
    let store = context.get_stream("OBJ_KVSNAP").await.unwrap();
    let chunks = async || {
        let subjects = store.info_with_subjects("$O.KVSNAP.C.>").await.unwrap();
        subjects.try_collect::<Vec<_>>().await.unwrap()
    };
    assert!(chunks().await.iter().any(|(subject, count)| subject == CHUNKS && *count == 3));
    // An upload that is under way is younger than that.
    while Clock::unix_ms() < sent_at + RETENTION_MS + 500 {
        tokio::time::sleep(LOOK).await;
    }
    let second = bridge(&world, "i:1");
    world.burst(20).await;
    world.is_true(&second).await;
    let deadline = Instant::now() + LIMIT;
    while chunks().await.iter().any(|(subject, _)| subject == CHUNKS) {
        assert!(Instant::now() < deadline, "the chunks are left");
        tokio::time::sleep(LOOK).await;
    }
    // Views have theirs.
    world.until_stored(&second, 1).await;
    let objects = context.get_object_store("KVSNAP").await.unwrap();
    let listed: Vec<_> = objects.list().await.unwrap().try_collect().await.unwrap();
    let left = chunks().await;
    for info in listed {
        let of_it = format!("$O.KVSNAP.C.{}", info.nuid);
        assert!(left.iter().any(|(subject, _)| *subject == of_it), "{} has none", info.name);
    }
    world.end([second]);
}

#[tokio::test]
async fn views_of_a_replica_that_is_no_more_are_deleted_by_another_of_its_model() {
    let world = World::start("dead");
    let dead = bridge(&world, "i:1");
    world.burst(20).await;
    world.is_true(&dead).await;
    world.until_stored(&dead, 2).await;
    assert_eq!(dead.running.end(Some("-TERM")).0, 0);
    let context = world.server.jetstream().await;
    let deadline = Instant::now() + LIMIT;
    loop {
        let stream = context.get_stream(STREAM).await.unwrap();
        let (count, moved_ms) = left(&context).await;
        assert!(count > 0);
        let old = moved_ms.unwrap() > RETENTION_MS + 500;
        if stream.cached_info().state.messages == 0 && old {
            break;
        }
        assert!(Instant::now() < deadline, "its log is not empty");
        tokio::time::sleep(LOOK).await;
    }
    let alive = bridge(&world, "j:1");
    world.burst(3).await;
    let deadline = Instant::now() + LIMIT;
    loop {
        let (count, moved_ms) = left(&context).await;
        if (count, moved_ms) == (0, None) {
            break;
        }
        assert!(Instant::now() < deadline, "{count} views are left, moved {moved_ms:?} ago");
        tokio::time::sleep(LOOK).await;
    }
    let deadline = Instant::now() + LIMIT;
    while world.metric(&alive, "kvbridge_bus_snapshots_deleted_total").await == 0 {
        assert!(Instant::now() < deadline, "what was deleted is not counted");
        tokio::time::sleep(LOOK).await;
    }
    world.end([alive]);
}
