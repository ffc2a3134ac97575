//! The engine's side: a publisher, its bounded journal, and the ROUTER that replays from it.
//!
//! For replaying captures and for tests. It behaves as engines were seen to: malformed requests get
//! no reply, a start before the journal silently begins at its oldest batch, a start after its
//! newest gets the end marker alone, and a slow subscriber loses the newest messages. [`Faults`]
//! add what goes wrong in the field.
//!
//! It runs on a thread and runtime of its own, so that [`Server::close`] takes every connection and
//! port with it at once: the library's XPUB leaves idle connections open when it is dropped. XPUB
//! and not PUB, because only it tells that a subscription has arrived
//! ([`Server::wait_subscribers`]).

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use zeromq::ZmqMessage;

use crate::{frame::SeqFrame, publisher::PublisherThread};

/// Messages that wait for a slow subscriber before the newest are dropped; an engine's default HWM
/// is 100 000 per subscriber. Ours is one queue for all of them.
pub const LIVE_QUEUE_COUNT_MAX: usize = 100_000;

/// Batches kept for replay; an engine's default.
pub const JOURNAL_COUNT_MAX: usize = 10_000;

/// How replies are framed after the delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `[seq, payload]`: older engines.
    Plain,
    /// `[topic, seq, payload]`: newer ones.
    WithTopic,
}

/// What goes wrong on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Seqs that are in the journal and were never published: lost live.
    pub withheld: BTreeSet<u64>,
    /// Seqs that are nowhere: the engine used them up on an error.
    pub burnt: BTreeSet<u64>,
    /// Seqs that were published and are missing in replies: dropped by the ROUTER.
    pub unjournaled: BTreeSet<u64>,
    /// Replies have no end marker.
    pub end_lost: bool,
    /// Replies in one answer before the rest is dropped without a word, end marker included. An
    /// engine's ROUTER does so to a slow reader: 1000 in its queue and 1000 in the reader's. A
    /// switch and not a queue, because the library itself queues 100 000 messages a peer.
    pub reply_count_max: Option<usize>,
}

/// How to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    /// Where to publish; port 0 = any free one.
    pub live: String,
    /// Where to answer replay requests.
    pub replay: String,
    /// Topic of every message.
    pub topic: String,
    /// Framing of replies.
    pub framing: Framing,
    /// See [`JOURNAL_COUNT_MAX`].
    pub journal_count_max: usize,
    /// Faults from the start on.
    pub faults: Faults,
}

impl Default for ServeSettings {
    fn default() -> ServeSettings {
        ServeSettings {
            live: "tcp://127.0.0.1:0".to_owned(),
            replay: "tcp://127.0.0.1:0".to_owned(),
            topic: String::new(),
            framing: Framing::WithTopic,
            journal_count_max: JOURNAL_COUNT_MAX,
            faults: Faults::default(),
        }
    }
}

/// Why serving did not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An endpoint could not be bound.
    #[error("cannot bind {endpoint}")]
    Bind {
        /// Which.
        endpoint: String,
        /// Why.
        source: zeromq::ZmqError,
    },
    /// The thread or its runtime could not be made.
    #[error("cannot start the server thread")]
    Thread(#[source] std::io::Error),
    /// The server has ended.
    #[error("the server is closed")]
    Closed,
}

/// A running server. Dropping it ends it like a killed process.
#[derive(Debug)]
pub struct Server {
    live: String,
    replay: String,
    shared: Arc<Shared>,
    messages: mpsc::Sender<ZmqMessage>,
    subscriptions: watch::Receiver<u64>,
    stalled: watch::Sender<bool>,
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    framing: Framing,
    journal_count_max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    topic: Bytes,
    journal: VecDeque<(u64, Bytes)>,
    faults: Faults,
}

