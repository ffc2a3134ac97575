//! Where the transports differ: what one survives and the other does not, stated as tests.

use kvbridge_adapters_zmq::Transport;

use crate::{
    peer::Peer,
    support::{next, subscribe},
};

/// The first events of a stream whose peer sends one batch and then misbehaves once.
async fn first_events(transport: Transport, modes: &str, count: usize) -> Vec<String> {
    let peer = Peer::hostile(modes, 1).await;
    let mut live = subscribe(&peer.listeners()[0], transport);
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(next(&mut live).await);
    }
    seen
}

mod over_zeromq {
    use std::{os::unix::process::ExitStatusExt, process::Stdio};

    use tokio::process::Command;

    use super::*;
    use crate::support::soon;

    const OVER: Transport = Transport::Zeromq;

    #[tokio::test]
    async fn any_command_but_ready_drops_the_link() {
        for mode in ["ping", "error"] {
            let seen = first_events(OVER, &format!("{mode},good"), 5).await;
            let expected = ["attached", "live 0", "detached ReceiveFailed", "attached", "live 0"];
            assert_eq!(seen, expected, "{mode}");
        }
    }

    #[tokio::test]
    async fn heartbeats_of_the_publisher_break_the_link() {
        let peer = Peer::libzmq(&["--heartbeat-ms", "200"]).await;
        let mut live = subscribe(&peer.live(), OVER);
        for _ in 0..2 {
            assert_eq!(next(&mut live).await, "attached");
            assert_eq!(next(&mut live).await, "detached ReceiveFailed");
        }
    }

    /// In a process of its own. 2^60 and not 2^36: no setting of any kernel grants it.
    #[tokio::test]
    async fn hostile_frame_length_aborts_the_process() {
        let name = "beyond::over_zeromq::victim_of_a_frame_length";
        let victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", name])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        const SIGABRT: i32 = 6;
        assert_eq!(soon(victim).await.unwrap().signal(), Some(SIGABRT));
    }

    #[tokio::test]
    #[ignore = "aborts its process; run by hostile_frame_length_aborts_the_process"]
    async fn victim_of_a_frame_length() {
        first_events(OVER, "bomb60,good", 5).await;
    }
}

#[cfg(feature = "omq")]
mod over_omq {
    use std::{
        sync::{Arc, atomic::Ordering},
        time::Duration,
    };

    use kvbridge_adapters_zmq::{
        Counters, Link, ReplayClient, ReplayFailure, ReplayPart, SubscribeSettings, Subscriber,
    };
    use tokio::{
        io::AsyncReadExt,
        net::{TcpListener, TcpStream},
        time::Instant,
    };

    use super::*;
    use crate::support::{
        asking, client, connecting, expect_live, linked, replay, short, soon, spawn, within,
    };

    const OVER: Transport = Transport::Omq;

    /// One batch, a loss that is counted, and the next connection's first batch.
    async fn survives(mode: &str, change: impl FnOnce(&mut SubscribeSettings)) {
        let peer = Peer::hostile(&format!("{mode},good"), 1).await;
        let mut settings = connecting(&peer.listeners()[0], OVER);
        change(&mut settings);
        let counters = Arc::new(Counters::default());
        let mut live = Subscriber::spawn(settings, Arc::clone(&counters));
        let expected = ["attached", "live 0", "detached ReceiveFailed", "attached", "live 0"];
        for event in expected {
            assert_eq!(short(soon(live.next()).await.unwrap()), event, "{mode}");
        }
        assert_eq!(counters.receive_failed.load(Ordering::Relaxed), 1, "{mode}");
    }

    #[tokio::test]
    async fn hostile_frame_length_costs_the_connection_only() {
        for mode in ["bomb27", "bomb32", "bomb36", "bomb60", "bomb63"] {
            survives(mode, |_| ()).await;
        }
    }

    #[tokio::test]
    async fn frames_without_end_cost_the_connection_only() {
        survives("more", |settings| settings.frame_bytes_max = 1 << 20).await;
    }

    #[tokio::test]
    async fn hostile_frame_length_in_a_replay_fails_the_request_only() {
        for mode in ["router_bomb36", "router_bomb60"] {
            let peer = Peer::hostile(mode, 1).await;
            let counters = Arc::new(Counters::default());
            let settings = asking(&peer.listeners()[0], OVER);
            let mut client = ReplayClient::new(settings, Arc::clone(&counters));
            let last = replay(&mut client, 0).await.2;
            assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Receive }, "{mode}");
            assert_eq!(counters.replays_failed.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn ping_keeps_the_link() {
        let peer = Peer::hostile("ping", 1).await;
        let mut live = subscribe(&peer.listeners()[0], OVER);
        assert_eq!(next(&mut live).await, "attached");
        assert_eq!(next(&mut live).await, "live 0");
        // The peer closes a second after the command.
        let more = tokio::time::timeout(Duration::from_millis(500), live.next()).await;
        assert!(more.is_err(), "{more:?}");
    }

    #[tokio::test]
    async fn heartbeats_of_the_publisher_are_answered() {
        let mut peer = Peer::libzmq(&["--heartbeat-ms", "200"]).await;
        let mut live = subscribe(&peer.live(), OVER);
        peer.wait_subscriber().await;
        assert_eq!(next(&mut live).await, "attached");
        let started = Instant::now();
        let mut seq = 0;
        while started.elapsed() < Duration::from_secs(2) {
            peer.publish(1).await;
            expect_live(&mut live, seq..=seq).await;
            seq += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    #[tokio::test]
    async fn silent_peer_of_a_bound_socket_is_closed() {
        let link = Link::Bind("tcp://127.0.0.1:0".to_owned());
        let mut live = spawn(linked(link, OVER));
        let endpoint = soon(live.bound()).await.unwrap();
        let address = endpoint.strip_prefix("tcp://").unwrap();
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut greeting = Vec::new();
        within(Duration::from_secs(5), silent.read_to_end(&mut greeting)).await.unwrap();
    }

    /// The other library tries again by itself until the connect timeout.
    #[tokio::test]
    async fn refused_connect_is_known_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        drop(listener);
        let started = Instant::now();
        let last = replay(&mut client(asking(&endpoint, OVER)), 0).await.2;
        assert_eq!(last, ReplayPart::Failed { reason: ReplayFailure::Connect });
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    }
}
