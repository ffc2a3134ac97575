//! What the tests share: waiting with a limit, subscribing fast, draining an answer.

use std::{future::Future, sync::Arc, time::Duration};

use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{
    Counters, Link, ReplayClient, ReplayPart, ReplaySettings, SubscribeSettings, Subscriber,
    Transport, WireEvent,
};

/// No test waits longer for one thing.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    within(LIMIT, what).await
}

pub(crate) async fn within<F: Future>(limit: Duration, what: F) -> F::Output {
    tokio::time::timeout(limit, what).await.expect("did not happen in time")
}

/// Each of these is a test of every transport in this build: `over_zeromq::name`, `over_omq::name`.
macro_rules! on_every_transport {
    ($($name:ident),+ $(,)?) => {
        mod over_zeromq {
            $(#[tokio::test]
            async fn $name() {
                super::$name(kvbridge_adapters_zmq::Transport::Zeromq).await;
            })+
        }
        #[cfg(feature = "omq")]
        mod over_omq {
            $(#[tokio::test]
            async fn $name() {
                super::$name(kvbridge_adapters_zmq::Transport::Omq).await;
            })+
        }
    };
}
pub(crate) use on_every_transport;

pub(crate) fn connecting(endpoint: &str, transport: Transport) -> SubscribeSettings {
    linked(Link::Connect(endpoint.to_owned()), transport)
}

pub(crate) fn linked(link: Link, transport: Transport) -> SubscribeSettings {
    SubscribeSettings { transport, ..SubscribeSettings::new(link) }
}

pub(crate) fn spawn(settings: SubscribeSettings) -> Subscriber {
    Subscriber::spawn(settings, Arc::new(Counters::default()))
}

pub(crate) fn subscribe(endpoint: &str, transport: Transport) -> Subscriber {
    spawn(connecting(endpoint, transport))
}

pub(crate) fn asking(endpoint: &str, transport: Transport) -> ReplaySettings {
    ReplaySettings { transport, ..ReplaySettings::new(endpoint) }
}

/// The next event, in short.
pub(crate) async fn next(live: &mut Subscriber) -> String {
    short(soon(live.next()).await.expect("the subscriber has ended"))
}

pub(crate) fn short(event: WireEvent) -> String {
    match event {
        WireEvent::Attached => "attached".to_owned(),
        WireEvent::Detached { reason } => format!("detached {reason:?}"),
        WireEvent::Overflowed { dropped } => format!("overflowed {dropped}"),
        WireEvent::Frames(frame) => format!("live {}", frame.seq_frame.seq()),
        WireEvent::Malformed { reason } => format!("malformed: {reason}"),
    }
}

pub(crate) async fn expect_live(live: &mut Subscriber, seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        assert_eq!(next(live).await, format!("live {seq}"));
    }
}

pub(crate) fn client(settings: ReplaySettings) -> ReplayClient {
    ReplayClient::new(settings, Arc::new(Counters::default()))
}

/// A client that gives up fast.
pub(crate) fn hasty(endpoint: &str, transport: Transport) -> ReplayClient {
    let mut settings = asking(endpoint, transport);
    settings.progress_timeout = Duration::from_millis(500);
    client(settings)
}

/// Asks and collects: the seqs, their bytes together, and how it ended.
pub(crate) async fn replay(client: &mut ReplayClient, start: u64) -> (Vec<u64>, usize, ReplayPart) {
    client.start(Attempt(1), start);
    let (mut seqs, mut bytes) = (Vec::new(), 0);
    loop {
        match soon(client.next()).await {
            (Attempt(1), ReplayPart::Frame { seq_frame, payload, .. }) => {
                seqs.push(seq_frame.seq());
                bytes += payload.len();
            }
            (Attempt(1), last) => return (seqs, bytes, last),
            (attempt, part) => panic!("attempt {attempt} was not asked for: {part:?}"),
        }
    }
}

/// Connections to a local port that are open on the connecting side.
pub(crate) fn established_to(port: u16) -> usize {
    connections_to(port, |state, _| state == "01")
}

/// Sockets that a process still holds, in whatever state.
pub(crate) fn sockets_to(port: u16) -> usize {
    connections_to(port, |_, inode| inode != "0")
}

fn connections_to(port: u16, wanted: impl Fn(&str, &str) -> bool) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!("0100007F:{port:04X}");
    let counts = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(2) == Some(&&*remote) && wanted(fields[3], fields[9])
    };
    table.lines().filter(counts).count()
}
