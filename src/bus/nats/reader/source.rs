//! One replica's log as a source: the live path put in order, requests, and their answers.

use std::{collections::VecDeque, future::Future, sync::Arc};

use async_trait::async_trait;
use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Capabilities, Delivery, Removal, RequestRefused, SnapshotIntro,
    SnapshotRefusal, Source, SourceEvent, SourceRequest, Upstream,
};
use kvbridge_schemas::{BusSeq, Cursor, Replica, Seq, SnapshotRecord, Trust, subject};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
};
use tracing::debug;

use super::{
    Log, Reader,
    fetch::{Fetch, fetch},
    inbox::{Arrived, Inbox},
    log::Breaks,
    message::{Read, read},
    replay::{Broken, Wanted, replay},
};
use crate::{
    config::limits::{
        BUS_ANSWER_PARTS, BUS_POSITIONS, BUS_REORDER_BYTES, BUS_REORDER_MESSAGES,
        BUS_REORDER_WAIT_MS,
    },
    pipeline::Signs,
    shared_log::{Follower, ReorderLimits, Start, log_capabilities},
    telemetry::BusReadMetrics,
};

/// The reorder window of a log, live or replayed.
pub(in crate::bus::nats) const WINDOW: ReorderLimits = ReorderLimits {
    count_max: BUS_REORDER_MESSAGES,
    bytes_max: BUS_REORDER_BYTES,
    wait_ms: BUS_REORDER_WAIT_MS,
};

/// Part of an answer, with what the source itself must know of it.
#[derive(Debug)]
pub(super) enum Part {
    Continues(Cursor),
    /// With what its bridge believed of its view then.
    Batch(Batch, BusSeq, Trust),
    /// Parts that were read together, in order.
    Run(Vec<Part>),
    /// Everything up to there was read; `None` = the log never had anything.
    End(Option<BusSeq>),
    Truncated,
    /// A snapshot, and where the log goes on behind it.
    Intro(SnapshotIntro, Option<Start>),
    Records(Vec<SnapshotRecord>),
    SnapshotEnd,
    Refused(SnapshotRefusal),
}

/// One replica's log.
pub(super) struct LogSource {
    reader: Arc<Reader>,
    log: Arc<Log>,
    inbox: Arc<Inbox>,
    replica: Replica,
    capabilities: Capabilities,
    subject: String,
    metrics: BusReadMetrics,
    signs: Arc<Signs>,
    /// What is noted of it was noted up to here.
    breaks: Breaks,
    ready: VecDeque<Delivery>,
    follower: Follower,
    open: Option<Open>,
    /// What bridges say of it.
    upstream: watch::Receiver<Upstream>,
}

/// A request under way.
struct Open {
    attempt: Attempt,
    parts: mpsc::Receiver<Part>,
    /// What came of them and was not delivered yet: goes with the request when that is given up.
    run: VecDeque<Part>,
    task: AbortHandle,
}

