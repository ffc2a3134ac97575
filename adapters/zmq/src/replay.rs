//! The replay client of engines: one request, answered by batches and an end marker.
//!
//! The protocol has no end of range, no error reply and no acknowledgement: a malformed request is
//! answered with nothing, and a ROUTER drops silently when our pipe is full. So the answer is read
//! as fast as it comes, and every way it can end is said.

use std::sync::Arc;

use bytes::Bytes;
use kvbridge_adapters_api::{Attempt, Counters};

use crate::{
    exchange::{Exchange, ExchangeClient, Heard, Next, Turn},
    frame::{FrameError, ReplayFrame, SeqFrame, parse_replay},
    outlet::Multipart,
};

pub use crate::exchange::{ExchangeFailure as ReplayFailure, ExchangeSettings as ReplaySettings};

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
pub struct ReplayClient(ExchangeClient<Replayed>);

/// One batch of the journal, unread.
#[derive(Debug)]
struct Replayed {
    topic: Bytes,
    seq_frame: SeqFrame,
    payload: Bytes,
}

impl ReplayClient {
    /// A client with no open request.
    pub fn new(settings: ReplaySettings, counters: Arc<Counters>) -> ReplayClient {
        ReplayClient(ExchangeClient::new(settings, counters))
    }

    /// Asks for everything from `start` on, in place of whatever was open. Must be called inside a
    /// tokio runtime.
    pub fn start(&mut self, attempt: Attempt, start: u64) {
        self.0.start(attempt, Replay { start, topic: None });
    }

    /// The same, of topics that begin so alone. Engines do not answer it: for whoever publishes
    /// several replicas over one pair of sockets.
    pub fn start_topic(&mut self, attempt: Attempt, start: u64, topic: Bytes) {
        self.0.start(attempt, Replay { start, topic: Some(topic) });
    }

    /// Stops reading; what was read is thrown away.
    pub fn cancel(&mut self) {
        self.0.cancel();
    }

    /// The next part of the open answer; waits for ever when none is open. Cancel-safe.
    pub async fn next(&mut self) -> (Attempt, ReplayPart) {
        let (attempt, heard) = self.0.next().await;
        let part = match heard {
            Heard::Part(Replayed { topic, seq_frame, payload }) => {
                ReplayPart::Frame { topic, seq_frame, payload }
            }
            Heard::Done => ReplayPart::End,
            Heard::Failed(reason) => ReplayPart::Failed { reason },
        };
        (attempt, part)
    }
}

/// One request.
struct Replay {
    start: u64,
    topic: Option<Bytes>,
}

impl Exchange for Replay {
    type Part = Replayed;

    /// Exactly two frames, unless it is known that no engine is asked: with the identity the ROUTER
    /// adds that makes three, and an engine ignores a request of any other count without a reply.
    fn ask(&mut self) -> Multipart {
        let start = Bytes::copy_from_slice(&self.start.to_be_bytes());
        [Bytes::new(), start].into_iter().chain(self.topic.take()).collect()
    }

    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Replayed>, FrameError> {
        match parse_replay(frames, frame_bytes_max)? {
            ReplayFrame::End => Ok(Turn { parts: Vec::new(), next: Next::Done }),
            ReplayFrame::Batch { topic, seq_frame, payload } => {
                let bytes = topic.len() + seq_frame.as_bytes().len() + payload.len();
                let part = Replayed { topic, seq_frame, payload };
                Ok(Turn { parts: vec![(part, bytes)], next: Next::Read })
            }
        }
    }
}
