//! A new life under the old name: seen by its connection or not, below the last seq or past it.

use serde_json::{Value, json};

use crate::{
    bridge::Bridge,
    oracle::lives,
    peer::{Peer, capture, named},
};

const RECORDING: &str = "0.32.0-basic";

/// Where the second life of the recording begins; it has 4 batches.
const SECOND: u64 = 62;

fn epoch(replica: &Value) -> u64 {
    replica["epoch"].as_u64().unwrap()
}

/// No view of the first life was believed after `doubt`, the word that ended it.
fn never_believed_again(bridge: &Bridge, first: u64, doubt: &str) {
    let said = bridge.said();
    let standings = said.iter().filter(|(name, _)| name == "standing").map(|(_, said)| said);
    let was_exact = standings.skip_while(|standing| standing["trust"] != "exact");
    let after: Vec<&Value> = was_exact.skip_while(|standing| standing["reason"] != doubt).collect();
    assert!(!after.is_empty(), "{doubt} was told");
    assert!(after.iter().all(|s| s["trust"] != "exact" || epoch(s) > first), "{after:?}");
}

#[test]
fn below_the_last_seq_with_a_visible_disconnect() {
    let lives = lives(RECORDING);
    let mut peer = Peer::play(&capture(RECORDING), &[]);
    let bridge = Bridge::run("restart_below", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(SECOND);
    let first = epoch(&bridge.reaches("exact", SECOND));
    bridge.view_is(&lives[0].fold(0..SECOND));
    peer.restart(SECOND, 0);
    peer.wait_subscriber();
    peer.publish(2);
    assert!(epoch(&bridge.reaches("exact", 2)) > first);
    bridge.view_is(&lives[1].fold(0..2));
    never_believed_again(&bridge, first, "detached");
    // The new life's journal is asked like any other.
    peer.set(&json!({"withhold": [2]}));
    peer.publish(2);
    bridge.reaches("exact", 4);
    bridge.view_is(&lives[1].fold(0..4));
}

#[test]
fn past_the_last_seq_with_a_visible_disconnect() {
    let lives = lives(RECORDING);
    let mut peer = Peer::play(&capture(RECORDING), &[]);
    peer.restart(SECOND, 0);
    let bridge = Bridge::run("restart_past", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(4);
    let first = epoch(&bridge.reaches("exact", 4));
    bridge.view_is(&lives[1].fold(0..4));
    peer.restart(0, 8);
    assert!(epoch(&bridge.reaches("exact", 8)) > first);
    bridge.view_is(&lives[0].fold(0..8));
    never_believed_again(&bridge, first, "detached");
    assert_eq!(bridge.fact("digest_mismatch"), 1);
    peer.wait_subscriber();
    peer.publish(10);
    bridge.reaches("exact", 18);
    bridge.view_is(&lives[0].fold(0..18));
}

#[test]
fn the_same_life_behind_a_new_connection_keeps_its_view() {
    let lives = lives(RECORDING);
    let mut peer = Peer::play(&capture(RECORDING), &[]);
    let bridge = Bridge::run("reattach", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(20);
    let first = epoch(&bridge.reaches("exact", 20));
    // To the bridge this is one engine that was away: the journal returns the bytes it knows.
    peer.restart(0, 25);
    assert_eq!(epoch(&bridge.reaches("exact", 25)), first);
    bridge.view_is(&lives[0].fold(0..25));
    assert!(bridge.trusts().contains(&"none verifying".to_owned()));
}

#[test]
fn an_empty_journal_after_a_restart_is_not_a_broken_one() {
    let lives = lives(RECORDING);
    let mut peer = Peer::play(&capture(RECORDING), &[]);
    let bridge = Bridge::run("restart_empty", &[peer.source()], "");
    peer.wait_subscriber();
    peer.publish(SECOND);
    let first = epoch(&bridge.reaches("exact", SECOND));
    peer.restart(SECOND, 0);
    // It has published nothing yet, and says so as often as it is asked.
    bridge.until_fact("replay_unusable", 1);
    assert_ne!(bridge.replicas()[0]["trust"], "exact");
    peer.set(&json!({"withhold": [1, 2]}));
    peer.publish(4);
    assert!(epoch(&bridge.reaches("exact", 4)) > first);
    bridge.view_is(&lives[1].fold(0..4));
    never_believed_again(&bridge, first, "detached");
}

/// The engine connects to us: nothing shows that another one does.
fn bound(name: &str, config: &str) -> (Peer, Bridge) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let peer = Peer::play(&capture(RECORDING), &["--live-connect", &port.to_string()]);
    let endpoint = format!("tcp://127.0.0.1:{port}");
    let source = ["--vllm", &endpoint, "--bind", "--replay", &peer.replay()].map(str::to_owned);
    let bridge = Bridge::run(name, &[[source.to_vec(), named()].concat()], config);
    (peer, bridge)
}

#[test]
fn below_the_last_seq_and_nothing_to_see() {
    let lives = lives(RECORDING);
    let (mut peer, bridge) = bound("restart_below_unseen", "");
    peer.wait_subscriber();
    peer.publish(SECOND);
    let first = epoch(&bridge.reaches("exact", SECOND));
    bridge.view_is(&lives[0].fold(0..SECOND));
    peer.restart_unseen(SECOND, 0);
    peer.publish(4);
    let second = bridge.until_rank(0, "a new life", |replica| {
        epoch(replica) > first && replica["trust"] == "exact" && replica["next_seq"] == 4
    });
    assert!(epoch(&second) > first);
    bridge.view_is(&lives[1].fold(0..4));
    assert_eq!((bridge.fact("digest_mismatch"), bridge.fact("reattached")), (1, 0));
    // Trust was taken and given back in one step: every later envelope is of the new life.
    let said = bridge.said();
    let envelopes = said.iter().filter(|(name, _)| name == "envelope");
    let second = envelopes.map(|(_, envelope)| epoch(envelope) > first);
    assert!(second.skip_while(|second| !second).all(|second| second));
}

#[test]
fn past_the_last_seq_and_nothing_to_see_but_an_audit() {
    let lives = lives(RECORDING);
    let (mut peer, bridge) = bound("restart_past_unseen", "[recovery]\naudit = \"300ms\"\n");
    peer.restart(SECOND, 0);
    peer.wait_subscriber();
    peer.publish(4);
    let first = epoch(&bridge.reaches("exact", 4));
    bridge.view_is(&lives[1].fold(0..4));
    peer.set(&json!({"withhold": [0, 1, 2, 3]}));
    peer.restart_unseen(0, 4);
    // Its number is the one that comes next: only bytes tell the lives apart.
    peer.publish(1);
    let second = bridge.until_rank(0, "a new life", |replica| {
        epoch(replica) > first && replica["trust"] == "exact" && replica["next_seq"] == 5
    });
    assert!(epoch(&second) > first);
    bridge.view_is(&lives[0].fold(0..5));
    assert_eq!(bridge.fact("digest_mismatch"), 1);
    assert!(bridge.fact("audit") >= 1);
    assert_eq!(bridge.fact("reattached"), 0);
    never_believed_again(&bridge, first, "new_epoch");
    peer.publish(10);
    bridge.reaches("exact", 15);
    bridge.view_is(&lives[0].fold(0..15));
}
