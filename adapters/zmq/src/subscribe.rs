//! One supervised live subscription: connect, read, notice loss, connect again.
//!
//! The `zeromq` crate's SUB socket alone can stay deaf for ever: a peer that resets right after its
//! READY left `connect` with Ok and nothing ever arriving in 15 of 20 runs, and a peer that accepts
//! and is silent blocked its reconnect until that peer closed. So a socket lives for one connection
//! only: connect first, subscribe after (a dead peer is then an error and not silence), and any
//! error or disconnect drops the socket. The read task never waits for the consumer, so a slow
//! consumer shows as a marker in the queue instead of silent drops at the engine.
//!
//! All of that is above the trait of `transport`, so it holds for every library.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

#[cfg(feature = "omq")]
use crate::transport::by_omq;
use crate::{
    fifo::QueueLimits,
    frame::{FRAME_BYTES_MAX, FrameError, LiveForm, LiveFrame, parse_live},
    live_queue::{CloseLive, LiveQueue},
    retry::{Retry, RetrySettings},
    transport::{LiveSocket, SocketError, SocketLimits, Transport, by_zeromq},
};
use kvbridge_adapters_api::Counters;

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
    /// The library that reads it.
    pub transport: Transport,
    /// Prefix of the topics wanted; empty = all.
    pub topic: String,
    /// Further prefixes.
    pub also: Vec<String>,
    /// What a message is made of.
    pub form: LiveForm,
    /// See [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Waits between attempts.
    pub retry: RetrySettings,
    /// Connect anew when nothing came for so long. A peer whose host vanished without a word stays
    /// silent for ever; only this or a replay probe notices.
    /// Not for a bound socket: it has nobody to connect to.
    pub idle_recycle: Option<Duration>,
    /// Larger frames are malformed, or end the connection unread where the transport can.
    pub frame_bytes_max: usize,
    /// What waits for the consumer.
    pub queue: QueueLimits,
}

impl SubscribeSettings {
    /// The defaults for a link.
    pub fn new(link: Link) -> SubscribeSettings {
        SubscribeSettings {
            link,
            transport: Transport::default(),
            topic: String::new(),
            also: Vec::new(),
            form: LiveForm::default(),
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
        let task = match reader.settings.transport {
            Transport::Zeromq => tokio::spawn(reader.run::<by_zeromq::Live>()),
            #[cfg(feature = "omq")]
            Transport::Omq => tokio::spawn(reader.run::<by_omq::Live>()),
        };
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
    async fn run<S: LiveSocket>(mut self) {
        let _close = CloseLive(Arc::clone(&self.queue));
        let mut retry = Retry::new(self.settings.retry);
        loop {
            match self.open::<S>().await {
                Ok(socket) => {
                    let opened = Instant::now();
                    let frames_before = self.counters.frames.load(Ordering::Relaxed);
                    // The socket is dropped with it: inside the first 100 ms a library's own
                    // reconnect still sleeps and can be stopped; inside a handshake it can not.
                    let reason = self.read(socket).await;
                    self.detached(reason);
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
    async fn open<S: LiveSocket>(&mut self) -> Result<S, SocketError> {
        let limits = SocketLimits {
            connect_timeout: self.settings.connect_timeout,
            frame_bytes_max: self.settings.frame_bytes_max,
        };
        let mut topics = vec![self.settings.topic.as_str()];
        topics.extend(self.settings.also.iter().map(String::as_str));
        let socket = S::open(&self.settings.link, &topics, limits).await?;
        if let Some(bound) = socket.bound() {
            self.bound.send_replace(Some(bound.to_owned()));
        }
        Counters::one(&self.counters.attached);
        info!(failures = self.failures, "live stream attached");
        self.failures = 0;
        self.queue.attached();
        Ok(socket)
    }

    fn open_failed(&mut self, error: &SocketError) {
        Counters::one(&self.counters.connect_failed);
        self.failures = self.failures.saturating_add(1);
        // One line per outage; its end names the number of attempts.
        if self.failures == 1 {
            warn!(%error, "live stream cannot connect, retrying");
        } else {
            debug!(%error, failures = self.failures, "live stream cannot connect");
        }
    }

    fn detached(&self, reason: DetachReason) {
        if reason == DetachReason::ReceiveFailed {
            Counters::one(&self.counters.receive_failed);
        }
        self.queue.detached(reason);
        info!(?reason, "live stream detached");
    }

    /// Reads until the connection is over.
    async fn read<S: LiveSocket>(&self, mut socket: S) -> DetachReason {
        let bound = matches!(self.settings.link, Link::Bind(_));
        let recycle = self.settings.idle_recycle.filter(|_| !bound);
        loop {
            let received = tokio::select! {
                biased;
                received = socket.recv() => received,
                () = idle(recycle) => return DetachReason::Idle,
            };
            match received {
                Ok(message) => self.receive(message),
                // A bound socket outlives its peers: others may be connected, and the next one is
                // let in without our doing. We say what we saw and go on.
                Err(reason) if bound => {
                    self.detached(reason);
                    self.queue.attached();
                }
                Err(reason) => return reason,
            }
        }
    }

    fn receive(&self, frames: Vec<Bytes>) {
        Counters::one(&self.counters.frames);
        Counters::add(&self.counters.bytes, frames.iter().map(Bytes::len).sum());
        match parse_live(frames, self.settings.form, self.settings.frame_bytes_max) {
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

/// Not every library knows a `*` host.
pub(crate) fn bindable(endpoint: &str) -> String {
    endpoint.replacen("tcp://*:", "tcp://0.0.0.0:", 1)
}
