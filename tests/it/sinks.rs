//! What a sink tells, read by the program itself as if it were an engine: whatever happened to the
//! engine, the reader ends with the same blocks.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    harness::until,
    oracle::lives,
    peer::{Peer, capture},
};

const SINK: &str = "[[sinks]]\npreset = \"vllm\"\nlisten = \"127.0.0.1:0\"\n\
                    replay = \"127.0.0.1:0\"\ngrace = \"50ms\"\nheartbeat = \"100ms\"\n";

fn json_of(bridge: &Bridge, path: &str) -> Value {
    serde_json::from_str(&bridge.get(path)).unwrap()
}

/// Where the sink of a bridge is, once it is bound.
fn line(bridge: &Bridge) -> Value {
    until("a bound sink", || {
        let line = json_of(bridge, "/v1/sinks")["sinks"][0].clone();
        line["listen"].is_string().then_some(line)
    })
}

/// The options of a program that reads the sink as an engine.
fn source(line: &Value) -> Vec<String> {
    ["--vllm", line["listen"].as_str().unwrap(), "--replay", line["replay"].as_str().unwrap()]
        .map(str::to_owned)
        .into_iter()
        .chain(crate::peer::named())
        .collect()
}

/// Both hold the same number of blocks, and the reader believes them.
fn agree(reader: &Bridge, blocks: u64) {
    until("the same blocks", || {
        let standing = reader.replicas()[0].clone();
        let device = standing["blocks"]["device"].as_u64().unwrap_or(0);
        (standing["trust"] == "exact" && device == blocks).then_some(())
    });
}

#[test]
fn a_reader_of_a_sink_holds_what_the_engine_holds_over_loss_restart_and_late_start() {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &["--withhold", "20"]);
    let bridge = Bridge::run("sink_bridge", &[peer.source()], SINK);
    peer.wait_subscriber();
    peer.publish(40);
    bridge.reaches("exact", 40);
    // Comes late: from 0 it is answered out of the journal.
    let reader = Bridge::run("sink_reader", &[source(&line(&bridge))], "");
    let shown = |bridge: &Bridge| line(bridge)["shown_blocks"].as_u64().unwrap();
    let device = |bridge: &Bridge| bridge.replicas()[0]["blocks"]["device"].as_u64().unwrap();
    assert_eq!(shown(&bridge), device(&bridge));
    agree(&reader, device(&bridge));
    peer.publish(life.len() - 40);
    bridge.reaches("exact", life.len());
    assert!(device(&bridge) > 0);
    agree(&reader, device(&bridge));
    // Another life: what was told is taken back first.
    peer.restart(life.len(), 0);
    peer.wait_subscriber();
    peer.publish(4);
    bridge.reaches("exact", 4);
    until("the sink to follow", || (shown(&bridge) == device(&bridge)).then_some(()));
    agree(&reader, device(&bridge));
    let ask = json!({"model": "m", "token_ids": (10..42).collect::<Vec<u32>>()}).to_string();
    let matched =
        |bridge: &Bridge| bridge.post("/v1/match", &ask).1["replicas"][0]["matched_tokens"].clone();
    assert_eq!(matched(&reader), matched(&bridge));
    assert_eq!(matched(&reader), 32);
}

#[test]
fn a_sink_that_fell_behind_rings_and_tells_all_again() {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    let bridge = Bridge::run("sink_lagging", &[peer.source()], &format!("{SINK}queue = 1\n"));
    peer.wait_subscriber();
    let device = |bridge: &Bridge| bridge.replicas()[0]["blocks"]["device"].as_u64().unwrap();
    let rings = || {
        let alarms = json_of(&bridge, "/v1/alarms");
        alarms["alarms"].as_array().unwrap().iter().any(|it| it["alarm"] == "sink_lagging")
    };
    // One place for messages, and batches in a row: some of them find it taken.
    peer.publish(life.len());
    bridge.reaches("exact", life.len());
    until("the alarm", || rings().then_some(()));
    let reader = Bridge::run("sink_lagging_reader", &[source(&line(&bridge))], "");
    agree(&reader, device(&bridge));
}
