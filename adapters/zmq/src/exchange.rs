//! Asking a ROUTER: one fresh DEALER per exchange, read by a task of its own into a bounded spool.
//!
//! A DEALER that reconnects asks nothing again, and nobody tells that an answer was lost. So an
//! exchange owns its socket and its deadlines, and every way it can end is said. A REQ would get
//! the first reply only; it is never used. What is asked and how an answer reads is an
//! [`Exchange`]: an engine answers once with many messages, a bus is asked for one part after the
//! other, each when the one before was taken.

use std::{future::pending, sync::Arc, time::Duration};

use kvbridge_adapters_api::{Attempt, Counters};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tracing::debug;

#[cfg(feature = "omq")]
use crate::transport::by_omq;
use crate::{
    fifo::{CloseOnDrop, Fifo, QueueLimits},
    frame::{FRAME_BYTES_MAX, FrameError},
    outlet::Multipart,
    subscribe::{CONNECT_TIMEOUT, DetachReason},
    transport::{RequestSocket, SocketLimits, Transport, by_zeromq},
};

/// No reply for so long ends the request. An idle engine looks for requests every 100 ms; a busy
/// one between batches. A lost end marker is only seen by this.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// What one answer may keep waiting: more than an engine's default journal of 10 000 batches, whose
/// whole answer comes at once and is lost where we do not read. When it is full the request ends
/// and the core asks again from where it is.
pub const SPOOL_LIMITS: QueueLimits =
    QueueLimits { count_max: 16_384, bytes_max: 256 * 1024 * 1024 };

/// How to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeSettings {
    /// The ROUTER.
    pub endpoint: String,
    /// The library that asks.
    pub transport: Transport,
    /// Bounds TCP connect, greeting and READY together; also how soon a wrong port is known.
    pub connect_timeout: Duration,
    /// See [`PROGRESS_TIMEOUT`].
    pub progress_timeout: Duration,
    /// Larger frames end the request.
    pub frame_bytes_max: usize,
    /// What waits for the consumer.
    pub spool: QueueLimits,
}

impl ExchangeSettings {
    /// The defaults for an endpoint.
    pub fn new(endpoint: impl Into<String>) -> ExchangeSettings {
        ExchangeSettings {
            endpoint: endpoint.into(),
            transport: Transport::default(),
            connect_timeout: CONNECT_TIMEOUT,
            progress_timeout: PROGRESS_TIMEOUT,
            frame_bytes_max: FRAME_BYTES_MAX,
            spool: SPOOL_LIMITS,
        }
    }
}

/// Why an exchange ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ExchangeFailure {
    /// Nothing listens there, or what listens is not a ROUTER.
    #[error("the socket could not be connected")]
    Connect,
    /// The request could not be sent.
    #[error("the request could not be sent")]
    Send,
    /// No reply came for the progress time.
    #[error("no reply came for {waited_ms} ms")]
    Silent {
        /// How long was waited.
        waited_ms: u64,
    },
    /// The peer closed before the end marker.
    #[error("the peer closed before the end marker")]
    Closed,
    /// Reading failed: reset, or bytes that are not the protocol.
    #[error("receiving failed")]
    Receive,
    /// A reply of a wrong shape: what else it holds can not be trusted.
    #[error("malformed reply: {0}")]
    Malformed(FrameError),
    /// The consumer was too slow for the spool.
    #[error("the spool is full")]
    SpoolFull,
    /// The reading task ended without a word.
    #[error("the reading task ended")]
    Aborted,
}

/// What is asked and how answers read; pure, no socket.
pub trait Exchange: Send + Sync + 'static {
    /// What an answer brings.
    type Part: Send + 'static;

    /// The first request.
    fn ask(&mut self) -> Multipart;

    /// Reads one message of the answer. No frame above the limit may be passed on.
    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Self::Part>, FrameError>;
}

/// What follows from one message.
#[derive(Debug)]
pub struct Turn<P> {
    /// What it brought, each with the bytes it counts for.
    pub parts: Vec<(P, usize)>,
    /// How the exchange goes on.
    pub next: Next,
}

/// How an exchange goes on.
#[derive(Debug)]
pub enum Next {
    /// More messages come without being asked for.
    Read,
    /// Ask this, when the consumer has taken everything before.
    Ask(Multipart),
    /// It is over.
    Done,
}

/// What the consumer hears. `Done` and `Failed` are the last.
#[derive(Debug)]
pub enum Heard<P> {
    /// Part of the answer.
    Part(P),
    /// Over, in order.
    Done,
    /// Over before its end.
    Failed(ExchangeFailure),
}

/// At most one open exchange.
#[derive(Debug)]
pub struct ExchangeClient<P> {
    settings: ExchangeSettings,
    counters: Arc<Counters>,
    open: Option<Open<P>>,
}

#[derive(Debug)]
struct Open<P> {
    attempt: Attempt,
    spool: Arc<Fifo<Heard<P>>>,
    task: JoinHandle<()>,
}

