//! Our server against our subscriber and replay client.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{
    Counters, Faults, Framing, QueueLimits, ReplayFailure, ReplayPart, ServeSettings, Server,
    Subscriber, Transport,
};
use tokio::time::Instant;

use crate::support::{
    asking, client, connecting, expect_live, hasty, next, on_every_transport, replay, soon, spawn,
    subscribe, within,
};

on_every_transport!(
    live_then_restart_on_the_same_port,
    topic_is_a_prefix,
    replay_in_both_framings,
    faults_of_the_field,
    overflow_leaves_one_marker_in_place,
    idle_connection_is_recycled_when_asked_for,
    nothing_listens_on_the_replay_port,
    replay_port_of_the_live_stream_fails_at_once,
    new_request_replaces_the_open_one,
    full_spool_ends_the_request_after_what_it_holds,
    peer_that_dies_mid_replay_is_a_failure,
    a_cut_answer_ends_without_a_word,
);

async fn server(settings: ServeSettings) -> Server {
    soon(Server::bind(settings)).await.unwrap()
}

fn publish(server: &Server, seqs: std::ops::Range<u64>) {
    for seq in seqs {
        server.publish(seq, Bytes::from(format!("payload {seq}"))).unwrap();
    }
}

async fn live_then_restart_on_the_same_port(transport: Transport) {
    let first = server(ServeSettings::default()).await;
    let mut live = subscribe(first.live(), transport);
    soon(first.wait_subscribers(1)).await.unwrap();
    publish(&first, 0..3);
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..3).await;

    let endpoint = first.live().to_owned();
    first.close().await;
    assert_eq!(next(&mut live).await, "detached Closed");
    let second = server(ServeSettings { live: endpoint, ..ServeSettings::default() }).await;
    within(Duration::from_secs(2), second.wait_subscribers(1)).await.unwrap();
    publish(&second, 0..2);
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..2).await;
}

async fn topic_is_a_prefix(transport: Transport) {
    let server = server(ServeSettings { topic: "kv@a".into(), ..ServeSettings::default() }).await;
    let with_topic = |topic: &str| {
        let mut settings = connecting(server.live(), transport);
        topic.clone_into(&mut settings.topic);
        spawn(settings)
    };
    let (mut wanted, mut other) = (with_topic("kv@"), with_topic("kv@b"));
    soon(server.wait_subscribers(2)).await.unwrap();
    publish(&server, 0..1);
    assert_eq!(next(&mut wanted).await, "attached");
    expect_live(&mut wanted, 0..1).await;
    assert_eq!(next(&mut other).await, "attached");
    let more = tokio::time::timeout(Duration::from_millis(200), other.next()).await;
    assert!(more.is_err(), "a message of another topic came");
}

async fn replay_in_both_framings(transport: Transport) {
    for framing in [Framing::Plain, Framing::WithTopic] {
        let settings = ServeSettings { framing, topic: "kv".into(), ..ServeSettings::default() };
        let server = server(settings).await;
        publish(&server, 0..10);
        let mut client = hasty(server.replay(), transport);
        let (seqs, bytes, last) = replay(&mut client, 4).await;
        assert_eq!((seqs, bytes, last), ((4..10).collect(), 6 * 9, ReplayPart::End));
        let (seqs, _, last) = replay(&mut client, 99).await;
        assert_eq!((seqs, last), (vec![], ReplayPart::End));
    }
}

async fn faults_of_the_field(transport: Transport) {
    let faults = Faults {
        withheld: [1].into(),
        burnt: [2].into(),
        unjournaled: [3].into(),
        end_lost: true,
        ..Faults::default()
    };
    let settings = ServeSettings { journal_count_max: 4, faults, ..ServeSettings::default() };
    let server = server(settings).await;
    let mut live = subscribe(server.live(), transport);
    soon(server.wait_subscribers(1)).await.unwrap();
    publish(&server, 0..6);
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, [0, 3, 4, 5]).await;

    let mut client = hasty(server.replay(), transport);
    let (seqs, _, last) = replay(&mut client, 0).await;
    assert_eq!(seqs, [1, 4, 5], "0 fell out of the journal");
    assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Silent { waited_ms: 500 } });

    server.set_faults(Faults::default());
    let (seqs, _, last) = replay(&mut client, 0).await;
    assert_eq!((seqs, last), (vec![1, 3, 4, 5], ReplayPart::End));
}

