//! Peers that accept and misbehave: the stream must come back by itself, every time.

use std::{sync::Arc, time::Duration};

use kvbridge_adapters_zmq::RetrySettings;
use kvbridge_adapters_zmq::{Counters, Link, SubscribeSettings, Subscriber, WireEvent};
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::{
    peer::Peer,
    support::{next, short, soon, subscribe},
};

/// Subscribers of `count` listeners; each must get a batch after `losses` connections that were
/// attached and lost. Gives the slowest.
async fn all_recover(modes: &str, count: usize, losses: usize) -> Duration {
    let peer = Peer::hostile(modes, count).await;
    let mut tasks = JoinSet::new();
    for endpoint in peer.listeners() {
        tasks.spawn(async move {
            let started = Instant::now();
            let mut live = subscribe(&endpoint);
            let mut lost = 0;
            loop {
                match live.next().await.unwrap() {
                    WireEvent::Detached { .. } => lost += 1,
                    WireEvent::Frames(_) if lost >= losses => return started.elapsed(),
                    _ => (),
                }
            }
        });
    }
    let recovered = soon(tasks.join_all()).await;
    assert_eq!(recovered.len(), count);
    let slowest = recovered.into_iter().max().unwrap();
    eprintln!("{modes}: {count} of {count}, slowest {slowest:?}");
    slowest
}

#[tokio::test]
async fn reset_right_after_ready() {
    // the library's own reconnect was deaf for good in 15 of 20
    assert!(all_recover("rst_ready,good", 20, 0).await < Duration::from_secs(10));
}

#[tokio::test]
async fn reset_right_after_ready_at_a_reconnect() {
    assert!(all_recover("good10,rst_ready,rst_ready,good", 20, 1).await < Duration::from_secs(10));
}

#[tokio::test]
async fn silent_after_accept() {
    assert!(all_recover("silent,good", 4, 0).await < Duration::from_secs(10));
    assert!(all_recover("silent_ready,good", 4, 0).await < Duration::from_secs(10));
}

#[tokio::test]
async fn closes_at_every_step() {
    let modes = "garbage,http,rst_greet,fin_ready,rst_sub,fin_sub,good";
    assert!(all_recover(modes, 4, 0).await < Duration::from_secs(20));
}

#[tokio::test]
async fn silent_peer_at_a_reconnect() {
    let peer = Peer::hostile("good10,silent,silent,good", 1).await;
    let mut live = subscribe(&peer.listeners()[0]);
    let mut seen = Vec::new();
    while seen.iter().filter(|event| *event == "live 0").count() < 2 {
        let event = next(&mut live).await;
        seen.push(event);
    }
    let kept: Vec<_> = seen.iter().filter(|event| !event.starts_with("live")).collect();
    assert_eq!(kept, ["attached", "detached Closed", "attached"]);
}

#[tokio::test]
async fn deaf_peer_is_left_when_idle_is_limited() {
    let peer = Peer::hostile("deaf,good", 1).await;
    let mut settings = SubscribeSettings::new(Link::Connect(peer.listeners()[0].clone()));
    settings.idle_recycle = Some(Duration::from_millis(500));
    let mut live = Subscriber::spawn(settings, Arc::new(Counters::default()));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(short(soon(live.next()).await.unwrap()));
    }
    assert_eq!(seen, ["attached", "detached Idle", "attached", "live 0"]);
}

#[tokio::test]
async fn commands_the_library_does_not_know_drop_the_link() {
    for mode in ["ping", "error"] {
        let peer = Peer::hostile(&format!("{mode},good"), 1).await;
        let mut live = subscribe(&peer.listeners()[0]);
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(next(&mut live).await);
        }
        let expected = ["attached", "live 0", "detached ReceiveFailed", "attached", "live 0"];
        assert_eq!(seen, expected, "{mode}");
    }
}

#[tokio::test]
async fn message_of_a_wrong_shape_keeps_the_link() {
    let peer = Peer::hostile("two_frames", 1).await;
    let mut live = subscribe(&peer.listeners()[0]);
    assert_eq!(next(&mut live).await, "attached");
    let malformed = "malformed: expected 3 frames (topic, seq, payload), 2 came";
    assert_eq!(next(&mut live).await, malformed);
    assert_eq!(next(&mut live).await, "live 0");
}

/// Every connection costs the library a reconnect task; none may outlive the connection.
#[tokio::test]
async fn many_reconnects_leave_nothing_behind() {
    let peer = Peer::hostile("fin_sub,rst_sub,rst_ready,fin_ready,fin_sub", 1).await;
    let mut settings = SubscribeSettings::new(Link::Connect(peer.listeners()[0].clone()));
    let wait = Duration::from_millis(2);
    settings.retry = RetrySettings { first: wait, max: wait };
    let mut live = Subscriber::spawn(settings, Arc::new(Counters::default()));
    for _ in 0..500 {
        soon(live.next()).await.unwrap();
    }
    let (tasks, files) = (Handle::current().metrics().num_alive_tasks(), open_files());
    for _ in 0..500 {
        soon(live.next()).await.unwrap();
    }
    let (tasks_after, files_after) = (Handle::current().metrics().num_alive_tasks(), open_files());
    assert!(tasks_after <= tasks + 3, "{tasks} tasks, then {tasks_after}");
    assert!(files_after <= files + 3, "{files} files, then {files_after}");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