impl<P> Drop for Open<P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<P: Send + 'static> ExchangeClient<P> {
    /// A client with no open exchange.
    pub fn new(settings: ExchangeSettings, counters: Arc<Counters>) -> ExchangeClient<P> {
        ExchangeClient { settings, counters, open: None }
    }

    /// Begins an exchange in place of whatever was open. Must be called inside a tokio runtime.
    pub fn start(&mut self, attempt: Attempt, exchange: impl Exchange<Part = P>) {
        self.cancel();
        Counters::one(&self.counters.replays);
        let spool = Arc::new(Fifo::new());
        let conversation = Conversation {
            settings: self.settings.clone(),
            counters: Arc::clone(&self.counters),
            spool: Arc::clone(&spool),
            exchange,
        };
        let task = match self.settings.transport {
            Transport::Zeromq => tokio::spawn(conversation.run::<by_zeromq::Request>()),
            #[cfg(feature = "omq")]
            Transport::Omq => tokio::spawn(conversation.run::<by_omq::Request>()),
        };
        self.open = Some(Open { attempt, spool, task });
    }

    /// Stops reading; what was read is thrown away.
    pub fn cancel(&mut self) {
        self.open = None;
    }

    /// The next part of the open answer; waits for ever when none is open. Cancel-safe.
    pub async fn next(&mut self) -> (Attempt, Heard<P>) {
        let Some(open) = &self.open else { return pending().await };
        let attempt = open.attempt;
        let aborted = Heard::Failed(ExchangeFailure::Aborted);
        let heard = open.spool.pop().await.unwrap_or(aborted);
        if !matches!(heard, Heard::Part(_)) {
            self.open = None;
        }
        (attempt, heard)
    }
}

/// The task's side of one exchange.
struct Conversation<E: Exchange> {
    settings: ExchangeSettings,
    counters: Arc<Counters>,
    spool: Arc<Fifo<Heard<E::Part>>>,
    exchange: E,
}

impl<E: Exchange> Conversation<E> {
    async fn run<S: RequestSocket>(mut self) {
        let _close = CloseOnDrop(Arc::clone(&self.spool));
        let last = match self.read_all::<S>().await {
            Ok(()) => Heard::Done,
            Err(reason) => {
                Counters::one(&self.counters.replays_failed);
                debug!(%reason, "exchange failed");
                Heard::Failed(reason)
            }
        };
        self.spool.edit(|items| items.push_reserved(last));
    }

    /// Ok = the end came. The socket is closed when this returns, so a ROUTER whose answer is no
    /// longer wanted stops being read at once.
    async fn read_all<S: RequestSocket>(&mut self) -> Result<(), ExchangeFailure> {
        let mut socket: S = self.open().await?;
        let first = self.exchange.ask();
        self.send(&mut socket, first).await?;
        let mut deadline = Instant::now() + self.settings.progress_timeout;
        loop {
            let next = timeout_at(deadline, socket.recv()).await;
            let frames = next.map_err(|_| self.silent())?.map_err(|reason| match reason {
                DetachReason::ReceiveFailed => ExchangeFailure::Receive,
                DetachReason::Closed | DetachReason::Idle => ExchangeFailure::Closed,
            })?;
            let heard = self.exchange.hear(frames, self.settings.frame_bytes_max);
            let Turn { parts, next } = heard.map_err(|error| {
                Counters::one(&self.counters.malformed);
                ExchangeFailure::Malformed(error)
            })?;
            for (part, bytes) in parts {
                self.keep(part, bytes)?;
            }
            match next {
                Next::Done => return Ok(()),
                Next::Read => (),
                Next::Ask(request) => {
                    self.spool.emptied().await;
                    self.send(&mut socket, request).await?;
                }
            }
            deadline = Instant::now() + self.settings.progress_timeout;
        }
    }

    /// A fresh socket.
    async fn open<S: RequestSocket>(&self) -> Result<S, ExchangeFailure> {
        let limits = SocketLimits {
            connect_timeout: self.settings.connect_timeout,
            frame_bytes_max: self.settings.frame_bytes_max,
        };
        S::open(&self.settings.endpoint, limits).await.map_err(|error| {
            debug!(%error, "request socket cannot connect");
            ExchangeFailure::Connect
        })
    }

    async fn send<S: RequestSocket>(
        &self,
        socket: &mut S,
        request: Multipart,
    ) -> Result<(), ExchangeFailure> {
        match timeout(self.settings.connect_timeout, socket.send(request)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ExchangeFailure::Send),
        }
    }

    fn keep(&self, part: E::Part, bytes: usize) -> Result<(), ExchangeFailure> {
        Counters::one(&self.counters.replay_frames);
        let spool = self.settings.spool;
        match self.spool.edit(|items| items.try_push(Heard::Part(part), bytes, spool)) {
            None => Ok(()),
            Some(_) => Err(ExchangeFailure::SpoolFull),
        }
    }

    fn silent(&self) -> ExchangeFailure {
        let waited_ms = self.settings.progress_timeout.as_millis();
        ExchangeFailure::Silent { waited_ms: u64::try_from(waited_ms).unwrap_or(u64::MAX) }
    }
}
