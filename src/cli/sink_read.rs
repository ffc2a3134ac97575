//! Reads a sink as a router does: what is live, and what came before.

use std::sync::Arc;

use bytes::Bytes;
use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{
    Counters, LiveFrame, ReplayClient, ReplayPart, ReplaySettings, SeqFrame, Subscriber, WireEvent,
    subscribe::{Link, SubscribeSettings},
};

use super::sink::SinkError;

/// Where a sink is.
pub(super) struct Address {
    pub(super) link: Link,
    pub(super) replay: Option<String>,
    /// The topic of the replica that is wanted, if one is.
    pub(super) topic: Option<String>,
}

impl Address {
    pub(super) fn link_text(&self) -> String {
        match &self.link {
            Link::Connect(endpoint) => endpoint.clone(),
            Link::Bind(endpoint) => format!("whoever connects to {endpoint}"),
        }
    }
}

/// A reader with both its sockets.
pub(super) struct Reading {
    address: Address,
    live: Subscriber,
    replay: Option<ReplayClient>,
    attempt: Attempt,
}

/// What the live stream says.
pub(super) enum Seen {
    Frame(LiveFrame),
    /// Something beside the messages, for a person.
    Note(String),
}

/// One batch of an answer.
pub(super) struct Part {
    pub(super) topic: Bytes,
    pub(super) seq_frame: SeqFrame,
    pub(super) payload: Bytes,
}

impl Reading {
    pub(super) fn new(address: Address, topic: String) -> Reading {
        let counters = Arc::<Counters>::default();
        let settings = SubscribeSettings { topic, ..SubscribeSettings::new(address.link.clone()) };
        let replay = address.replay.as_ref().map(|endpoint| {
            ReplayClient::new(ReplaySettings::new(endpoint.as_str()), Arc::clone(&counters))
        });
        let live = Subscriber::spawn(settings, counters);
        Reading { address, live, replay, attempt: Attempt(0) }
    }

    pub(super) fn can_ask(&self) -> bool {
        self.replay.is_some()
    }

    /// The next of the live stream.
    pub(super) async fn live(&mut self) -> Result<Seen, SinkError> {
        Ok(match self.live.next().await {
            Some(WireEvent::Frames(frame)) => Seen::Frame(frame),
            Some(WireEvent::Attached) => Seen::Note("attached".to_owned()),
            Some(WireEvent::Detached { .. }) => Seen::Note("detached".to_owned()),
            Some(WireEvent::Overflowed { dropped }) => {
                Seen::Note(format!("{dropped} messages dropped: this reader is too slow"))
            }
            Some(WireEvent::Malformed { reason }) => {
                Seen::Note(format!("malformed message: {reason}"))
            }
            None => return Err(SinkError::Ended { endpoint: self.address.link_text() }),
        })
    }

    /// Asks for everything from `start` on.
    pub(super) fn ask(&mut self, start: u64) {
        self.attempt.0 = self.attempt.0.wrapping_add(1);
        if let Some(replay) = &mut self.replay {
            replay.start(self.attempt, start);
        }
    }

    /// The next part of the answer; `None` = its end marker.
    pub(super) async fn answer(&mut self) -> Result<Option<Part>, SinkError> {
        let Some(replay) = &mut self.replay else { return Ok(None) };
        match replay.next().await.1 {
            ReplayPart::Frame { topic, seq_frame, payload } => {
                Ok(Some(Part { topic, seq_frame, payload }))
            }
            ReplayPart::End => Ok(None),
            ReplayPart::Failed { reason } => {
                let endpoint = self.address.replay.clone().unwrap_or_default();
                Err(SinkError::Replay { endpoint, source: reason })
            }
        }
    }
}
