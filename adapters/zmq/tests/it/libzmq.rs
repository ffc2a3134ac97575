//! Against libzmq, which is what engines run.

use std::time::Duration;

use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{Link, QueueLimits, ReplayFailure, ReplayPart, Transport, WireEvent};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    peer::{Peer, fixture},
    support::{
        asking, client, connecting, established_to, expect_live, hasty, linked, next,
        on_every_transport, replay, soon, spawn, subscribe, within,
    },
};

on_every_transport!(
    capture_is_played_live_and_replayed,
    real_pub_socket_is_heard,
    restart_of_the_publisher,
    killed_publisher,
    large_replay_is_complete,
    large_replay_from_a_router_with_the_default_limit,
    lost_end_marker_is_a_failure_by_the_deadline,
    loss_of_every_kind_shows_in_the_seqs,
    reply_that_stalls_midway_is_a_failure,
    cancelled_replay_closes_its_connection,
    publisher_that_connects,
    slow_consumer_overflows_visibly_and_nothing_else_is_lost,
);

async fn capture_is_played_live_and_replayed(transport: Transport) {
    let capture = fixture("vllm-0.32.0-basic.jsonl");
    let mut peer = Peer::libzmq(&["--capture", &capture]).await;
    let mut live = subscribe(&peer.live(), transport);
    peer.wait_subscriber().await;
    let published = peer.publish(50).await;
    assert_eq!(published["n"], 50);
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..50).await;
    for framing in ["topic", "plain"] {
        peer.command(json!({"cmd": "set", "framing": framing})).await;
        let (seqs, _, last) = replay(&mut hasty(&peer.replay(), transport), 10).await;
        assert_eq!((seqs, last), ((10..50).collect(), ReplayPart::End), "{framing}");
    }
}

async fn real_pub_socket_is_heard(transport: Transport) {
    let mut peer = Peer::libzmq(&["--socket", "pub", "--topic", "kv@x"]).await;
    let mut settings = connecting(&peer.live(), transport);
    settings.topic = "kv@".to_owned();
    let mut live = spawn(settings);
    assert_eq!(next(&mut live).await, "attached");
    // A PUB does not tell when the subscription has arrived: publish until one is heard.
    let heard = loop {
        peer.publish(1).await;
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(50), live.next()).await {
            break event;
        }
    };
    assert!(heard.is_some());
}

async fn restart_of_the_publisher(transport: Transport) {
    let mut peer = Peer::libzmq(&[]).await;
    let mut live = subscribe(&peer.live(), transport);
    peer.wait_subscriber().await;
    peer.publish(3).await;
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..3).await;
    peer.command(json!({"cmd": "stop"})).await;
    assert_eq!(next(&mut live).await, "detached Closed");
    // Long enough that the waits have grown to their limit.
    tokio::time::sleep(Duration::from_secs(4)).await;
    peer.command(json!({"cmd": "start"})).await;
    let started = Instant::now();
    within(Duration::from_secs(2), peer.wait_subscriber()).await;
    eprintln!("{transport}: subscribed again {:?} after the port was open", started.elapsed());
    peer.publish(2).await;
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..2).await;
}

async fn killed_publisher(transport: Transport) {
    let mut peer = Peer::libzmq(&[]).await;
    let live_port = peer.port("live_port").to_string();
    let mut live = subscribe(&peer.live(), transport);
    peer.wait_subscriber().await;
    assert_eq!(next(&mut live).await, "attached");
    peer.kill().await;
    let detached = next(&mut live).await;
    assert!(detached.starts_with("detached"), "{detached}");
    let mut peer = Peer::libzmq(&["--live-port", &live_port]).await;
    within(Duration::from_secs(2), peer.wait_subscriber()).await;
    peer.publish(1).await;
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..1).await;
}

async fn large_replay_is_complete(transport: Transport) {
    let args = ["--size", "10240", "--router-hwm", "20002"];
    let mut peer = Peer::libzmq(&args).await;
    peer.publish(5000).await;
    let started = Instant::now();
    let mut client = client(asking(&peer.replay(), transport));
    let (seqs, bytes, last) = replay(&mut client, 0).await;
    eprintln!("{transport}: {} batches, {bytes} bytes in {:?}", seqs.len(), started.elapsed());
    assert_eq!(seqs, (0..5000).collect::<Vec<_>>());
    assert_eq!((bytes, last), (5000 * 10_240, ReplayPart::End));
}

/// With the ROUTER's default limit an engine may drop from the middle; what comes is in order, and
/// a hole is for the core to see. This states what is measured and asserts only what must hold.
async fn large_replay_from_a_router_with_the_default_limit(transport: Transport) {
    let mut peer = Peer::libzmq(&["--size", "10240"]).await;
    peer.publish(5000).await;
    let mut client = hasty(&peer.replay(), transport);
    let (seqs, _, last) = replay(&mut client, 0).await;
    eprintln!("{transport}: {} of 5000 batches, then {last:?}", seqs.len());
    assert!(seqs.is_sorted());
    assert!(seqs.len() >= 1000);
}

