//! An engine that behaves, read from its first batch or later, with a journal and without.

use std::time::Duration;

use crate::{
    bridge::Bridge,
    oracle::lives,
    peer::{Peer, capture},
};

/// Live from seq 0, the second half with a loss in it, which brings replay in this framing.
fn followed(name: &str, recording: &str, framing: &str) {
    let life = &lives(recording)[0];
    let (count, half) = (life.len(), life.len() / 2);
    let lost = format!("{},{}", half + 1, half + 2);
    let options = ["--framing", framing, "--withhold", &lost];
    let mut peer = Peer::play(&capture(recording), &options);
    let bridge = Bridge::run(name, &[peer.source()], "");
    assert_eq!(bridge.stands("none", "joining")["next_seq"], 0);
    peer.wait_subscriber();
    peer.publish(half);
    bridge.reaches("exact", half);
    bridge.view_is(&life.fold(0..half));
    peer.publish(count - half);
    bridge.reaches("exact", count);
    bridge.view_is(&life.fold(0..count));
    // The words alone: whether the flush is told by itself depends on what the replay brought.
    let told = || {
        let mut words: Vec<String> = bridge.trusts();
        words.iter_mut().for_each(|trust| trust.truncate(trust.find(' ').unwrap()));
        words.dedup();
        words
    };
    // The last line may be on its way still when the API knows already.
    for _ in 0..1000 {
        if told().len() >= 4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(told(), ["none", "exact", "none", "exact"]);
    assert_eq!(bridge.fact("gap"), 1);
    assert_eq!(bridge.metric("kvbridge_missing_batches_total", ""), 2);
}

#[test]
fn arrays_of_0_16_with_replay_that_has_no_topic() {
    followed("follow_arrays", "0.16.0-basic", "plain");
}

#[test]
fn maps_of_0_32_with_replay_that_has_the_topic() {
    followed("follow_maps", "0.32.0-basic", "topic");
}

#[test]
fn late_with_a_journal_that_reaches_back() {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &[]);
    peer.publish(30);
    let bridge = Bridge::run("late_journal", &[peer.source()], "");
    // The engine is idle: nothing but the journal can tell.
    bridge.reaches("exact", 30);
    bridge.view_is(&life.fold(0..30));
    peer.wait_subscriber();
    peer.publish(32);
    bridge.reaches("exact", 62);
    bridge.view_is(&life.fold(0..62));
}

#[test]
fn late_with_a_short_journal_is_a_lower_bound_until_the_engine_is_flushed() {
    let life = &lives("0.32.0-basic")[0];
    let mut peer = Peer::play(&capture("0.32.0-basic"), &["--journal", "5"]);
    peer.publish(20);
    let bridge = Bridge::run("short_journal", &[peer.source()], "");
    let joined = bridge.reaches("lower_bound", 20);
    assert_eq!(joined["reason"], "joined_late");
    bridge.view_is(&life.fold(15..20));
    peer.wait_subscriber();
    peer.publish(20);
    bridge.reaches("lower_bound", 40);
    bridge.view_is(&life.fold(15..40));
    assert!(bridge.trusts().iter().all(|trust| !trust.starts_with("exact")));
    // Batch 40 clears the device.
    peer.publish(1);
    assert_eq!(bridge.reaches("exact", 41)["reason"], "flushed");
    bridge.view_is(&life.fold(0..41));
    peer.publish(21);
    bridge.reaches("exact", 62);
    bridge.view_is(&life.fold(0..62));
}

#[test]
fn without_a_journal_only_the_first_batch_is_a_proof() {
    let life = &lives("0.16.0-basic")[0];
    let mut peer = Peer::play(&capture("0.16.0-basic"), &["--withhold", "20"]);
    let bridge = Bridge::run("no_journal_first", &[peer.source_without_replay()], "");
    peer.wait_subscriber();
    peer.publish(10);
    bridge.reaches("exact", 10);
    bridge.view_is(&life.fold(0..10));
    let late = Bridge::run("no_journal_late", &[peer.source_without_replay()], "");
    // It is attached, and there is nobody to ask.
    late.reaches("lower_bound", 0);
    peer.publish(5);
    bridge.reaches("exact", 15);
    late.reaches("lower_bound", 15);
    late.view_is(&life.fold(10..15));
    // A loss that nobody can give back.
    peer.publish(15);
    bridge.reaches("lower_bound", 30);
    bridge.view_is(&life.fold(21..30));
    late.reaches("lower_bound", 30);
    late.view_is(&life.fold(21..30));
    assert!(late.trusts().iter().all(|trust| !trust.starts_with("exact")));
}

#[test]
fn ranks_are_replicas_of_their_own() {
    let (one, two) = (&lives("0.32.0-basic")[0], &lives("0.33.0-publisher-only")[0]);
    let (live, replay) = (two_ports(), two_ports());
    let peer = |offset: u16, recording: &str| {
        let live = (live + offset).to_string();
        let replay = (replay + offset).to_string();
        let ports = ["--live-port", &live, "--replay-port", &replay];
        Peer::play(&capture(recording), &ports)
    };
    let (mut first, mut second) = (peer(0, "0.32.0-basic"), peer(1, "0.33.0-publisher-only"));
    let source = [first.source(), vec!["--dp".to_owned(), "2".to_owned()]].concat();
    let config = "[recovery]\nreplay_deadline = \"200ms\"\nattempts = 50\n";
    let bridge = Bridge::run("ranks", &[source], config);
    assert_eq!(bridge.replicas().len(), 2);
    first.wait_subscriber();
    second.wait_subscriber();
    first.publish(30);
    second.publish(20);
    bridge.rank_reaches(0, "exact", 30);
    bridge.rank_reaches(1, "exact", 20);
    // A loss that stays open in one rank says nothing of the other.
    second.set(&serde_json::json!({"withhold": [20], "stall_after": 0}));
    second.publish(5);
    bridge.until_rank(1, "in doubt", |replica| replica["reason"] == "gap_open");
    first.publish(32);
    bridge.rank_reaches(0, "exact", 62);
    bridge.rank_view_is(0, &one.fold(0..62));
    assert_eq!(bridge.replicas()[1]["trust"], "none");
    second.set(&serde_json::json!({"stall_after": null}));
    bridge.rank_reaches(1, "exact", 25);
    bridge.rank_view_is(1, &two.fold(0..25));
}

/// A free port whose successor is free too.
fn two_ports() -> u16 {
    let bound = |port| std::net::TcpListener::bind(("127.0.0.1", port));
    let free = (0..100).find_map(|_| {
        let first = bound(0).ok()?;
        let port = first.local_addr().ok()?.port();
        bound(port.checked_add(1)?).ok().map(|_| port)
    });
    free.expect("two free ports")
}
