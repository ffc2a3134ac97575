//! A [`Source`] over one live subscription and one replay client; an engine adds only its decoder.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Counters, Delivery, RequestRefused, Source,
    SourceEvent, SourceRequest,
};
use tracing::debug;

use crate::{
    exchange::ExchangeSettings,
    replay::{ReplayClient, ReplayPart, ReplaySettings},
    snapshot::{ReadSnapshot, SnapshotClient, SnapshotPart, disproves_plain, told},
    subscribe::{SubscribeSettings, Subscriber, WireEvent},
};

/// Reads an engine's payloads.
pub trait Decode: Send {
    /// Decodes one message. The topic is empty where a replay does not carry it; the seq frame has
    /// one of the known lengths; a body that cannot be read still gives a batch, with `Loss::Body`:
    /// its seq is not missing, only its content.
    fn decode(&mut self, topic: &[u8], seq_frame: &[u8], payload: &[u8]) -> Decoded;

    /// What is to be known of the stream wherever it is attached, ahead of its first batch.
    fn attached(&self) -> Option<SourceEvent> {
        None
    }

    /// What reads an answer to a request for a snapshot; `None` = the engine has none.
    fn snapshot(&mut self) -> Option<Box<dyn ReadSnapshot>> {
        None
    }
}

/// What a message is.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A batch.
    Batch(Batch),
    /// The all-ones seq.
    EndMarker,
}

/// Where the sockets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqSettings {
    /// The live stream.
    pub subscribe: SubscribeSettings,
    /// The journal; absent = replay requests are refused.
    pub replay: Option<ReplaySettings>,
    /// The snapshot's ROUTER; absent = snapshot requests are refused.
    pub snapshot: Option<ExchangeSettings>,
}

/// One replica's sockets as a source. Dropping it ends its tasks.
pub struct ZmqSource<D> {
    capabilities: Capabilities,
    decoder: D,
    live: Subscriber,
    replay: Option<ReplayClient>,
    snapshot: Option<SnapshotClient>,
    /// The engine was called plain, and nothing has shown otherwise yet.
    plain: bool,
    /// To be told before anything else, the next one last.
    waiting: Vec<SourceEvent>,
    /// What topics begin with that are subscribed to; empty = all.
    topics: Vec<Vec<u8>>,
    /// The last answer held other replicas, or was one to a request by topic: ours is asked for by
    /// its topic next. Not after such a request to which nothing came: somebody else listens there.
    asks_by_topic: bool,
    asked_by_topic: bool,
}

impl<D: Decode> ZmqSource<D> {
    /// Starts to subscribe. Must be called inside a tokio runtime.
    pub fn spawn(
        settings: ZmqSettings,
        capabilities: Capabilities,
        decoder: D,
        counters: Arc<Counters>,
    ) -> ZmqSource<D> {
        let SubscribeSettings { topic, also, .. } = &settings.subscribe;
        let topics = std::iter::once(topic).chain(also);
        let topics = topics.map(|topic| topic.clone().into_bytes()).collect();
        let live = Subscriber::spawn(settings.subscribe, Arc::clone(&counters));
        let replay = settings.replay.map(|replay| ReplayClient::new(replay, Arc::clone(&counters)));
        let snapshot = settings.snapshot.map(|snapshot| SnapshotClient::new(snapshot, counters));
        let plain = capabilities.snapshot.is_some_and(|support| support.plain);
        ZmqSource {
            capabilities,
            decoder,
            live,
            replay,
            snapshot,
            plain,
            waiting: Vec::new(),
            topics,
            asks_by_topic: false,
            asked_by_topic: false,
        }
    }

    /// Waits for the endpoint a bound live stream got.
    pub async fn bound(&mut self) -> Option<String> {
        self.live.bound().await
    }

    fn live_event(&mut self, event: WireEvent) -> Option<SourceEvent> {
        match event {
            WireEvent::Attached => {
                self.waiting.extend(self.decoder.attached());
                Some(SourceEvent::Attached)
            }
            WireEvent::Detached { reason: _ } => Some(SourceEvent::Detached),
            WireEvent::Overflowed { dropped: _ } => Some(SourceEvent::Overflowed),
            WireEvent::Frames(frame) => {
                match self.decoder.decode(&frame.topic, frame.seq_frame.as_bytes(), &frame.payload)
                {
                    Decoded::Batch(batch) => Some(SourceEvent::Live(batch)),
                    Decoded::EndMarker => Some(SourceEvent::EndMarker),
                }
            }
            // Counted and logged where it was read. It has no seq; if one is missing the core sees.
            WireEvent::Malformed { reason: _ } => None,
        }
    }

    /// Whether part of an answer is of another topic than those that are subscribed to: whoever
    /// publishes several replicas over one pair of sockets answers for all of them.
    fn is_foreign(&self, part: &ReplayPart) -> bool {
        // Older forms of an answer have no topic.
        matches!(part, ReplayPart::Frame { topic, .. } if !topic.is_empty()
            && !self.topics.iter().any(|prefix| topic.starts_with(prefix)))
    }