async fn overflow_leaves_one_marker_in_place(transport: Transport) {
    let server = server(ServeSettings::default()).await;
    let mut settings = connecting(server.live(), transport);
    settings.queue = QueueLimits { count_max: 10, bytes_max: 1 << 20 };
    let counters = Arc::new(Counters::default());
    let mut live = Subscriber::spawn(settings, Arc::clone(&counters));
    soon(server.wait_subscribers(1)).await.unwrap();
    publish(&server, 0..100);
    let received = || counters.frames.load(std::sync::atomic::Ordering::Relaxed);
    soon(async {
        while received() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(next(&mut live).await, "attached");
    expect_live(&mut live, 0..10).await;
    assert_eq!(next(&mut live).await, "overflowed 90");
    publish(&server, 100..102);
    expect_live(&mut live, 100..102).await;
}

async fn idle_connection_is_recycled_when_asked_for(transport: Transport) {
    let server = server(ServeSettings::default()).await;
    let mut settings = connecting(server.live(), transport);
    settings.idle_recycle = Some(Duration::from_millis(300));
    let mut live = spawn(settings);
    assert_eq!(next(&mut live).await, "attached");
    assert_eq!(next(&mut live).await, "detached Idle");
    assert_eq!(next(&mut live).await, "attached");
    soon(server.wait_subscribers(2)).await.unwrap();
    publish(&server, 0..1);
    expect_live(&mut live, 0..1).await;
}

async fn nothing_listens_on_the_replay_port(transport: Transport) {
    let gone = server(ServeSettings::default()).await;
    let endpoint = gone.replay().to_owned();
    gone.close().await;
    let started = Instant::now();
    let (seqs, _, last) = replay(&mut client(asking(&endpoint, transport)), 0).await;
    assert_eq!(seqs, Vec::<u64>::new());
    assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Connect });
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
}

async fn replay_port_of_the_live_stream_fails_at_once(transport: Transport) {
    let server = server(ServeSettings::default()).await;
    let (_, _, last) = replay(&mut client(asking(server.live(), transport)), 0).await;
    assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Connect });
}

async fn new_request_replaces_the_open_one(transport: Transport) {
    let server = server(ServeSettings::default()).await;
    publish(&server, 0..5000);
    let mut client = hasty(server.replay(), transport);
    client.start(Attempt(1), 0);
    let (attempt, first) = soon(client.next()).await;
    assert!(matches!(first, ReplayPart::Frame { .. }));
    assert_eq!(attempt, Attempt(1));
    client.start(Attempt(2), 4998);
    let mut parts = Vec::new();
    for _ in 0..3 {
        parts.push(soon(client.next()).await);
    }
    assert!(parts.iter().all(|(attempt, _)| *attempt == Attempt(2)));
    assert_eq!(parts.last(), Some(&(Attempt(2), ReplayPart::End)));

    client.start(Attempt(3), 0);
    client.cancel();
    let more = tokio::time::timeout(Duration::from_millis(200), client.next()).await;
    assert!(more.is_err(), "a cancelled request still answers");
    // the one thread of the server was not stuck on the answers nobody read
    let (seqs, _, last) = replay(&mut client, 4999).await;
    assert_eq!((seqs, last), (vec![4999], ReplayPart::End));
}

async fn full_spool_ends_the_request_after_what_it_holds(transport: Transport) {
    let server = server(ServeSettings::default()).await;
    publish(&server, 0..100);
    let mut settings = asking(server.replay(), transport);
    settings.spool = QueueLimits { count_max: 10, bytes_max: 1 << 20 };
    let counters = Arc::new(Counters::default());
    let mut client = kvbridge_adapters_zmq::ReplayClient::new(settings, Arc::clone(&counters));
    client.start(Attempt(1), 0);
    soon(async {
        while counters.replays_failed.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut seqs = Vec::new();
    let last = loop {
        match soon(client.next()).await.1 {
            ReplayPart::Frame { seq_frame, .. } => seqs.push(seq_frame.seq()),
            last => break last,
        }
    };
    assert_eq!(seqs, (0..10).collect::<Vec<_>>());
    assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::SpoolFull });
}

async fn peer_that_dies_mid_replay_is_a_failure(transport: Transport) {
    let faults = Faults { end_lost: true, ..Faults::default() };
    let server = server(ServeSettings { faults, ..ServeSettings::default() }).await;
    publish(&server, 0..3);
    let mut client = client(asking(server.replay(), transport));
    client.start(Attempt(1), 0);
    for _ in 0..3 {
        assert!(matches!(soon(client.next()).await.1, ReplayPart::Frame { .. }));
    }
    server.close().await;
    let last = within(Duration::from_secs(2), client.next()).await;
    assert_eq!(last.1, ReplayPart::Failed { reason: ReplayFailure::Closed });
}

/// As libzmq does at a full pipe: what does not fit is dropped without a word, the end marker too.
async fn a_cut_answer_ends_without_a_word(transport: Transport) {
    let faults = Faults { reply_count_max: Some(3), ..Faults::default() };
    let server = server(ServeSettings { faults, ..ServeSettings::default() }).await;
    publish(&server, 0..5);
    let (seqs, _, last) = replay(&mut hasty(server.replay(), transport), 0).await;
    assert_eq!(seqs, [0, 1, 2]);
    assert!(
        matches!(last, ReplayPart::Failed { reason: ReplayFailure::Silent { .. } }),
        "{last:?}"
    );
    let (seqs, _, last) = replay(&mut hasty(server.replay(), transport), 3).await;
    assert_eq!((seqs, last), (vec![3, 4], ReplayPart::End));
}
