//! Live stream and answers as one [`Source`].

use async_trait::async_trait;
use kvbridge::{
    adapters::Opening,
    api::{
        AnswerPart, Attempt, Capabilities, Continuity, Delivery, Drain, Removal, Replay,
        RequestRefused, Source, SourceEvent, SourceRequest,
    },
    schemas::{Scope, Tier},
};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{journal::Journal, live};

/// Parts of an answer that wait to be read; then the engine waits.
const ANSWER_QUEUE: usize = 16;

/// A task that ends with whoever holds this.
struct Owned(JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The one request that is open.
struct Answer {
    attempt: Attempt,
    parts: mpsc::Receiver<AnswerPart>,
    _asks: Owned,
}

/// One engine. Dropping it closes its connections.
pub(crate) struct TinySource {
    live: mpsc::Receiver<SourceEvent>,
    _reads: Owned,
    journal: Option<Journal>,
    answer: Option<Answer>,
}

impl TinySource {
    /// Starts to connect. Must be called inside a tokio runtime.
    pub(crate) fn spawn(opening: Opening, block_size: u32) -> TinySource {
        let journal = opening.replay.as_ref().map(|endpoint| Journal {
            address: endpoint.authority(),
            frame_bytes_max: opening.frame_bytes_max,
            block_size,
        });
        let (queue, live) = mpsc::channel(opening.queue_batches.max(2));
        let reads = Owned(tokio::spawn(live::keep(opening, block_size, queue)));
        TinySource { live, _reads: reads, journal, answer: None }
    }
}

#[async_trait]
impl Source for TinySource {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            epoch_on_wire: false,
            replay: if self.journal.is_some() { Replay::Journal } else { Replay::Absent },
            snapshot: None,
            continuity: Continuity::Proven,
            removal: Removal::LastCopy,
            clear_scope: Scope::Tiers(vec![Tier::Device]),
            drain: Drain::Shared,
            one_hash_per_block: true,
        }
    }

    async fn next(&mut self) -> Option<Delivery> {
        // Each branch takes its item in the poll that completes it: dropping this loses nothing.
        tokio::select! {
            event = self.live.recv() => Some(event?.into()),
            (attempt, part) = next_part(&mut self.answer) => {
                Some(SourceEvent::Answer { attempt, part }.into())
            }
        }
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        if self.live.is_closed() {
            return Err(RequestRefused::Closed);
        }
        match request {
            SourceRequest::Replay { attempt, start_seq } => {
                // What was asked before is not wanted any more, nor what waits of its answer.
                self.answer = None;
                let journal = self.journal.clone().ok_or(RequestRefused::Unsupported)?;
                let (queue, parts) = mpsc::channel(ANSWER_QUEUE);
                let asks = Owned(tokio::spawn(journal.ask(start_seq.0, queue)));
                self.answer = Some(Answer { attempt, parts, _asks: asks });
                Ok(())
            }
            SourceRequest::Snapshot { .. } => Err(RequestRefused::Unsupported),
            SourceRequest::Cancel => {
                self.answer = None;
                Ok(())
            }
        }
    }
}

async fn next_part(answer: &mut Option<Answer>) -> (Attempt, AnswerPart) {
    if let Some(open) = answer {
        let attempt = open.attempt;
        if let Some(part) = open.parts.recv().await {
            return (attempt, part);
        }
        *answer = None;
    }
    std::future::pending().await
}
