//! A [`Source`] over one live subscription and one replay client; an engine adds only its decoder.

use std::sync::Arc;

use async_trait::async_trait;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Counters, Delivery, RequestRefused, Source,
    SourceEvent, SourceRequest,
};
use tracing::debug;

use crate::{
    replay::{ReplayClient, ReplayPart, ReplaySettings},
    subscribe::{SubscribeSettings, Subscriber, WireEvent},
};

/// Reads an engine's payloads.
pub trait Decode: Send {
    /// Decodes one message. The topic is empty where a replay does not carry it; the seq frame has
    /// one of the known lengths; a body that cannot be read still gives a batch, with `Loss::Body`:
    /// its seq is not missing, only its content.
    fn decode(&mut self, topic: &[u8], seq_frame: &[u8], payload: &[u8]) -> Decoded;
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
}

/// One replica's sockets as a source. Dropping it ends its tasks.
pub struct ZmqSource<D> {
    capabilities: Capabilities,
    decoder: D,
    live: Subscriber,
    replay: Option<ReplayClient>,
}

impl<D: Decode> ZmqSource<D> {
    /// Starts to subscribe. Must be called inside a tokio runtime.
    pub fn spawn(
        settings: ZmqSettings,
        capabilities: Capabilities,
        decoder: D,
        counters: Arc<Counters>,
    ) -> ZmqSource<D> {
        let live = Subscriber::spawn(settings.subscribe, Arc::clone(&counters));
        let replay = settings.replay.map(|replay| ReplayClient::new(replay, counters));
        ZmqSource { capabilities, decoder, live, replay }
    }

    /// Waits for the endpoint a bound live stream got.
    pub async fn bound(&mut self) -> Option<String> {
        self.live.bound().await
    }

    fn live_event(&mut self, event: WireEvent) -> Option<SourceEvent> {
        match event {
            WireEvent::Attached => Some(SourceEvent::Attached),
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
    }
}

#[async_trait]
impl<D: Decode> Source for ZmqSource<D> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn next(&mut self) -> Option<Delivery> {
        loop {
            // Not biased: a long replay must not let the live queue overflow, nor the reverse. Each
            // branch takes its item in the poll that completes it, so dropping this loses nothing.
            tokio::select! {
                event = self.live.next() => {
                    if let Some(event) = self.live_event(event?) {
                        return Some(event.into());
                    }
                }
                (attempt, part) = next_part(&mut self.replay) => {
                    return Some(self.answer(attempt, part).into());
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
                let replay = self.replay.as_mut().ok_or(RequestRefused::Unsupported)?;
                replay.start(attempt, start_seq.0);
                Ok(())
            }
            SourceRequest::Snapshot { .. } => Err(RequestRefused::Unsupported),
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
