//! The replay client: one fresh DEALER per request, read by a task of its own into a bounded spool.
//!
//! The protocol has no end of range, no error reply and no acknowledgement: a malformed request is
//! answered with nothing, a ROUTER drops silently when our pipe is full, and a DEALER that
//! reconnects asks nothing again. So a request owns its socket and its deadlines, reads as fast as
//! it can, and every way it can end is said. A REQ would get the first reply only; it is never
//! used.

use std::{future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
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
    frame::{FRAME_BYTES_MAX, FrameError, ReplayFrame, SeqFrame, parse_replay},
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

/// How to ask for a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySettings {
    /// The engine's ROUTER.
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

impl ReplaySettings {
    /// The defaults for an endpoint.
    pub fn new(endpoint: impl Into<String>) -> ReplaySettings {
        ReplaySettings {
            endpoint: endpoint.into(),
            transport: Transport::default(),
            connect_timeout: CONNECT_TIMEOUT,
            progress_timeout: PROGRESS_TIMEOUT,
            frame_bytes_max: FRAME_BYTES_MAX,
            spool: SPOOL_LIMITS,
        }
    }
}

/// Why a replay ended without an end marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReplayFailure {
    /// Nothing listens there, or what listens is not a ROUTER.
    #[error("the replay socket could not be connected")]
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

/// Part of an answer. `End` and `Failed` are the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayPart {
    /// One batch of the journal.
    Frame {
        /// The topic; empty in the older framing.
        topic: Bytes,
        /// The seq.
        seq_frame: SeqFrame,
        /// The engine's bytes, unread.
        payload: Bytes,
    },
    /// The end marker.
    End,
    /// Over without an end marker.
    Failed {
        /// Why.
        reason: ReplayFailure,
    },
}

/// At most one open request.
#[derive(Debug)]
pub struct ReplayClient {
    settings: ReplaySettings,
    counters: Arc<Counters>,
    open: Option<OpenRequest>,
}

#[derive(Debug)]
struct OpenRequest {
    attempt: Attempt,
    spool: Arc<Fifo<ReplayPart>>,
    task: JoinHandle<()>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReplayClient {
    /// A client with no open request.
    pub fn new(settings: ReplaySettings, counters: Arc<Counters>) -> ReplayClient {
        ReplayClient { settings, counters, open: None }
    }

    /// Asks for everything from `start` on, in place of whatever was open. Must be called inside a
    /// tokio runtime.
    pub fn start(&mut self, attempt: Attempt, start: u64) {
        self.cancel();
        Counters::one(&self.counters.replays);
        let spool = Arc::new(Fifo::new());
        let request = Request {
            settings: self.settings.clone(),
            counters: Arc::clone(&self.counters),
            spool: Arc::clone(&spool),
            start,
        };
        let task = match request.settings.transport {
            Transport::Zeromq => tokio::spawn(request.run::<by_zeromq::Request>()),
            #[cfg(feature = "omq")]
            Transport::Omq => tokio::spawn(request.run::<by_omq::Request>()),
        };
        self.open = Some(OpenRequest { attempt, spool, task });
    }

    /// Stops reading; what was read is thrown away.
    pub fn cancel(&mut self) {
        self.open = None;
    }

    /// The next part of the open answer; waits for ever when none is open. Cancel-safe.
    pub async fn next(&mut self) -> (Attempt, ReplayPart) {
        let Some(open) = &self.open else { return pending().await };
        let attempt = open.attempt;
        let aborted = ReplayPart::Failed { reason: ReplayFailure::Aborted };
        let part = open.spool.pop().await.unwrap_or(aborted);
        if !matches!(part, ReplayPart::Frame { .. }) {
            self.open = None;
        }
        (attempt, part)
    }
}

/// The task's side of one request.
struct Request {
    settings: ReplaySettings,
    counters: Arc<Counters>,
    spool: Arc<Fifo<ReplayPart>>,
    start: u64,
}

impl Request {
    async fn run<S: RequestSocket>(self) {
        let _close = CloseOnDrop(Arc::clone(&self.spool));
        let last = match self.read_all::<S>().await {
            Ok(()) => ReplayPart::End,
            Err(reason) => {
                Counters::one(&self.counters.replays_failed);
                debug!(%reason, start = self.start, "replay failed");
                ReplayPart::Failed { reason }
            }
        };
        self.spool.edit(|items| items.push_reserved(last));
    }

    /// Ok = the end marker came. The socket is closed when this returns, so a ROUTER whose answer
    /// is no longer wanted stops being read at once.
    async fn read_all<S: RequestSocket>(&self) -> Result<(), ReplayFailure> {
        let mut socket: S = self.ask().await?;
        let mut deadline = Instant::now() + self.settings.progress_timeout;
        loop {
            let next = timeout_at(deadline, socket.recv()).await;
            let frames = next.map_err(|_| self.silent())?.map_err(|reason| match reason {
                DetachReason::ReceiveFailed => ReplayFailure::Receive,
                DetachReason::Closed | DetachReason::Idle => ReplayFailure::Closed,
            })?;
            let frame = parse_replay(frames, self.settings.frame_bytes_max).map_err(|error| {
                Counters::one(&self.counters.malformed);
                ReplayFailure::Malformed(error)
            })?;
            deadline = Instant::now() + self.settings.progress_timeout;
            match frame {
                ReplayFrame::End => return Ok(()),
                ReplayFrame::Batch { topic, seq_frame, payload } => {
                    self.keep(topic, seq_frame, payload)?;
                }
            }
        }
    }

    /// A fresh socket with the request sent.
    async fn ask<S: RequestSocket>(&self) -> Result<S, ReplayFailure> {
        let limits = SocketLimits {
            connect_timeout: self.settings.connect_timeout,
            frame_bytes_max: self.settings.frame_bytes_max,
        };
        let mut socket = S::open(&self.settings.endpoint, limits).await.map_err(|error| {
            debug!(%error, "replay socket cannot connect");
            ReplayFailure::Connect
        })?;
        // Exactly two frames: with the identity the ROUTER adds that makes three, and an engine
        // ignores a request of any other count without a reply.
        let start = Bytes::copy_from_slice(&self.start.to_be_bytes());
        let sent = socket.send([Bytes::new(), start]);
        match timeout(self.settings.connect_timeout, sent).await {
            Ok(Ok(())) => Ok(socket),
            Ok(Err(_)) | Err(_) => Err(ReplayFailure::Send),
        }
    }

    fn keep(&self, topic: Bytes, seq_frame: SeqFrame, payload: Bytes) -> Result<(), ReplayFailure> {
        Counters::one(&self.counters.replay_frames);
        let bytes = topic.len() + seq_frame.as_bytes().len() + payload.len();
        let part = ReplayPart::Frame { topic, seq_frame, payload };
        match self.spool.edit(|items| items.try_push(part, bytes, self.settings.spool)) {
            None => Ok(()),
            Some(_) => Err(ReplayFailure::SpoolFull),
        }
    }

    fn silent(&self) -> ReplayFailure {
        let waited_ms = self.settings.progress_timeout.as_millis();
        ReplayFailure::Silent { waited_ms: u64::try_from(waited_ms).unwrap_or(u64::MAX) }
    }
}
