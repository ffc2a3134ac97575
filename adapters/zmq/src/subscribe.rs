//! One supervised live subscription: connect, read, notice loss, connect again.
//!
//! The library's SUB socket alone can stay deaf for ever: a peer that resets right after its READY
//! left `connect` with Ok and nothing ever arriving in 15 of 20 runs, and a peer that accepts and
//! is silent blocked its reconnect until that peer closed. So a socket lives for one connection
//! only: connect first, subscribe after (a dead peer is then an error and not silence), and any
//! error or disconnect drops the socket. The read task never waits for the consumer, so a slow
//! consumer shows as a marker in the queue instead of silent drops at the engine.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, channel::mpsc};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, info, warn};
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqMessage, ZmqResult};

use crate::{
    counters::Counters,
    fifo::QueueLimits,
    frame::{FRAME_BYTES_MAX, FrameError, LiveFrame, parse_live},
    live_queue::{CloseLive, LiveQueue},
    retry::{Retry, RetrySettings},
};

/// Bounds TCP connect, greeting and READY together, and the subscribe that follows. A handshake in
/// one data centre takes milliseconds; a peer that is silent for a second is retried.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What waits for the consumer: at 1000 batches a second, four seconds of a stalled sink. Too
/// small: a pause costs a replay. Too large: memory per replica.
pub const LIVE_QUEUE_LIMITS: QueueLimits =
    QueueLimits { count_max: 4096, bytes_max: 64 * 1024 * 1024 };

/// A connection that lasted this long, or brought a frame, was a good one: the next wait is short.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);

/// Who opens the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// We connect to the publisher.
    Connect(String),
    /// The publisher connects to us. A new connection is then not always visible.
    Bind(String),
}

/// How to subscribe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeSettings {
    /// The one endpoint.
    pub link: Link,
    /// Prefix of the topics wanted; empty = all.
    pub topic: String,
    /// See [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Waits between attempts.
    pub retry: RetrySettings,
    /// Connect anew when nothing came for so long. A peer whose host vanished without a word stays
    /// silent for ever; only this or a replay probe notices.
    /// Not for a bound socket: it has nobody to connect to.
    pub idle_recycle: Option<Duration>,
    /// Larger frames are malformed.
    pub frame_bytes_max: usize,
    /// What waits for the consumer.
    pub queue: QueueLimits,
}

impl SubscribeSettings {
    /// The defaults for a link.
    pub fn new(link: Link) -> SubscribeSettings {
        SubscribeSettings {
            link,
            topic: String::new(),
            connect_timeout: CONNECT_TIMEOUT,
            retry: RetrySettings::default(),
            idle_recycle: None,
            frame_bytes_max: FRAME_BYTES_MAX,
            queue: LIVE_QUEUE_LIMITS,
        }
    }
}

/// Why a live connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DetachReason {
    /// The peer closed.
    Closed,
    /// Reading failed: reset, or bytes that are not the protocol.
    ReceiveFailed,
    /// Nothing came for the idle time.
    Idle,
}

/// One thing the live subscription says, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireEvent {
    /// Connected and subscribed (or bound). Nothing sent before was seen.
    Attached,
    /// The connection is over; always before the first frame of the next one.
    Detached {
        /// Why.
        reason: DetachReason,
    },
    /// Frames were dropped here because the consumer was slow.
    Overflowed {
        /// How many.
        dropped: u64,
    },
    /// One live message.
    Frames(LiveFrame),
    /// A message of a wrong shape.
    Malformed {
        /// What is wrong with it.
        reason: FrameError,
    },
}

/// A live subscription. Dropping it ends its task and closes the socket.
#[derive(Debug)]
pub struct Subscriber {
    queue: Arc<LiveQueue>,
    bound: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Subscriber {
    /// Starts the task. Must be called inside a tokio runtime.
    pub fn spawn(settings: SubscribeSettings, counters: Arc<Counters>) -> Subscriber {
        let queue = Arc::new(LiveQueue::new(settings.queue));
        let (bound_tx, bound) = watch::channel(None);
        let reader =
            Reader { settings, counters, queue: Arc::clone(&queue), bound: bound_tx, failures: 0 };
        let task = tokio::spawn(reader.run());
        Subscriber { queue, bound, task }
    }

    /// The next event; `None` when the task has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<WireEvent> {
        self.queue.fifo().pop().await
    }

    /// Whether the task has ended.
    pub fn is_closed(&self) -> bool {
        self.queue.fifo().is_closed()
    }

