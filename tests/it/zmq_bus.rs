//! Engine, bridge and index as processes, with the ZeroMQ bus between the last two: what the index
//! holds is what the engine has.

use std::process::Command;

use serde_json::json;

use crate::{
    harness::until,
    zmq_client::Client,
    zmq_world::{KEY, Program, World},
};

#[tokio::test]
async fn an_index_holds_what_the_engine_has() {
    let world = World::start("zmq-plain", "").await;
    for _ in 0..5 {
        world.burst(30).await;
        world.is_true().await;
    }
    assert_eq!(world.fact("gap").await, 0);
    // The same life, named by the bridge.
    let (bridge, index) = (world.replica(&world.bridge).await, world.replica(&world.index).await);
    assert_eq!(bridge["epoch"], index["epoch"]);
    world.end();
}

#[tokio::test]
async fn a_restarted_index_is_exact_by_a_snapshot_and_what_follows() {
    let mut world = World::start("zmq-index", "").await;
    world.burst(200).await;
    world.is_true().await;
    world.index.kill();
    world.burst(50).await;
    world.index.run();
    world.is_true().await;
    assert_eq!(world.fact("installed").await, 1);
    world.burst(50).await;
    world.is_true().await;
    world.end();
}

#[tokio::test]
async fn a_restarted_bridge_goes_on_with_its_journal_in_the_same_life() {
    let mut world = World::start("zmq-bridge", "").await;
    world.burst(50).await;
    let before = world.is_true().await;
    for kill in [false, true] {
        if kill {
            world.bridge.kill();
        } else {
            world.bridge.end();
        }
        world.until("without its bridge", |status| status["trust"] == "none").await;
        world.burst(30).await;
        world.bridge.run();
        let after = world.is_true().await;
        assert_eq!(after["epoch"], before["epoch"], "killed: {kill}");
        world.burst(30).await;
        world.is_true().await;
    }
    // The log was gone on with: nothing was told to be lost.
    assert_eq!(world.fact("reset").await, 0);
    let mut client = Client::connect(&world.bridge.requests);
    let replay = client.replay(KEY, 0, 0);
    assert_eq!(replay.first, 0);
    assert!(replay.seqs.iter().enumerate().all(|(at, seq)| *seq == at as u64), "{:?}", replay.seqs);
    world.end();
}

#[tokio::test]
async fn a_stopped_index_asks_for_what_it_missed() {
    let mut world = World::start("zmq-gap", "").await;
    let replays = format!("kvbridge_source_replays_total{{replica=\"{KEY}\"}}");
    let before = world.metric(&world.index, &replays).await;
    world.index.signal("-STOP");
    // A new process of the bridge has none of the messages that were queued for the stopped one.
    world.bridge.end();
    world.burst(40).await;
    world.bridge.run();
    world.index.signal("-CONT");
    world.is_true().await;
    assert!(world.metric(&world.index, &replays).await > before);
    assert_eq!(world.fact("truncated").await, 0);
    world.end();
}

#[tokio::test]
async fn a_journal_that_wrapped_is_replaced_by_a_snapshot() {
    let mut world = World::start("zmq-wrap", "journal_bytes = \"1MiB\"").await;
    world.index.signal("-STOP");
    world.bridge.end();
    world.bridge.run();
    // Far more than the journal keeps.
    for _ in 0..20 {
        world.burst(200).await;
    }
    until("the journal has wrapped", || {
        let mut client = Client::connect(&world.bridge.requests);
        (client.replay(KEY, 0, u64::MAX).first > 100).then_some(())
    });
    world.index.signal("-CONT");
    world.is_true().await;
    assert!(world.fact("truncated").await >= 1);
    assert!(world.fact("installed").await >= 2);
    assert!(world.metric(&world.index, &broke("retention_passed")).await >= 1);
    assert_eq!(world.metric(&world.index, &broke("reset")).await, 0);
    until_rings(&world, "bus_retention_passed").await;
    world.end();
}

#[tokio::test]
async fn a_journal_that_is_lost_is_told_and_the_index_goes_on() {
    let mut world = World::start("zmq-lost", "").await;
    world.burst(50).await;
    world.is_true().await;
    world.bridge.end();
    std::fs::remove_dir_all(world.bridge.folder.join("state/bus")).unwrap();
    world.bridge.run();
    // The index asks when it is connected again, before there is anything to be read.
    until_rings(&world, "bus_reset").await;
    assert!(world.metric(&world.index, &broke("reset")).await >= 1);
    world.burst(30).await;
    world.is_true().await;
    assert_eq!(world.metric(&world.index, &broke("retention_passed")).await, 0);
    world.end();
}

fn broke(reason: &str) -> String {
    format!("kvbridge_bus_log_breaks_total{{replica=\"{KEY}\",reason=\"{reason}\"}}")
}

