//! Peers that accept and misbehave: the stream must come back by itself, every time.

use std::{sync::Arc, time::Duration};

use kvbridge_adapters_zmq::{RetrySettings, Transport, WireEvent};
use tokio::{runtime::Handle, sync::Notify, task::JoinSet, time::Instant};

use crate::{
    peer::Peer,
    support::{connecting, next, on_every_transport, short, sockets_to, soon, spawn, subscribe},
};

on_every_transport!(
    reset_right_after_ready,
    reset_right_after_ready_at_a_reconnect,
    silent_after_accept,
    closes_at_every_step,
    error_after_the_handshake,
    silent_peer_at_a_reconnect,
    deaf_peer_is_left_when_idle_is_limited,
    message_of_a_wrong_shape_keeps_the_link,
    half_open_peers_are_left_and_found_again,
    many_reconnects_leave_nothing_behind,
);

/// Subscribers of `count` listeners; each must get a batch after `losses` connections that were
/// attached and lost. Gives the slowest.
async fn all_recover(transport: Transport, modes: &str, count: usize, losses: usize) -> Duration {
    let peer = Peer::hostile(modes, count).await;
    let mut tasks = JoinSet::new();
    for endpoint in peer.listeners() {
        tasks.spawn(async move {
            let started = Instant::now();
            let mut live = subscribe(&endpoint, transport);
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
    eprintln!("{transport}, {modes}: {count} of {count}, slowest {slowest:?}");
    slowest
}

async fn reset_right_after_ready(transport: Transport) {
    // the library's own reconnect was deaf for good in 15 of 20
    assert!(all_recover(transport, "rst_ready,good", 20, 0).await < Duration::from_secs(10));
}

async fn reset_right_after_ready_at_a_reconnect(transport: Transport) {
    assert!(
        all_recover(transport, "good10,rst_ready,rst_ready,good", 20, 1).await
            < Duration::from_secs(10)
    );
}

async fn silent_after_accept(transport: Transport) {
    assert!(all_recover(transport, "silent,good", 20, 0).await < Duration::from_secs(10));
    assert!(all_recover(transport, "silent_ready,good", 20, 0).await < Duration::from_secs(10));
}

async fn closes_at_every_step(transport: Transport) {
    let modes = "garbage,http,rst_greet,fin_ready,rst_sub,fin_sub,good";
    assert!(all_recover(transport, modes, 4, 0).await < Duration::from_secs(20));
}

async fn error_after_the_handshake(transport: Transport) {
    assert!(all_recover(transport, "error,good", 4, 1).await < Duration::from_secs(10));
}

async fn silent_peer_at_a_reconnect(transport: Transport) {
    let peer = Peer::hostile("good10,silent,silent,good", 1).await;
    let mut live = subscribe(&peer.listeners()[0], transport);
    let mut seen = Vec::new();
    while seen.iter().filter(|event| *event == "live 0").count() < 2 {
        let event = next(&mut live).await;
        seen.push(event);
    }
    let kept: Vec<_> = seen.iter().filter(|event| !event.starts_with("live")).collect();
    assert_eq!(kept, ["attached", "detached Closed", "attached"]);
}

async fn deaf_peer_is_left_when_idle_is_limited(transport: Transport) {
    let peer = Peer::hostile("deaf,good", 1).await;
    let mut settings = connecting(&peer.listeners()[0], transport);
    settings.idle_recycle = Some(Duration::from_millis(500));
    let mut live = spawn(settings);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(short(soon(live.next()).await.unwrap()));
    }
    assert_eq!(seen, ["attached", "detached Idle", "attached", "live 0"]);
}

/// Nothing is closed, nothing is said: only the idle limit can tell.
async fn half_open_peers_are_left_and_found_again(transport: Transport) {
    const COUNT: usize = 20;
    let peer = Peer::hostile("good", COUNT).await;
    let mut streams = Vec::new();
    for endpoint in peer.listeners() {
        let mut settings = connecting(&endpoint, transport);
        settings.idle_recycle = Some(Duration::from_millis(500));
        let mut live = spawn(settings);
        assert_eq!(next(&mut live).await, "attached");
        assert_eq!(next(&mut live).await, "live 0");
        streams.push(live);
    }
    peer.freeze().await;
    let mut tasks = JoinSet::new();
    let thawed = Arc::new(Notify::new());
    for mut live in streams {
        let thawed = Arc::clone(&thawed);
        tasks.spawn(async move {
            while next(&mut live).await != "detached Idle" {}
            thawed.notified().await;
            let started = Instant::now();
            while next(&mut live).await != "live 0" {}
            started.elapsed()
        });
    }
    // Handshakes that the frozen peer's backlog lets begin time out; the waits between them differ.
    tokio::time::sleep(Duration::from_secs(6)).await;
    peer.thaw().await;
    thawed.notify_waiters();
    let recovered = soon(tasks.join_all()).await;
    assert_eq!(recovered.len(), COUNT);
    let slowest = recovered.into_iter().max().unwrap();
    eprintln!("{transport}, half-open: {COUNT} of {COUNT}, slowest {slowest:?} after the thaw");
    assert!(slowest < Duration::from_secs(5));
}

async fn message_of_a_wrong_shape_keeps_the_link(transport: Transport) {
    let peer = Peer::hostile("two_frames", 1).await;
    let mut live = subscribe(&peer.listeners()[0], transport);
    assert_eq!(next(&mut live).await, "attached");
    let malformed = "malformed: expected 3 frames (topic, seq, payload), 2 came";
    assert_eq!(next(&mut live).await, malformed);
    assert_eq!(next(&mut live).await, "live 0");
}

/// Every connection costs the library a reconnect task; none may outlive the connection.
async fn many_reconnects_leave_nothing_behind(transport: Transport) {
    let peer = Peer::hostile("fin_sub,rst_sub,rst_ready,fin_ready,fin_sub", 1).await;
    let mut settings = connecting(&peer.listeners()[0], transport);
    let wait = Duration::from_millis(2);
    settings.retry = RetrySettings { first: wait, max: wait };
    let mut live = spawn(settings);
    let port = peer.listeners()[0].rsplit(':').next().unwrap().parse::<u16>().unwrap();
    // A look may fall on connections that begin or end, on a busy machine on several of them. What
    // is left behind is there at every look: of many the one with the fewest counts.
    let mut fewest = async || {
        let (mut tasks, mut sockets) = (usize::MAX, usize::MAX);
        for _ in 0..250 {
            soon(live.next()).await.unwrap();
            tasks = tasks.min(Handle::current().metrics().num_alive_tasks());
            sockets = sockets.min(sockets_to(port));
        }
        (tasks, sockets)
    };
    fewest().await;
    let (tasks, sockets) = fewest().await;
    fewest().await;
    let (tasks_after, sockets_after) = fewest().await;
    assert!(tasks_after <= tasks + 3, "{tasks} tasks, then {tasks_after}");
    assert!(sockets_after <= sockets + 3, "{sockets} sockets, then {sockets_after}");
}