async fn lost_end_marker_is_a_failure_by_the_deadline(transport: Transport) {
    let mut peer = Peer::libzmq(&["--no-end"]).await;
    peer.publish(5).await;
    let started = Instant::now();
    let (seqs, _, last) = replay(&mut hasty(&peer.replay(), transport), 0).await;
    assert_eq!(seqs, [0, 1, 2, 3, 4]);
    assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Silent { waited_ms: 500 } });
    assert!(started.elapsed() < Duration::from_secs(2));
}

async fn loss_of_every_kind_shows_in_the_seqs(transport: Transport) {
    let args = ["--withhold", "1", "--burn", "2", "--hole", "3", "--journal", "5"];
    let mut peer = Peer::libzmq(&args).await;
    let mut live = subscribe(&peer.live(), transport);
    peer.wait_subscriber().await;
    peer.publish(7).await;
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, [0, 3, 4, 5, 6]).await;
    let (seqs, _, last) = replay(&mut hasty(&peer.replay(), transport), 0).await;
    assert_eq!((seqs, last), (vec![1, 4, 5, 6], ReplayPart::End));
    let stats = peer.command(json!({"cmd": "stats"})).await;
    assert_eq!(stats, json!({"event": "stats", "requests": 1, "malformed": 0, "journal": 5}));
}

async fn reply_that_stalls_midway_is_a_failure(transport: Transport) {
    let mut peer = Peer::libzmq(&["--stall-after", "2"]).await;
    peer.publish(5).await;
    let (seqs, _, last) = replay(&mut hasty(&peer.replay(), transport), 0).await;
    assert_eq!(seqs, [0, 1]);
    assert!(matches!(last, ReplayPart::Failed { reason: ReplayFailure::Silent { .. } }));
}

async fn cancelled_replay_closes_its_connection(transport: Transport) {
    let mut peer = Peer::libzmq(&["--stall-after", "2"]).await;
    peer.publish(5).await;
    let mut client = client(asking(&peer.replay(), transport));
    client.start(Attempt(1), 0);
    for _ in 0..2 {
        assert!(matches!(soon(client.next()).await.1, ReplayPart::Frame { .. }));
    }
    let port = u16::try_from(peer.port("replay_port")).unwrap();
    assert_eq!(established_to(port), 1);
    client.cancel();
    soon(async {
        while established_to(port) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Engines connect their publisher when its endpoint names a host; then we are the ones that bind.
async fn publisher_that_connects(transport: Transport) {
    let settings = linked(Link::Bind("tcp://127.0.0.1:0".to_owned()), transport);
    let mut live = spawn(settings);
    let endpoint = soon(live.bound()).await.unwrap();
    let port = endpoint.rsplit(':').next().unwrap();
    assert_eq!(next(&mut live).await, "attached");
    let mut peer = Peer::libzmq(&["--live-connect", port]).await;
    peer.wait_subscriber().await;
    peer.publish(2).await;
    expect_live(&mut live, 0..2).await;
    peer.command(json!({"cmd": "restart"})).await;
    peer.wait_subscriber().await;
    peer.publish(1).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(next(&mut live).await);
    }
    // The old connection's end and the new one's first message may come in any order: that is why
    // a bound source has to declare its continuity unproven.
    seen.sort_unstable();
    assert_eq!(seen, ["attached", "detached Closed", "live 0"]);
}

async fn slow_consumer_overflows_visibly_and_nothing_else_is_lost(transport: Transport) {
    const PUBLISHED: u64 = 20_000;
    let mut peer = Peer::libzmq(&["--size", "1024"]).await;
    let mut settings = connecting(&peer.live(), transport);
    settings.queue = QueueLimits { count_max: 200, bytes_max: 1 << 20 };
    let mut live = spawn(settings);
    peer.wait_subscriber().await;
    assert_eq!(next(&mut live).await, "attached");
    let (mut expected, mut markers) = (0, 0);
    let consume = async {
        while expected < PUBLISHED {
            match soon(live.next()).await.unwrap() {
                WireEvent::Frames(frame) => {
                    assert_eq!(frame.seq_frame.seq(), expected);
                    expected += 1;
                }
                WireEvent::Overflowed { dropped } => {
                    expected += dropped;
                    markers += 1;
                }
                other => panic!("{other:?}"),
            }
            if expected % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    tokio::join!(consume, peer.publish(PUBLISHED));
    eprintln!("{transport}: {markers} markers in {PUBLISHED} messages");
    assert!(markers > 0);
}
