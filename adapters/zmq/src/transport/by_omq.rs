//! The sockets of `omq-tokio`.
//!
//! A length that exceeds the limit closes the connection before memory is taken for it, PING is
//! answered, and a handshake has a deadline on both sides. Its own reconnect is off: which messages
//! came before a loss and which after would be told by nobody.
//!
//! Messages that came in the same read as bytes that are not the protocol are lost with them; a
//! replay finds them.

use std::time::Duration;

use bytes::Bytes;
use omq_tokio::{
    DisconnectReason, Endpoint, Message, MonitorEvent, MonitorRecvError, MonitorStream, Options,
    ReconnectPolicy, Socket, SocketType,
};
use tokio::time::timeout;
use tracing::debug;

use super::{LiveSocket, RequestSocket, SocketError, SocketLimits};
use crate::subscribe::{DetachReason, Link, bindable};

/// Messages the library reads ahead of us. We always read, so this only smooths: what neither it
/// nor the kernel can take waits at the engine, whose ROUTER drops beyond its limit.
const READ_AHEAD_COUNT: u32 = 1024;

/// The kernel's buffer for what comes in; the other transport has the same.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// The library's wait before it connects again; the socket is dropped long before. Its `Disabled`
/// says nothing of a refused connect, so every attempt would take the whole connect timeout.
const NEVER: Duration = Duration::from_secs(3600);

/// Between two looks at a socket that has nothing: from the first, doubled up to the other. Longer:
/// events are older. Shorter: idle sources cost more.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(8);

/// The library's limit is on the whole message: all frames and a slot for each. The largest frame
/// has to pass with a topic, a seq and their slots beside it.
const BESIDE_THE_PAYLOAD_BYTES: usize = 64 * 1024;

/// One socket, and what the library says about its connections.
struct Watched {
    socket: Socket,
    monitor: MonitorStream,
    /// The connection is over; what it had brought before is given out first.
    ended: Option<DetachReason>,
}

impl Watched {
    fn new(kind: SocketType, limits: SocketLimits) -> Result<Watched, SocketError> {
        let socket = Socket::try_new(kind, options(limits))?;
        let monitor = socket.monitor();
        Ok(Watched { socket, monitor, ended: None })
    }

    /// Connects and waits for the end of the handshake.
    async fn connect(&mut self, endpoint: &str, within: Duration) -> Result<(), SocketError> {
        self.socket.connect(endpoint).await?;
        let shaken = timeout(within, self.handshake()).await;
        shaken.map_err(|_| SocketError::TimedOut)?
    }

    async fn handshake(&mut self) -> Result<(), SocketError> {
        loop {
            let failed = match self.monitor.recv().await {
                Ok(MonitorEvent::HandshakeSucceeded { .. }) => return Ok(()),
                Ok(MonitorEvent::HandshakeFailed { reason, .. }) => reason,
                Ok(MonitorEvent::ConnectStopped { reason, .. }) => format!("{reason:?}"),
                Ok(MonitorEvent::Disconnected { reason, .. }) => format!("{reason:?}"),
                // All that is said of a refused connect or a close within the handshake.
                Ok(MonitorEvent::ConnectDelayed { .. }) => "cannot connect".to_owned(),
                Ok(MonitorEvent::Closed) => "closed".to_owned(),
                // A lag can hide any of them.
                Err(error) => error.to_string(),
                Ok(_) => continue,
            };
            return Err(SocketError::Peer(failed));
        }
    }

    /// For the one connection of a connected socket.
    async fn recv(&mut self) -> Result<Vec<Bytes>, DetachReason> {
        if self.ended.is_none() {
            tokio::select! {
                message = received(&self.socket) => {
                    return message.map(frames).map_err(|_| DetachReason::ReceiveFailed);
                }
                reason = lost(&mut self.monitor) => self.ended = Some(reason),
            }
        }
        match (self.socket.try_recv(), self.ended) {
            (Ok(message), _) => Ok(frames(message)),
            (Err(_), reason) => Err(reason.unwrap_or(DetachReason::Closed)),
        }
    }
}

/// A SUB.
pub(crate) struct Live {
    watched: Watched,
    bound: Option<String>,
}