impl Open {
    /// The next part of the run that came last.
    fn at_hand(&mut self) -> Option<(Attempt, Part)> {
        Some((self.attempt, self.run.pop_front()?))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LogSource {
    pub(super) fn new(
        reader: Arc<Reader>,
        log: Arc<Log>,
        (replica, signs): (Replica, Arc<Signs>),
        removal: Removal,
    ) -> LogSource {
        let key = replica.key();
        let subject = subject::hint(&key);
        let mut upstream = reader.vouches.follow(&key);
        let first = SourceEvent::Upstream(*upstream.borrow_and_update());
        LogSource {
            inbox: log.join(&subject),
            breaks: log.breaks(),
            signs,
            reader,
            log,
            metrics: BusReadMetrics::register(&key),
            replica,
            capabilities: log_capabilities(removal),
            subject,
            ready: VecDeque::from([first.into()]),
            upstream,
            follower: Follower::new(WINDOW, BUS_POSITIONS),
            open: None,
        }
    }

    /// What happened to the stream since this was last asked.
    fn note_breaks(&mut self) {
        let before = std::mem::replace(&mut self.breaks, self.log.breaks());
        if self.breaks.resets > before.resets {
            self.metrics.log_reset.increment(1);
            self.signs.log_was_reset();
        }
        if self.breaks.passed > before.passed {
            self.metrics.retention_passed.increment(1);
            self.signs.retention_has_passed();
        }
    }

    fn arrived(&mut self, arrived: Arrived) {
        self.note_breaks();
        match arrived {
            Arrived::Attached { continuous, same_log } => {
                self.follower.attached(continuous, same_log);
                self.ready.push_back(SourceEvent::Attached.into());
            }
            Arrived::Detached => {
                self.open = None;
                self.released(Follower::detached);
                self.ready.push_back(SourceEvent::Detached.into());
            }
            Arrived::Overflowed => {
                self.metrics.overflowed.increment(1);
                self.released(Follower::overflowed);
                self.ready.push_back(SourceEvent::Overflowed.into());
            }
            Arrived::Message(message) => {
                self.metrics.read.increment(1);
                let batch = match read(&self.replica, &message.payload, || message.place) {
                    Read::Batch(batch, _) => batch,
                    Read::Said(envelope) => {
                        self.reader.vouches.said(&envelope);
                        return;
                    }
                    Read::Not(batch, why) => {
                        debug!(replica = %self.replica.key(), at = message.at.0, reason = why.as_str(), "message not read");
                        self.metrics.unreadable(why.as_str());
                        let Some(batch) = batch else { return };
                        batch
                    }
                };
                let now = self.reader.clock.now();
                self.released(|follower, out| follower.live(now, batch, message.at, out));
            }
        }
    }

    /// Does something with what is known; what may go on then is delivered.
    fn released(&mut self, change: impl FnOnce(&mut Follower, &mut Vec<Batch>)) {
        let mut out = Vec::new();
        change(&mut self.follower, &mut out);
        self.ready.extend(out.into_iter().map(|batch| SourceEvent::Live(batch).into()));
    }

    fn answered(&mut self, attempt: Attempt, part: Option<Part>) {
        let part = match part {
            Some(Part::Batch(batch, at, _)) => {
                self.follower.replayed(&batch, at);
                AnswerPart::Batch(batch)
            }
            // One by one: the follower must not count as read what the driver has not seen.
            Some(Part::Run(parts)) => {
                if let Some(open) = &mut self.open {
                    open.run.extend(parts);
                }
                return;
            }
            Some(Part::Continues(cursor)) => AnswerPart::Continues(cursor),
            Some(Part::End(through)) => {
                self.open = None;
                if let Some(through) = through {
                    let end = AnswerPart::Continues(self.follower.ended(through));
                    self.ready.push_back(SourceEvent::Answer { attempt, part: end }.into());
                }
                AnswerPart::End
            }
            Some(Part::Truncated) => AnswerPart::Truncated,
            Some(Part::Intro(intro, stored)) => {
                self.follower.snapshot(stored);
                AnswerPart::SnapshotIntro(intro)
            }
            Some(Part::Records(records)) => {
                return self.ready.push_back(Delivery::Records { attempt, records });
            }
            Some(Part::SnapshotEnd) => AnswerPart::SnapshotEnd,
            Some(Part::Refused(refusal)) => AnswerPart::SnapshotRefused(refusal),
            // The task ended without an end.
            None => {
                self.open = None;
                AnswerPart::Failed
            }
        };
        self.ready.push_back(SourceEvent::Answer { attempt, part }.into());
    }

    fn ask(
        &mut self,
        attempt: Attempt,
        asked: impl Future<Output = Result<(), Broken>> + Send + 'static,
        parts: mpsc::Receiver<Part>,
    ) {
        let key = self.replica.key();
        let task = tokio::spawn(async move {
            if let Err(error) = asked.await {
                debug!(replica = %key, %attempt, %error, "request to the bus broke off");
            }
        });
        let run = VecDeque::new();
        self.open = Some(Open { attempt, parts, run, task: task.abort_handle() });
    }

    fn replay(&mut self, attempt: Attempt, start_seq: Seq) {
        // In this order: what is handed over after the look at the stream can only make it old.
        let through = self.log.through();
        let idle = self.inbox.is_empty() && self.ready.is_empty();
        let wanted = Wanted {
            replica: self.replica.clone(),
            subject: self.subject.clone(),
            known: self.follower.known(start_seq, idle.then_some(through)),
            metrics: self.metrics.clone(),
        };
        let (reader, log) = (Arc::clone(&self.reader), Arc::clone(&self.log));
        let (tx, rx) = mpsc::channel(BUS_ANSWER_PARTS);
        self.ask(attempt, async move { replay(&reader, &log, wanted, tx).await }, rx);
    }

    fn fetch(&mut self, attempt: Attempt, object: Option<String>) {
        let (reset, taken) = (self.follower.reset(), self.follower.taken());
        let wanted = Fetch { replica: self.replica.clone(), object, reset, taken };
        let (reader, log) = (Arc::clone(&self.reader), Arc::clone(&self.log));
        let (tx, rx) = mpsc::channel(BUS_ANSWER_PARTS);
        self.ask(attempt, async move { fetch(&reader, &log, wanted, tx).await }, rx);
    }
}

impl Drop for LogSource {
    fn drop(&mut self) {
        self.log.leave(&self.subject, &self.inbox);
        self.reader.vouches.forget(&self.replica.key());
    }
}

#[async_trait]
impl Source for LogSource {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn next(&mut self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Some(delivery);
            }
            // A run is short: what it keeps waiting is less than what one look at everything costs
            // a message.
            if let Some((attempt, part)) = self.open.as_mut().and_then(Open::at_hand) {
                self.answered(attempt, Some(part));
                continue;
            }
            let clock = self.reader.clock;
            // Not biased: a long answer must not let the inbox overflow, nor the reverse. Each
            // branch takes its item in the poll that completes it, so dropping this loses nothing.
            tokio::select! {
                arrived = self.inbox.pop() => self.arrived(arrived),
                Ok(()) = self.upstream.changed() => {
                    let said = SourceEvent::Upstream(*self.upstream.borrow_and_update());
                    self.ready.push_back(said.into());
                }
                (attempt, part) = next_part(&mut self.open) => self.answered(attempt, part),
                () = clock.sleep_until(self.follower.deadline()) => {
                    let now = clock.now();
                    self.released(|follower, out| follower.expire(now, out));
                }
            }
        }
    }

    fn request(&mut self, request: SourceRequest) -> Result<(), RequestRefused> {
        match request {
            SourceRequest::Replay { attempt, start_seq } => self.replay(attempt, start_seq),
            SourceRequest::Snapshot { attempt, object } => self.fetch(attempt, object),
            SourceRequest::Cancel => self.open = None,
        }
        Ok(())
    }
}

async fn next_part(open: &mut Option<Open>) -> (Attempt, Option<Part>) {
    let Some(open) = open else { return std::future::pending().await };
    (open.attempt, open.parts.recv().await)
}
