//! SGLang's recordings, played by libzmq: replay in both framings, the clear at start-up that live
//! readers miss, a flush, a restart.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    oracle::{State, lives},
    peer::{Peer, capture, root},
};

const SERVER: &str = "sglang-0.5.23-server-p16-restart";

/// The clear is published while nobody can have subscribed yet.
const BEFORE_ANYBODY: u64 = 1;

/// Read from seq 1 on, which looks like a gap, with a loss later; replay comes in this framing.
fn followed(name: &str, recording: &str, framing: &str) {
    let life = &lives(recording)[0];
    let (count, half) = (life.len(), life.len() / 2);
    let lost = (half + 1).to_string();
    let options = ["--framing", framing, "--withhold", &lost];
    let mut peer = Peer::play(&capture(recording), &options);
    peer.publish(BEFORE_ANYBODY);
    let bridge = Bridge::run(name, &[peer.source_of("--sglang")], "");
    peer.wait_subscriber();
    peer.publish(half - BEFORE_ANYBODY);
    bridge.reaches("exact", half);
    bridge.view_is(&life.fold(0..half));
    peer.publish(count - half);
    bridge.reaches("exact", count);
    bridge.view_is(&life.fold(0..count));
    assert_eq!(bridge.fact("gap"), 1);
    assert_eq!(bridge.fact("anomaly"), 0);
}

#[test]
fn arrays_of_0_5_9_with_replay_that_has_no_topic() {
    followed("sglang_arrays", "sglang-0.5.9-radix-p16", "plain");
}

#[test]
fn maps_of_0_5_23_with_replay_that_has_the_topic() {
    followed("sglang_maps", "sglang-0.5.23-radix-p16", "topic");
}

#[test]
fn namespaces_that_share_hashes_are_counted() {
    let life = &lives("sglang-0.5.18-radix-p16-namespaces")[0];
    let mut peer = Peer::play(&capture("sglang-0.5.18-radix-p16-namespaces"), &[]);
    let bridge = Bridge::run("sglang_namespaces", &[peer.source_of("--sglang")], "");
    peer.wait_subscriber();
    peer.publish(life.len() - 1);
    bridge.reaches("exact", life.len() - 1);
    bridge.view_is(&life.fold(0..life.len() - 1));
    // The eviction names every hash as often as it was stored.
    peer.publish(1);
    bridge.reaches("exact", life.len());
    assert!(life.fold(0..life.len()).is_empty());
    assert_eq!(bridge.fact("anomaly"), 0);
}

/// What the batches of a whole run of a server mean, each life by itself; both begin at seq 1.
fn recorded_lives() -> [Vec<Value>; 2] {
    let path = root().join(format!("tests/fixtures/expect/{SERVER}.ndjson"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let live: Vec<Value> = lines.filter(|line| line["socket"] == "sub").collect();
    let restart = live.iter().rposition(|line| line["seq"] == 1).unwrap();
    assert!(restart > 0);
    [live[..restart].to_vec(), live[restart..].to_vec()]
}

fn fold(batches: &[Value]) -> State {
    let mut state = State::default();
    batches.iter().for_each(|batch| state.apply(batch));
    state
}

#[test]
fn restart_as_it_was_recorded() {
    let [first, second] = recorded_lives();
    let count = u64::try_from(first.len()).unwrap();
    let mut peer = Peer::play(&capture(SERVER), &[]);
    let bridge = Bridge::run("sglang_restart", &[peer.source_of("--sglang")], "");
    peer.wait_subscriber();
    // The journal of the recording lacks seq 0: a lower bound, until the tree was flushed.
    peer.publish(1);
    bridge.reaches("lower_bound", 2);
    peer.publish(count - 1);
    let before = bridge.reaches("exact", count + 1);
    bridge.view_is(&fold(&first));
    peer.restart(count, 0);
    peer.wait_subscriber();
    peer.publish(u64::try_from(second.len()).unwrap());
    let after = bridge.reaches("lower_bound", 2);
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64());
    bridge.view_is(&fold(&second));
    assert_eq!(bridge.fact("anomaly"), 0);
}

#[test]
fn pairs_are_kept_as_overlapping_tokens() {
    let recording = "sglang-0.5.23-radix-p16-eagle";
    let life = &lives(recording)[0];
    let mut peer = Peer::play(&capture(recording), &[]);
    let bridge = Bridge::run("sglang_eagle", &[peer.source_of("--sglang")], "");
    peer.wait_subscriber();
    peer.publish(2);
    bridge.reaches("exact", 2);
    bridge.view_is(&life.fold(0..2));
    bridge.until_usable(2);
    // 17 tokens are one page of 16 pairs.
    let ask = |tokens: std::ops::Range<u32>| {
        let tokens: Vec<u32> = tokens.collect();
        let body = json!({"model": "m", "token_ids": tokens});
        let (status, answer) = bridge.post("/v1/match", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let blocks = |answer: &Value| answer["replicas"][0]["matched_blocks"].clone();
    assert_eq!(blocks(&ask(0..50)), 3);
    assert_eq!(blocks(&ask(0..17)), 1);
    assert_eq!(blocks(&ask(0..16)), 0);
}