impl LiveSocket for Live {
    async fn open(link: &Link, topics: &[&str], limits: SocketLimits) -> Result<Live, SocketError> {
        let mut watched = Watched::new(SocketType::Sub, limits)?;
        // Remembered, and sent to every peer at the end of its handshake.
        for topic in topics {
            watched.socket.subscribe((*topic).to_owned()).await?;
        }
        let bound = match link {
            Link::Connect(endpoint) => {
                watched.connect(endpoint, limits.connect_timeout).await?;
                None
            }
            Link::Bind(endpoint) => {
                let bound: Endpoint = watched.socket.bind(bindable(endpoint).as_str()).await?;
                Some(bound.to_string())
            }
        };
        Ok(Live { watched, bound })
    }

    fn bound(&self) -> Option<&str> {
        self.bound.as_deref()
    }

    async fn recv(&mut self) -> Result<Vec<Bytes>, DetachReason> {
        if self.bound.is_none() {
            return self.watched.recv().await;
        }
        // Messages of other peers may wait behind a loss, so it is told as soon as it is known.
        tokio::select! {
            biased;
            reason = lost(&mut self.watched.monitor) => Err(reason),
            message = received(&self.watched.socket) => {
                message.map(frames).map_err(|_| DetachReason::ReceiveFailed)
            }
        }
    }
}

/// A DEALER.
pub(crate) struct Request(Watched);

impl RequestSocket for Request {
    async fn open(endpoint: &str, limits: SocketLimits) -> Result<Request, SocketError> {
        let mut watched = Watched::new(SocketType::Dealer, limits)?;
        watched.connect(endpoint, limits.connect_timeout).await?;
        Ok(Request(watched))
    }

    async fn send(&mut self, request: Vec<Bytes>) -> Result<(), SocketError> {
        Ok(self.0.socket.send(Message::multipart(request)).await?)
    }

    async fn recv(&mut self) -> Result<Vec<Bytes>, DetachReason> {
        self.0.recv().await
    }
}

fn options(limits: SocketLimits) -> Options {
    let message_bytes_max = limits.frame_bytes_max.saturating_add(BESIDE_THE_PAYLOAD_BYTES);
    // Heartbeats stay off, the library's default: stock engines answer PING, a proxy may not.
    Options {
        reconnect: ReconnectPolicy::Fixed(NEVER),
        handshake_timeout: Some(limits.connect_timeout),
        max_message_size: Some(message_bytes_max),
        recv_hwm: READ_AHEAD_COUNT,
        recv_buffer_size: Some(RECEIVE_BUFFER_BYTES),
        ..Options::default()
    }
}

/// The next message. Cancel-safe.
///
/// The library's own wait can go round within one poll and never come back: a signal that stays set
/// while its queues are empty (0.33.0, `SpscAwareRecv::recv`) takes a thread with everything on it,
/// and the runtime cannot even end. So it is asked, and left alone for a moment where it has
/// nothing.
async fn received(socket: &Socket) -> Result<Message, omq_tokio::Error> {
    let mut pause = PAUSE_MIN;
    loop {
        match socket.try_recv() {
            Err(omq_tokio::Error::WouldBlock) => {
                tokio::time::sleep(pause).await;
                pause = PAUSE_MAX.min(pause * 2);
            }
            ready => return ready,
        }
    }
}

/// Waits until a connection is over. Cancel-safe.
async fn lost(monitor: &mut MonitorStream) -> DetachReason {
    loop {
        return match monitor.recv().await {
            Ok(MonitorEvent::Disconnected { reason, .. }) => detach_reason(&reason),
            Ok(MonitorEvent::Closed) | Err(MonitorRecvError::Closed) => DetachReason::Closed,
            // A loss may be among what was missed; one that was none costs a replay.
            Err(_) => DetachReason::ReceiveFailed,
            Ok(_) => continue,
        };
    }
}

fn detach_reason(reason: &DisconnectReason) -> DetachReason {
    match reason {
        DisconnectReason::Error(error) => {
            debug!(%error, "connection failed");
            DetachReason::ReceiveFailed
        }
        _ => DetachReason::Closed,
    }
}

fn frames(message: Message) -> Vec<Bytes> {
    let mut message = message;
    std::iter::from_fn(|| message.pop_front()).collect()
}
