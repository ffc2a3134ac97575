//! A source whose engine's journal may be too short, beside a log that other bridges write: what an
//! answer lacks is looked for there before recovery is told that it is gone.
//!
//! What counts is decided in [`Healing`]; while it is looked for the engine's source is not read,
//! so that everything keeps its order, and its own queue is the bound.

use std::{collections::VecDeque, pin::Pin, sync::Arc};

use async_trait::async_trait;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Delivery, RequestRefused, Source, SourceEvent,
    SourceRequest,
};
use kvbridge_schemas::{Digest, Seq, SnapshotRecord, Trust};
use tokio::{
    sync::mpsc,
    time::{Duration, Sleep, sleep},
};

use crate::{
    bus::{LogLife, Past},
    config::limits::{BUS_ANSWER_PARTS, BUS_TWIN_DEADLINE, BUS_TWIN_RUN},
    shared_log::{Healing, Step},
};

/// Before a log that does not reach far enough yet is read again.
const AGAIN: Duration = Duration::from_millis(100);

/// An engine's source with a second journal.
pub(super) struct TwinSource {
    engine: Box<dyn Source>,
    life: Arc<LogLife>,
    past: Arc<dyn Past>,
    ready: VecDeque<Delivery>,
    answer: Option<Answer>,
    look: Option<Look>,
}

/// The answer of the engine that is open.
#[derive(Clone, Copy)]
struct Answer {
    attempt: Attempt,
    start_seq: Seq,
    /// The newest batch of it.
    last: Option<(Seq, Digest)>,
    /// The log was looked at already.
    looked: bool,
}

/// A look at the log.
struct Look {
    healing: Healing,
    /// What the engine's answer goes on with.
    join: Batch,
    attempt: Attempt,
    batches: mpsc::Receiver<(Batch, Trust)>,
    said: bool,
    deadline: Pin<Box<Sleep>>,
    task: tokio::task::AbortHandle,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TwinSource {
    pub(super) fn new(engine: Box<dyn Source>, life: Arc<LogLife>, past: Arc<dyn Past>) -> Self {
        TwinSource { engine, life, past, ready: VecDeque::new(), answer: None, look: None }
    }

    /// What the engine's source says, or a look at the log in its place.
    fn arrived(&mut self, delivery: Delivery) {
        let Delivery::Event(SourceEvent::Answer { attempt, part: AnswerPart::Batch(batch) }) =
            delivery
        else {
            return self.ready.push_back(delivery);
        };
        match self.look_for(attempt, &batch) {
            Some(healing) => self.begin(healing, attempt, batch),
            None => self.answered(attempt, batch),
        }
    }

    fn answered(&mut self, attempt: Attempt, batch: Batch) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.attempt == attempt) {
            answer.last = Some((batch.next_seq().minus(1), batch.digest));
        }
        self.say(attempt, AnswerPart::Batch(batch));
    }

    fn say(&mut self, attempt: Attempt, part: AnswerPart) {
        self.ready.push_back(SourceEvent::Answer { attempt, part }.into());
    }

    /// The hole in front of this batch, if the log may close it.
    fn look_for(&self, attempt: Attempt, batch: &Batch) -> Option<Healing> {
        let answer = self.answer.filter(|answer| answer.attempt == attempt && !answer.looked)?;
        let expected = answer.last.map_or(answer.start_seq, |(last, _)| last.plus(1));
        if batch.seq <= expected {
            return None;
        }
        let (epoch, newest) = self.life.newest()?;
        // The run before the view's place that was asked for is not what is missing.
        let near = newest.0 <= answer.start_seq.plus(BUS_TWIN_RUN) && newest.0 >= answer.start_seq;
        let anchor = answer.last.or(near.then_some(newest))?;
        Healing::new(epoch, anchor, (batch.seq, batch.digest))
    }

    fn begin(&mut self, healing: Healing, attempt: Attempt, join: Batch) {
        let (tx, batches) = mpsc::channel(BUS_ANSWER_PARTS);
        let (past, from) = (Arc::clone(&self.past), healing.next());
        let reading = async move {
            loop {
                past.read(from, &tx).await;
                tokio::select! {
                    () = tx.closed() => return,
                    // A twin may be a moment behind.
                    () = sleep(AGAIN) => (),
                }
            }
        };
        let task = tokio::spawn(reading).abort_handle();
        let deadline = Box::pin(sleep(BUS_TWIN_DEADLINE));
        self.look = Some(Look { healing, join, attempt, batches, said: false, deadline, task });
    }

    fn stepped(&mut self, step: Step) {
        let Some(look) = &mut self.look else { return };
        let (attempt, missing) = (look.attempt, look.healing.missing());
        let (batch, over) = match step {
            Step::Wait => return,
            Step::Take(batch) => (Some(batch), false),
            Step::Joined(batch) => (Some(batch), true),
            Step::Failed => (None, true),
        };
        if batch.is_some() && !std::mem::replace(&mut look.said, true) {
            self.say(attempt, AnswerPart::FromTwin(missing));
        }
        if let Some(batch) = batch {
            self.answered(attempt, batch);
        }
        if over && let Some(look) = self.look.take() {
            if let Some(answer) = &mut self.answer {
                answer.looked = true;
            }
            let join = look.join.clone();
            self.answered(attempt, join);
        }
    }
}

#[async_trait]
impl Source for TwinSource {
    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn begin(&mut self, kept: Option<(Seq, Vec<SnapshotRecord>)>) {
        self.engine.begin(kept);
    }

    async fn next(&mut self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Some(delivery);
            }
            let Some(look) = &mut self.look else {
                let delivery = self.engine.next().await?;
                self.arrived(delivery);
                continue;
            };
            // Either branch takes its item in the poll that completes it.
            let step = tokio::select! {
                read = look.batches.recv() => match read {
                    Some((batch, trust)) => look.healing.take(batch, trust),
                    None => Step::Failed,
                },
                () = look.deadline.as_mut() => Step::Failed,
            };
            self.stepped(step);
        }
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        self.look = None;
        self.answer = match &request {
            SourceRequest::Replay { attempt, start_seq } => {
                let (attempt, start_seq) = (*attempt, *start_seq);
                Some(Answer { attempt, start_seq, last: None, looked: false })
            }
            SourceRequest::Snapshot { .. } | SourceRequest::Cancel => None,
        };
        self.engine.request(request)
    }

    fn wind_up(&mut self) -> bool {
        self.engine.wind_up()
    }
}
