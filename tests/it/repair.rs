//! Losses: what the journal returns, what it cannot, and what must be said meanwhile.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    bridge::Bridge,
    oracle::{Life, lives},
    peer::{Peer, capture, scratch},
};

const RECORDING: &str = "0.32.0-basic";

/// Batch 40 of the recording clears the device.
const CLEAR: u64 = 40;

fn life() -> Life {
    lives(RECORDING).swap_remove(0)
}

fn play(options: &[&str]) -> Peer {
    Peer::play(&capture(RECORDING), options)
}

/// A silent replay is asked again soon.
const PATIENT: &str = "[recovery]\nreplay_deadline = \"200ms\"\nattempts = 50\n";

#[test]
fn withheld_batches_come_back_and_nothing_is_believed_until_then() {
    let mut peer = play(&["--withhold", "5,6,7,8,9,20"]);
    let bridge = Bridge::run("withheld", &[peer.source()], PATIENT);
    peer.wait_subscriber();
    peer.publish(5);
    bridge.reaches("exact", 5);
    peer.set(&json!({"stall_after": 0}));
    peer.publish(25);
    assert_eq!(bridge.stands("none", "gap_open")["next_seq"], 5);
    let (status, answer) = bridge.post("/v1/match", r#"{"model":"m","token_ids":[1]}"#);
    assert_eq!((status, answer["fallback"].as_str()), (200, Some("load")));
    assert_eq!(answer["replicas"][0]["usable"], false);
    assert_eq!(answer["replicas"][0]["reason"], "gap_open");
    peer.set(&json!({"stall_after": null}));
    bridge.reaches("exact", 30);
    bridge.view_is(&life().fold(0..30));
}

#[test]
fn a_lost_end_marker_is_no_loss() {
    let mut peer = play(&["--no-end"]);
    peer.publish(10);
    let bridge = Bridge::run("end_lost", &[peer.source()], PATIENT);
    peer.wait_subscriber();
    bridge.until_fact("silent", 1);
    assert_eq!(bridge.replicas()[0]["trust"], "none");
    // What the replay returned joins what comes live: that is the proof.
    peer.publish(5);
    bridge.reaches("exact", 15);
    bridge.view_is(&life().fold(0..15));
    peer.set(&json!({"withhold": [15, 16]}));
    peer.publish(5);
    bridge.reaches("exact", 20);
    bridge.view_is(&life().fold(0..20));
}

#[test]
fn a_hole_in_one_answer_is_asked_for_again() {
    let options = ["--withhold", "10,11,12,13", "--hole", "12", "--hole-answers", "1"];
    let mut peer = play(&options);
    let bridge = Bridge::run("hole", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(16);
    bridge.reaches("exact", 16);
    bridge.view_is(&life().fold(0..16));
    assert_eq!((bridge.fact("hole"), bridge.fact("permanent_hole")), (1, 0));
    let gap_open = |trust: &String| trust == "none gap_open";
    assert!(bridge.trusts().iter().any(gap_open));
}

#[test]
fn a_seq_that_nobody_has_is_a_lower_bound_from_there_on() {
    let mut peer = play(&["--burn", "12"]);
    let bridge = Bridge::run("burnt", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(10);
    bridge.reaches("exact", 10);
    peer.publish(10);
    assert_eq!(bridge.reaches("lower_bound", 20)["reason"], "history_lost");
    bridge.view_is(&life().fold(13..20));
    assert_eq!(bridge.fact("permanent_hole"), 1);
    peer.publish(CLEAR - 20);
    bridge.reaches("lower_bound", CLEAR);
    bridge.view_is(&life().fold(13..CLEAR));
    peer.publish(5);
    bridge.reaches("exact", CLEAR + 5);
    bridge.view_is(&life().fold(0..CLEAR + 5));
}

#[test]
fn a_gap_that_the_journal_no_longer_covers_is_a_lower_bound() {
    let mut peer = play(&["--journal", "5", "--withhold", "8,9,10,11,12,13,14,15"]);
    let bridge = Bridge::run("journal_passed", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(8);
    bridge.reaches("exact", 8);
    peer.publish(12);
    bridge.reaches("lower_bound", 20);
    bridge.view_is(&life().fold(15..20));
    assert_eq!(bridge.fact("truncated"), 1);
}

#[test]
fn a_lost_last_batch_is_found_by_a_probe() {
    let mut peer = play(&["--withhold", "9"]);
    let config = "[recovery]\nidle_probe = \"200ms\"\n";
    let bridge = Bridge::run("tail_loss", &[peer.source()], config);
    peer.wait_subscriber();
    peer.publish(10);
    bridge.reaches("exact", 10);
    bridge.view_is(&life().fold(0..10));
    bridge.until_fact("tail_loss", 1);
    peer.publish(10);
    bridge.reaches("exact", 20);
    bridge.view_is(&life().fold(0..20));
    let doubted = |trust: &String| trust.starts_with("none") || trust.starts_with("lower_bound");
    // A look at a settled engine withdraws nothing.
    let trusts = bridge.trusts();
    let since_exact = trusts.iter().skip_while(|trust| doubted(trust));
    assert_eq!(since_exact.filter(|trust| doubted(trust)).count(), 0, "{trusts:?}");
}

/// The recording with another payload for one seq of its first life.
fn with_payload(name: &str, seq: u64, payload: &str) -> PathBuf {
    let text = std::fs::read_to_string(capture(RECORDING)).unwrap();
    let mut lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = format!("{seq:016x}");
    let of_seq = |line: &&mut serde_json::Value| {
        line["socket"] == "sub" && line["frames_hex"][1] == number.as_str()
    };
    lines.iter_mut().find(of_seq).unwrap()["frames_hex"][2] = json!(payload);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let path = scratch(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
fn an_unreadable_body_between_good_ones_is_a_permanent_hole() {
    let recording = with_payload("poison.jsonl", 8, "c1");
    let mut peer = Peer::play(&recording, &[]);
    let bridge = Bridge::run("poison", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(8);
    bridge.reaches("exact", 8);
    peer.publish(1);
    bridge.reaches("lower_bound", 9);
    assert!(life().fold(9..9).is_empty());
    bridge.view_is(&life().fold(9..9));
    peer.publish(11);
    bridge.reaches("lower_bound", 20);
    bridge.view_is(&life().fold(9..20));
    assert_eq!(bridge.fact("permanent_hole"), 1);
    assert!(bridge.trusts().contains(&"none gap_open".to_owned()));
    peer.publish(CLEAR + 1 - 20);
    bridge.reaches("exact", CLEAR + 1);
    bridge.view_is(&life().fold(0..CLEAR + 1));
}

#[test]
fn an_event_that_might_remove_ends_all_trust_until_a_flush() {
    // ts 1.0, one event ["Mystery", 1], rank 0
    let recording =
        with_payload("mystery.jsonl", 8, "93cb3ff00000000000009192a74d7973746572790100");
    let mut peer = Peer::play(&recording, &[]);
    let bridge = Bridge::run("mystery", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(8);
    bridge.reaches("exact", 8);
    peer.publish(2);
    assert_eq!(bridge.reaches("none", 10)["reason"], "removal_undecodable");
    peer.publish(CLEAR - 10);
    bridge.reaches("none", CLEAR);
    peer.publish(5);
    bridge.reaches("exact", CLEAR + 5);
    bridge.view_is(&life().fold(0..CLEAR + 5));
}
