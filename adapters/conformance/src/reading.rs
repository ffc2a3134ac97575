//! What the rules have in common: a source that is read, and what it said in short.

use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Delivery, Loss, Source, SourceEvent, SourceRequest,
};
use kvbridge_schemas::{Event, Seq};

use crate::{Harness, soon};

/// Batches that may wait where a rule does not speak of the queue.
pub(crate) const QUEUE: usize = 10_000;

/// What is said, without what no rule asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Attached,
    Detached,
    Restarted,
    Overflowed,
    Live(u64, Loss),
    Answer(u32, Part),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Batch(u64, Loss),
    End,
    Failed,
    Other,
}

/// An engine, and a source of it that is connected.
pub(crate) async fn connected<H: Harness>(journal: bool, queue: usize) -> (H, Box<dyn Source>) {
    let mut engine = H::start(journal).await;
    let mut source = engine.open(queue).await;
    source.begin(None);
    soon("a reader", engine.read()).await;
    (engine, source)
}

/// The next thing it says that a rule asks for.
pub(crate) async fn next(source: &mut dyn Source) -> Said {
    loop {
        let delivery = soon("a delivery", source.next()).await;
        let Some(delivery) = delivery else { panic!("the source closed by itself") };
        if let Some(said) = said(&delivery) {
            return said;
        }
    }
}

pub(crate) fn said(delivery: &Delivery) -> Option<Said> {
    let Delivery::Event(event) = delivery else { return None };
    match event {
        SourceEvent::Attached => Some(Said::Attached),
        SourceEvent::Detached => Some(Said::Detached),
        SourceEvent::Overflowed => Some(Said::Overflowed),
        SourceEvent::Restarted => Some(Said::Restarted),
        SourceEvent::Live(batch) => Some(Said::Live(batch.seq.0, whole(batch))),
        SourceEvent::Answer { attempt, part } => Some(Said::Answer(attempt.0, part_of(part))),
        SourceEvent::EndMarker
        | SourceEvent::Unannounced
        | SourceEvent::Competing
        | SourceEvent::Disproved
        | SourceEvent::Upstream(_) => None,
    }
}

fn part_of(part: &AnswerPart) -> Part {
    match part {
        AnswerPart::Batch(batch) => Part::Batch(batch.seq.0, whole(batch)),
        AnswerPart::End => Part::End,
        AnswerPart::Failed => Part::Failed,
        _ => Part::Other,
    }
}

/// What was lost of a batch; one that says it is whole stores a block, as the engine's did.
fn whole(batch: &Batch) -> Loss {
    let stores = batch.events.iter().any(|event| matches!(event, Event::Stored(_)));
    assert!(
        stores || batch.loss > Loss::Nothing,
        "batch {} stores nothing and says that nothing is lost",
        batch.seq
    );
    batch.loss
}

/// The next live batch, and what was said before it.
pub(crate) async fn until_live(source: &mut dyn Source) -> (Vec<Said>, u64) {
    let mut before = Vec::new();
    loop {
        match next(source).await {
            Said::Live(seq, Loss::Nothing) => return (before, seq),
            other => before.push(other),
        }
    }
}

/// Live batches of these numbers, and nothing between them.
pub(crate) async fn expect_live(source: &mut dyn Source, seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        assert_eq!(next(source).await, Said::Live(seq, Loss::Nothing));
    }
}

pub(crate) fn replay(attempt: u32, start: u64) -> SourceRequest {
    SourceRequest::Replay { attempt: Attempt(attempt), start_seq: Seq(start) }
}

/// Whether it numbers its batches itself: an engine that hands its events over has no journal, and
/// a number tells its adapter alone what is missing.
pub(crate) fn renumbers(source: &dyn Source) -> bool {
    source.capabilities().drain == kvbridge_adapters_api::Drain::Destructive
}