async fn until_rings(world: &World, alarm: &str) {
    let (url, named) = (format!("{}/v1/alarms", world.index.url), format!("\"alarm\":\"{alarm}\""));
    for _ in 0..3000 {
        if world.get(&url).await.is_some_and(|text| text.contains(&named)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{alarm} does not ring: {:?}", world.get(&url).await);
}

#[tokio::test]
async fn a_new_life_of_the_engine_is_one_of_the_index() {
    let world = World::start("zmq-life", "").await;
    let before = world.is_true().await;
    world.engine.fault(&world.client, json!({"fault": "restart"})).await;
    for _ in 0..20 {
        world.burst(3).await;
    }
    let after = world.until("in another life", |status| status["epoch"] != before["epoch"]).await;
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64());
    world.is_true().await;
    world.end();
}

#[tokio::test]
async fn garbage_at_the_requests_is_counted_and_harms_nobody() {
    let world = World::start("zmq-garbage", "").await;
    let mut client = Client::connect(&world.bridge.requests);
    for frames in [
        vec![],
        vec![""],
        vec!["", "hello"],
        vec!["", "kvbus1", "00", "list"],
        vec!["", "kvbus9", "0000000000000000", "list"],
        vec!["", "kvbus1", "0000000000000000", "replay"],
        vec!["", "kvbus1", "0000000000000000", "snapshot", "not.a key"],
    ] {
        client.send(&frames);
    }
    let line = "kvbridge_bus_requests_total{outcome=\"malformed\"}";
    world.counts(line, 7).await;
    // Who does not show that he has read gets nothing more.
    let mut greedy = Client::connect(&world.bridge.requests);
    for _ in 0..50 {
        greedy.send_query(0, &["list"]);
    }
    let unread = "kvbridge_bus_requests_total{outcome=\"unread\"}";
    world.counts(unread, 49).await;
    world.burst(20).await;
    world.is_true().await;
    world.end();
}

#[tokio::test]
async fn a_reader_on_libzmq_reads_what_the_contract_says() {
    let world = World::start("zmq-libzmq", "").await;
    let mut client = Client::connect(&world.bridge.requests);
    let listed = client.ask(&["list"]);
    assert_eq!(listed[0], "list");
    assert_eq!(
        world.bridge.live,
        format!("tcp://127.0.0.1:{}", u64::from_str_radix(&listed[1], 16).unwrap())
    );
    assert_eq!(listed[2..], [KEY.to_owned(), "vllm".to_owned()]);
    // Live messages and heartbeats of the replica, with their numbers.
    client.subscribe(&world.bridge.live, KEY);
    let beat = client.heartbeat();
    assert_eq!(beat["trust"], "exact");
    world.burst(10).await;
    let (epoch, seqs) = client.live(5);
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    assert_eq!(world.replica(&world.bridge).await["epoch"], epoch);
    let replay = client.replay(KEY, epoch, seqs[0]);
    assert_eq!(replay.seqs[..5], seqs[..]);
    let snapshot = client.snapshot(KEY);
    assert_eq!(snapshot.epoch, epoch);
    assert!(snapshot.records > 0 && snapshot.records == snapshot.promised, "{snapshot:?}");
    assert_eq!(client.ask(&["snapshot", "other.i=3A1.0"])[..], ["refused", "unknown_replica"]);
    world.end();
}

#[test]
fn a_second_bridge_on_one_journal_does_not_start() {
    let config = "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://127.0.0.1:9\"\n\
                  [bus]\nkind = \"zmq\"\nlisten = \"127.0.0.1:0\"\nrequests = \"127.0.0.1:0\"\n\
                  journal = \"journal\"\n";
    let first = Program::start("zmq-twice", config, &["--config", "kvbridge.toml"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvbridge"));
    command.current_dir(&first.folder).args(["--log", "off", "run", "--listen", "127.0.0.1:0"]);
    let output = command.args(["--config", "kvbridge.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is in use by another process"), "{said}");
}

#[test]
fn a_damaged_journal_is_moved_aside_and_the_bridge_starts() {
    let config = "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://127.0.0.1:9\"\n\
                  [bus]\nkind = \"zmq\"\nlisten = \"127.0.0.1:0\"\nrequests = \"127.0.0.1:0\"\n\
                  journal = \"journal\"\n";
    let mut bridge = Program::start("zmq-damaged", config, &["--config", "kvbridge.toml"]);
    bridge.end();
    let journal = bridge.folder.join("journal");
    std::fs::write(journal.join("journal.redb"), vec![7; 10_000]).unwrap();
    bridge.run();
    let aside = std::fs::read_dir(&journal).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("journal.damaged-")
    });
    assert_eq!(aside.count(), 1);
    bridge.end();
}