    /// Waits for the endpoint a [`Link::Bind`] got (its port may have been 0). A
    /// [`Link::Connect`] never gets one.
    pub async fn bound(&mut self) -> Option<String> {
        let bound = self.bound.wait_for(Option::is_some).await.ok()?;
        bound.clone()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task's side.
struct Reader {
    settings: SubscribeSettings,
    counters: Arc<Counters>,
    queue: Arc<LiveQueue>,
    bound: watch::Sender<Option<String>>,
    failures: u32,
}

impl Reader {
    async fn run(mut self) {
        let _close = CloseLive(Arc::clone(&self.queue));
        let mut retry = Retry::new(self.settings.retry);
        loop {
            match self.open().await {
                Ok((mut socket, mut monitor)) => {
                    let opened = Instant::now();
                    let frames_before = self.counters.frames.load(Ordering::Relaxed);
                    let reason = self.read(&mut socket, &mut monitor).await;
                    // Dropped at once: inside the first 100 ms the library's own reconnect still
                    // sleeps and can be stopped; inside a handshake it can not.
                    drop(socket);
                    self.queue.detached(reason);
                    info!(?reason, "live stream detached");
                    let frames = self.counters.frames.load(Ordering::Relaxed) - frames_before;
                    if frames > 0 || opened.elapsed() >= GOOD_CONNECTION {
                        retry.reset();
                    }
                }
                Err(error) => self.open_failed(&error),
            }
            sleep(retry.next_wait()).await;
        }
    }

    /// Opens a socket for one connection and says Attached.
    async fn open(&mut self) -> ZmqResult<(SubSocket, mpsc::Receiver<SocketEvent>)> {
        let mut options = SocketOptions::default();
        options.connect_timeout(self.settings.connect_timeout);
        let mut socket = SubSocket::with_options(options);
        let monitor = socket.monitor();
        match &self.settings.link {
            Link::Connect(endpoint) => {
                socket.connect(endpoint).await?;
                // After connect: with no subscription remembered the library registers the peer in
                // every case, and a peer that has gone is an error here.
                self.subscribe(&mut socket).await?;
            }
            Link::Bind(endpoint) => {
                self.subscribe(&mut socket).await?;
                let bound = socket.bind(&bindable(endpoint)).await?;
                self.bound.send_replace(Some(bound.to_string()));
            }
        }
        Counters::one(&self.counters.attached);
        info!(failures = self.failures, "live stream attached");
        self.failures = 0;
        self.queue.attached();
        Ok((socket, monitor))
    }

    async fn subscribe(&self, socket: &mut SubSocket) -> ZmqResult<()> {
        let subscribed = socket.subscribe(&self.settings.topic);
        timeout(self.settings.connect_timeout, subscribed)
            .await
            .map_err(|_| zeromq::ZmqError::Other("subscribe timed out"))?
    }

    fn open_failed(&mut self, error: &zeromq::ZmqError) {
        Counters::one(&self.counters.connect_failed);
        self.failures = self.failures.saturating_add(1);
        // One line per outage; its end names the number of attempts.
        if self.failures == 1 {
            warn!(%error, "live stream cannot connect, retrying");
        } else {
            debug!(%error, failures = self.failures, "live stream cannot connect");
        }
    }

    /// Reads until the connection is over.
    async fn read(
        &self,
        socket: &mut SubSocket,
        monitor: &mut mpsc::Receiver<SocketEvent>,
    ) -> DetachReason {
        let bound = matches!(self.settings.link, Link::Bind(_));
        let recycle = self.settings.idle_recycle.filter(|_| !bound);
        loop {
            let lost = tokio::select! {
                // The monitor first: the library reconnects by itself after 100 ms, and a task that
                // slept through it must see the loss before a frame of the new connection.
                biased;
                event = monitor.next() => match event {
                    Some(SocketEvent::Disconnected(_)) => Some(DetachReason::Closed),
                    Some(_) => None,
                    None => return DetachReason::Closed,
                },
                message = socket.recv() => match message {
                    Ok(message) => {
                        self.receive(message);
                        None
                    }
                    Err(error) => {
                        debug!(%error, "live stream receive failed");
                        Some(DetachReason::ReceiveFailed)
                    }
                },
                () = idle(recycle) => return DetachReason::Idle,
            };
            match lost {
                None => (),
                // A bound socket outlives its peers: others may be connected, and the next one is
                // let in without our doing. We say what we saw and go on.
                Some(reason) if bound => {
                    self.queue.detached(reason);
                    self.queue.attached();
                }
                Some(reason) => return reason,
            }
        }
    }

    fn receive(&self, message: ZmqMessage) {
        Counters::one(&self.counters.frames);
        let frames = message.into_vec();
        Counters::add(&self.counters.bytes, frames.iter().map(bytes::Bytes::len).sum());
        match parse_live(frames, self.settings.frame_bytes_max) {
            Ok(frame) => self.queue.frame(frame, &self.counters),
            Err(reason) => {
                let malformed = Counters::one(&self.counters.malformed);
                // The 1st, 2nd, 4th, ...: a peer that speaks something else must not fill the log.
                if malformed.is_power_of_two() {
                    warn!(error = %reason, malformed, "malformed live message");
                }
                self.queue.malformed(WireEvent::Malformed { reason });
            }
        }
    }
}

async fn idle(after: Option<Duration>) {
    match after {
        Some(after) => sleep(after).await,
        None => pending().await,
    }
}

/// The library knows no `*` host.
pub(crate) fn bindable(endpoint: &str) -> String {
    endpoint.replacen("tcp://*:", "tcp://0.0.0.0:", 1)
}