impl Server {
    /// Binds both sockets and serves until closed or dropped.
    pub async fn bind(settings: ServeSettings) -> Result<Server, ServeError> {
        let (messages, messages_rx) = mpsc::channel(LIVE_QUEUE_COUNT_MAX);
        let (subscriptions_tx, subscriptions) = watch::channel(0);
        let (bound_tx, bound) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        let (stalled, stalled_rx) = watch::channel(false);
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            framing: settings.framing,
            journal_count_max: settings.journal_count_max,
            state: Mutex::new(State {
                topic: Bytes::from(settings.topic),
                journal: VecDeque::new(),
                faults: settings.faults,
            }),
        });
        let thread = PublisherThread {
            endpoints: (settings.live, settings.replay),
            shared: Arc::clone(&shared),
            messages: messages_rx,
            subscriptions: subscriptions_tx,
            stalled: stalled_rx,
            stop: stop.clone(),
        };
        thread::Builder::new()
            .name("zmq-serve".to_owned())
            .spawn(move || {
                thread.run(bound_tx);
                drop(ended_tx);
            })
            .map_err(ServeError::Thread)?;
        let (live, replay) = bound.await.map_err(|_| ServeError::Closed)??;
        Ok(Server { live, replay, shared, messages, subscriptions, stalled, stop, ended })
    }

    /// Where it publishes, with the real port.
    pub fn live(&self) -> &str {
        &self.live
    }

    /// Where it answers replay requests, with the real port.
    pub fn replay(&self) -> &str {
        &self.replay
    }

    /// Publishes a batch, then puts it in the journal, as the faults allow.
    pub fn publish(&self, seq: u64, payload: Bytes) -> Result<(), ServeError> {
        self.publish_marked(seq, "", payload)
    }

    /// The same, under a topic that ends with a mark of its own. Replays know nothing of it.
    pub fn publish_marked(&self, seq: u64, mark: &str, payload: Bytes) -> Result<(), ServeError> {
        let mut state = self.shared.lock();
        if state.faults.burnt.contains(&seq) {
            return Ok(());
        }
        if !state.faults.withheld.contains(&seq) {
            let message = multipart(&[
                [state.topic.as_ref(), mark.as_bytes()].concat().into(),
                Bytes::copy_from_slice(SeqFrame::of(seq).as_bytes()),
                payload.clone(),
            ]);
            match self.messages.try_send(message) {
                Ok(()) => (),
                Err(mpsc::error::TrySendError::Full(_)) => debug!(seq, "live message dropped"),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(ServeError::Closed),
            }
        }
        if state.journal.len() >= self.shared.journal_count_max {
            state.journal.pop_front();
        }
        state.journal.push_back((seq, payload));
        Ok(())
    }

    /// Faults from now on; those of the journal also for what is already in it.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.lock().faults = faults;
    }

    /// Another topic from now on, in replays too.
    pub fn set_topic(&self, topic: String) {
        self.shared.lock().topic = Bytes::from(topic);
    }

    /// Forgets every batch, as a restart behind a proxy that keeps its connections does.
    pub fn forget_journal(&self) {
        self.shared.lock().journal.clear();
    }

    /// Stops or resumes publishing and answering. What is published meanwhile waits; connections
    /// stay.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Waits until so many subscriptions have arrived since the start. What is published after it
    /// reaches those subscribers.
    pub async fn wait_subscribers(&self, count: u64) -> Result<(), ServeError> {
        let mut subscriptions = self.subscriptions.clone();
        let waited = subscriptions.wait_for(|have| *have >= count).await;
        waited.map(|_| ()).map_err(|_| ServeError::Closed)
    }

    /// Ends the server; when this returns its ports are free.
    pub async fn close(mut self) {
        self.stop.cancel();
        // The sender is only ever dropped: an error is the sign that the thread has ended.
        drop((&mut self.ended).await);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All replies to a request from `start`, in order.
    pub(crate) fn replies(&self, start: u64) -> Vec<(u64, Bytes)> {
        let state = self.lock();
        let kept = state
            .journal
            .iter()
            .filter(|(seq, _)| *seq >= start && !state.faults.unjournaled.contains(seq));
        let mut replies: Vec<_> = kept.cloned().collect();
        if !state.faults.end_lost {
            replies.push((u64::MAX, Bytes::new()));
        }
        replies.truncate(state.faults.reply_count_max.unwrap_or(usize::MAX));
        replies
    }

    pub(crate) fn reply(&self, identity: Bytes, seq: u64, payload: Bytes) -> ZmqMessage {
        let seq = Bytes::copy_from_slice(SeqFrame::of(seq).as_bytes());
        // An engine's end marker has an empty topic.
        let topic = if payload.is_empty() { Bytes::new() } else { self.lock().topic.clone() };
        match self.framing {
            Framing::Plain => multipart(&[identity, Bytes::new(), seq, payload]),
            Framing::WithTopic => multipart(&[identity, Bytes::new(), topic, seq, payload]),
        }
    }
}

/// What is said of an endpoint that could not be bound.
pub(crate) fn bind_failed(endpoint: &str) -> impl FnOnce(zeromq::ZmqError) -> ServeError {
    let endpoint = endpoint.to_owned();
    move |source| ServeError::Bind { endpoint, source }
}

/// Frames as one message of the library.
pub(crate) fn multipart(frames: &[Bytes]) -> ZmqMessage {
    let mut message = ZmqMessage::from(Bytes::new());
    for frame in frames {
        message.push_back(frame.clone());
    }
    message.split_off(1)
}