    fn answer(&mut self, attempt: Attempt, part: ReplayPart) -> SourceEvent {
        let part = match part {
            ReplayPart::Frame { topic, seq_frame, payload } => {
                match self.decoder.decode(&topic, seq_frame.as_bytes(), &payload) {
                    Decoded::Batch(batch) => AnswerPart::Batch(batch),
                    // The end marker is known by its frames; a decoder that sees one here disagrees
                    // with us about the seq, and an answer that nobody can number is none.
                    Decoded::EndMarker => {
                        self.cancel();
                        AnswerPart::Failed
                    }
                }
            }
            ReplayPart::End => AnswerPart::End,
            ReplayPart::Failed { reason } => {
                debug!(%attempt, %reason, "replay answer ended");
                AnswerPart::Failed
            }
        };
        SourceEvent::Answer { attempt, part }
    }

    fn cancel(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.cancel();
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.cancel();
        }
        let answers = |event: &SourceEvent| matches!(event, SourceEvent::Answer { .. });
        self.waiting.retain(|event| !answers(event));
    }

    /// What is told now; a batch that shows that the engine is not plain is told behind that.
    fn tell(&mut self, event: SourceEvent) -> Delivery {
        let batch = match &event {
            SourceEvent::Live(batch) => Some(batch),
            SourceEvent::Answer { part: AnswerPart::Batch(batch), .. } => Some(batch),
            _ => None,
        };
        if self.plain && batch.is_some_and(disproves_plain) {
            self.plain = false;
            self.waiting.push(event);
            return SourceEvent::Disproved.into();
        }
        event.into()
    }

    fn snapshot_part(&mut self, attempt: Attempt, part: SnapshotPart) -> Option<Delivery> {
        if let SnapshotPart::Records(records) = part {
            return Some(Delivery::Records { attempt, records });
        }
        self.waiting.extend(told(attempt, part));
        self.waiting.pop().map(Delivery::from)
    }

    fn ask_snapshot(&mut self, attempt: Attempt) -> Result<(), RequestRefused> {
        let client = self.snapshot.as_mut().ok_or(RequestRefused::Unsupported)?;
        let reader = self.decoder.snapshot().ok_or(RequestRefused::Unsupported)?;
        client.start(attempt, reader);
        Ok(())
    }
}

#[async_trait]
impl<D: Decode> Source for ZmqSource<D> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn next(&mut self) -> Option<Delivery> {
        loop {
            if let Some(event) = self.waiting.pop() {
                return Some(event.into());
            }
            // Not biased: a long replay must not let the live queue overflow, nor the reverse. Each
            // branch takes its item in the poll that completes it, so dropping this loses nothing.
            tokio::select! {
                event = self.live.next() => {
                    if let Some(event) = self.live_event(event?) {
                        return Some(self.tell(event));
                    }
                }
                (attempt, part) = next_part(&mut self.replay) => {
                    let is_answered = !matches!(part, ReplayPart::Failed { .. });
                    self.asks_by_topic |= self.asked_by_topic && is_answered;
                    if self.is_foreign(&part) {
                        self.asks_by_topic = true;
                        continue;
                    }
                    let event = self.answer(attempt, part);
                    return Some(self.tell(event));
                }
                (attempt, part) = next_snapshot(&mut self.snapshot) => {
                    if let Some(delivery) = self.snapshot_part(attempt, part) {
                        return Some(delivery);
                    }
                }
            }
        }
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        if self.live.is_closed() {
            return Err(RequestRefused::Closed);
        }
        match request {
            SourceRequest::Replay { attempt, start_seq } => {
                self.cancel();
                let replay = self.replay.as_mut().ok_or(RequestRefused::Unsupported)?;
                let by_topic = std::mem::take(&mut self.asks_by_topic);
                self.asked_by_topic = by_topic;
                match self.topics.as_slice() {
                    [topic] if by_topic => {
                        let topic = Bytes::copy_from_slice(topic);
                        replay.start_topic(attempt, start_seq.0, topic);
                    }
                    _ => replay.start(attempt, start_seq.0),
                }
                Ok(())
            }
            SourceRequest::Snapshot { attempt, object: None } => {
                self.cancel();
                self.ask_snapshot(attempt)
            }
            // An engine stores none.
            SourceRequest::Snapshot { object: Some(_), .. } => Err(RequestRefused::Unsupported),
            SourceRequest::Cancel => {
                self.cancel();
                Ok(())
            }
        }
    }
}

async fn next_part(replay: &mut Option<ReplayClient>) -> (Attempt, ReplayPart) {
    match replay {
        Some(replay) => replay.next().await,
        None => std::future::pending().await,
    }
}

async fn next_snapshot(snapshot: &mut Option<SnapshotClient>) -> (Attempt, SnapshotPart) {
    match snapshot {
        Some(snapshot) => snapshot.next().await,
        None => std::future::pending().await,
    }
}
