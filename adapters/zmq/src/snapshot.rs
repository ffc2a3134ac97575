//! The snapshot client of engines: one request, answered by messages of which one is the last.
//!
//! What the messages mean is the engine's [`ReadSnapshot`]; here they are read off the socket by
//! the task of an [`Exchange`], as they came, so that what waits is bounded by the bytes of the
//! wire and not by what they become.

use std::sync::Arc;

use bytes::Bytes;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Counters, SnapshotIntro, SnapshotRefusal, SourceEvent,
};
use kvbridge_schemas::{Event, Place, SnapshotRecord, Tier};
use tracing::debug;

use crate::{
    exchange::{Exchange, ExchangeClient, ExchangeSettings, Heard, Next, Turn},
    frame::{FrameError, check_sizes, owned},
    outlet::Multipart,
};

/// Reads one answer of an engine; no socket.
pub trait ReadSnapshot: Send {
    /// What is asked, behind the delimiter.
    fn request(&self) -> Bytes;
    /// Says of a message, behind the delimiter, whether nothing follows it.
    fn ends(&self) -> fn(&[Bytes]) -> bool;
    /// Reads a message.
    fn read(&mut self, frames: &[Bytes]) -> SnapshotPart;
}

/// What a message brought.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotPart {
    /// Nothing to tell.
    Nothing,
    /// Records.
    Records(Vec<SnapshotRecord>),
    /// All of them came, of this.
    Whole(SnapshotIntro),
    /// There is no snapshot.
    Refused(SnapshotRefusal),
    /// The answer broke off.
    Failed,
}

/// At most one open request.
pub(crate) struct SnapshotClient {
    exchange: ExchangeClient<Multipart>,
    open: Option<Box<dyn ReadSnapshot>>,
}

impl SnapshotClient {
    pub(crate) fn new(settings: ExchangeSettings, counters: Arc<Counters>) -> SnapshotClient {
        SnapshotClient { exchange: ExchangeClient::new(settings, counters), open: None }
    }

    /// Asks, in place of whatever was open. Must be called inside a tokio runtime.
    pub(crate) fn start(&mut self, attempt: Attempt, reader: Box<dyn ReadSnapshot>) {
        let asked = Asked { request: reader.request(), ends: reader.ends() };
        self.exchange.start(attempt, asked);
        self.open = Some(reader);
    }

    /// Stops reading; what was read is thrown away.
    pub(crate) fn cancel(&mut self) {
        self.exchange.cancel();
        self.open = None;
    }

    /// The next message that says something; waits for ever when nothing is open. Cancel-safe.
    pub(crate) async fn next(&mut self) -> (Attempt, SnapshotPart) {
        loop {
            let (attempt, heard) = self.exchange.next().await;
            let part = match (heard, &mut self.open) {
                (Heard::Part(frames), Some(reader)) => reader.read(&frames),
                (Heard::Failed(reason), Some(_)) => {
                    debug!(%attempt, %reason, "snapshot answer ended");
                    SnapshotPart::Failed
                }
                // The message that ended it has said everything.
                (Heard::Done, _) | (Heard::Part(_) | Heard::Failed(_), None) => continue,
            };
            match part {
                SnapshotPart::Nothing => (),
                SnapshotPart::Records(_) => return (attempt, part),
                SnapshotPart::Whole(_) | SnapshotPart::Refused(_) | SnapshotPart::Failed => {
                    // Whatever follows a fault is not to be believed.
                    self.cancel();
                    return (attempt, part);
                }
            }
        }
    }
}

/// One request.
struct Asked {
    request: Bytes,
    ends: fn(&[Bytes]) -> bool,
}

impl Exchange for Asked {
    type Part = Multipart;

    fn ask(&mut self) -> Multipart {
        vec![Bytes::new(), self.request.clone()]
    }

    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Multipart>, FrameError> {
        check_sizes(&frames, frame_bytes_max)?;
        let mut frames = frames.into_iter();
        match frames.next() {
            Some(delimiter) if delimiter.is_empty() => (),
            Some(delimiter) => return Err(FrameError::Delimiter { came: delimiter.len() }),
            None => return Err(FrameError::ReplyFrameCount { came: 0 }),
        }
        let frames: Multipart = frames.map(owned).collect();
        let next = if (self.ends)(&frames) { Next::Done } else { Next::Read };
        let bytes = frames.iter().map(Bytes::len).sum();
        Ok(Turn { parts: vec![(frames, bytes)], next })
    }
}

/// What the core hears of an answer, last thing first.
pub(crate) fn told(attempt: Attempt, part: SnapshotPart) -> Vec<SourceEvent> {
    let answer = |part| SourceEvent::Answer { attempt, part };
    match part {
        SnapshotPart::Nothing | SnapshotPart::Records(_) => Vec::new(),
        SnapshotPart::Whole(intro) => {
            vec![answer(AnswerPart::SnapshotEnd), answer(AnswerPart::SnapshotIntro(intro))]
        }
        SnapshotPart::Refused(refusal) => vec![answer(AnswerPart::SnapshotRefused(refusal))],
        SnapshotPart::Failed => vec![answer(AnswerPart::Failed)],
    }
}

/// Whether a batch shows more than one tier, or pages that an adapter keeps apart under hashes that
/// do not: then a snapshot that names neither leaves out what is not the same for all.
pub(crate) fn disproves_plain(batch: &Batch) -> bool {
    let elsewhere = |place: &Place| place.tier != Tier::Device;
    batch.events.iter().any(|event| match event {
        Event::Stored(stored) => elsewhere(&stored.place) || stored.lora.is_some(),
        Event::Removed(removed) => elsewhere(&removed.place),
        Event::Moved(_) => true,
        Event::Cleared(_) | Event::Reset(_) | Event::Trust(_) | Event::Unknown(_) => false,
    })
}
