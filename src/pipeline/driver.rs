//! One task, one replica: owns its source, recovery and view, and performs what recovery decides.
//!
//! Order matters here, and only here:
//! - A withdrawal reaches the index at once, ahead of the data queued before it.
//! - Everything else of one input (data, then what may be believed of it) is sent when recovery has
//!   also seen what the view found out meanwhile, so no grant is published that a finding takes
//!   back.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kvbridge_adapters_api::{
    AnswerPart, Attempt, Batch, Delivery, SnapshotRefusal, Source, SourceEvent, SourceRequest,
};
use kvbridge_schemas::{Cursor, EngineKind, Replica, ReplicaKey, Seq, TierTrust};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{Command, HashWatch, IndexWrite, ReplicaStatus, Signs};
use crate::{
    bus::{Embedded, LogWriter, Writer},
    clock::Clock,
    config::ViewConfig,
    index::{Generation, ReplicaSlot},
    jobs::Performed,
    recovery::{Action, ClearReason, Input, Recovery, Tick, TrustReason},
    telemetry::{FactLog, ReplicaMetrics},
    view::{Delta, View, ViewSettings},
};

/// Wait before a full index queue is tried again. Shorter: a busy loop. Longer: the source's queue
/// fills behind us although the index has room again.
const INDEX_RETRY: Duration = Duration::from_millis(1);

/// One replica's task.
pub struct Driver {
    replica: Arc<Replica>,
    key: ReplicaKey,
    engine: EngineKind,
    source: Box<dyn Source>,
    /// The source said that nothing more will come.
    source_ended: bool,
    /// The program stops: nothing more is read or asked, commands are still answered.
    halted: bool,
    /// Told when the source has said what it was handed before the program stopped.
    winds_up: Option<oneshot::Sender<()>>,
    fold: String,
    recovery: Recovery,
    view_settings: ViewSettings,
    view: View,
    /// The snapshot that is being read.
    shadow: Option<Shadow>,
    kept_max: ViewConfig,
    signs: Arc<Signs>,
    performed: Performed,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<ReplicaStatus>,
    outputs: Outputs,
    local: Embedded,
    log: Option<LogWriter>,
    hashes: Option<HashWatch>,
    slot: ReplicaSlot,
    generation: Generation,
    /// The generation of the last version sent.
    published_generation: Generation,
    /// Where the view stands while actions are performed.
    cursor: Cursor,
    /// What was last said, to the index and to readers.
    told: (TierTrust, TrustReason),
    told_at_ms: u64,
    moved_at: Tick,
    /// When trust was last withdrawn.
    blind_since: Tick,
    /// Writes of the current input.
    writes: Vec<IndexWrite>,
    /// Inputs that performing brought about.
    inputs: VecDeque<Input>,
    /// What sinks have not been told.
    step: Step,
    facts: FactLog,
    metrics: ReplicaMetrics,
}

impl Driver {
    /// A driver that has not begun to read.
    pub fn new(parts: DriverParts, outputs: Outputs) -> Driver {
        let key = parts.replica.key();
        let slot = outputs.index.register(Replica::clone(&parts.replica));
        let told = parts.recovery.standing();
        let kept = parts.kept.is_some();
        let mut driver = Driver {
            metrics: ReplicaMetrics::register(&key),
            facts: FactLog::new(key.clone()),
            generation: outputs.index.generation(slot),
            published_generation: outputs.index.generation(slot),
            cursor: parts.recovery.cursor(),
            told,
            told_at_ms: Clock::unix_ms(),
            moved_at: outputs.clock.now(),
            blind_since: outputs.clock.now(),
            view: parts.kept.unwrap_or_else(|| View::new(parts.view)),
            shadow: None,
            fold: parts.fold,
            halted: false,
            winds_up: None,
            view_settings: parts.view,
            kept_max: parts.kept_max,
            signs: parts.signs,
            performed: Performed::default(),
            replica: parts.replica,
            key,
            engine: parts.engine,
            source: parts.source,
            source_ended: false,
            recovery: parts.recovery,
            commands: parts.commands,
            status: parts.status,
            local: Embedded::new(outputs.events.clone()),
            log: parts.log,
            hashes: parts.hashes,
            outputs,
            slot,
            writes: Vec::new(),
            inputs: VecDeque::new(),
            step: Step::first(),
        };
        driver.begin(kept);
        if kept {
            // Known to the index at once and believed by nobody: the trust that goes with it is
            // none.
            let (links, published) = (driver.view.as_deltas().collect(), driver.published());
            driver.writes.push(IndexWrite::Replace { slot, links, published });
        }
        driver
    }

    /// Reads until stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = self.outputs.clock;
        self.publish().await;
        loop {
            let input = tokio::select! {
                biased;
                () = stop.cancelled() => return self.finish().await,
                () = clock.sleep_until(self.recovery.next_deadline()), if !self.halted => {
                    Input::DeadlineReached
                }
                Some(command) = self.commands.recv() => match self.asked(command) {
                    Some(input) => input,
                    None => continue,
                },
                () = catch_up(self.log.as_mut(), self.cursor, self.told) => match self.wish() {
                    Some(input) => input,
                    None => continue,
                },
                event = self.source.next(), if !self.source_ended && !self.halted => match event {
                    Some(Delivery::Event(event)) => self.received(event),
                    Some(Delivery::Records { attempt, records }) => self.records(attempt, records),
                    Some(Delivery::Figures(told)) => {
                        self.signs.set_figures(told.pool_blocks, told.request_count);
                        continue;
                    }
                    None if self.has_wound_up() => continue,
                    None => {
                        self.source_ended = true;
                        error!(replica = %self.key, "source ended");
                        Input::Source(SourceEvent::Detached)
                    }
                },
            };
            self.take(input);
            self.publish().await;
            if let Some(input) = self.wish() {
                self.take(input);
                self.publish().await;
            }
            if self.is_blocked() && !self.wait_for_bus(&stop).await {
                return self.finish().await;
            }
        }
    }

    fn received(&mut self, event: SourceEvent) -> Input {
        self.tell_author(&event);
        if let SourceEvent::Live(batch) = &event {
            self.metrics.received.increment(1);
            self.metrics.lossy(batch.loss);
            self.signs.received(self.outputs.clock.now(), batch.loss);
            self.signs.dated(batch.ts, Clock::unix_ms());
            self.signs.hashed(&batch.hash.scheme);
        }
        Input::Source(event)
    }

    /// Steps until nothing follows any more.
    fn take(&mut self, input: Input) {
        let mut actions = Vec::new();
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let now = self.outputs.clock.now();
            self.recovery.step(now, input, &mut actions);
            let starts_over =
                |action: &Action| matches!(action, Action::Clear { .. } | Action::Install { .. });
            if !actions.iter().any(starts_over) {
                // A first life is named without a Clear: there was nothing to clear.
                self.cursor.epoch = self.recovery.cursor().epoch;
            }
            for action in actions.drain(..) {
                self.perform(now, action);
            }
        }
    }

    fn perform(&mut self, now: Tick, action: Action) {
        match action {
            Action::Apply(batch) => self.apply(now, batch),
            Action::Clear { epoch, cause } => {
                if let (Some(log), ClearReason::Unproven) = (&mut self.log, cause) {
                    log.cleared();
                }
                self.view = View::new(self.view_settings);
                self.cursor = Cursor { epoch, next_seq: Seq(0) };
                self.write(vec![Delta::Cleared]);
            }
            Action::Install { attempt, epoch, resume_seq } => {
                self.install(attempt, epoch, resume_seq);
            }
            Action::RequestReplay { attempt, start_seq } => {
                self.behind_the_log();
                let request = SourceRequest::Replay { attempt, start_seq };
                if self.source.request(request).is_err() {
                    self.answer(attempt, AnswerPart::Failed);
                }
            }
            Action::RequestSnapshot { attempt, object } => {
                self.shadow = Some(Shadow::new(attempt, self.view_settings));
                if self.source.request(SourceRequest::Snapshot { attempt, object }).is_err() {
                    let refusal = SnapshotRefusal::Unavailable;
                    self.answer(attempt, AnswerPart::SnapshotRefused(refusal));
                }
            }
            Action::CancelRequest => {
                self.shadow = None;
                // A source that cannot cancel has nothing open: its next answer carries an old
                // number.
                drop(self.source.request(SourceRequest::Cancel));
            }
            Action::Announce { trust, reason } => self.announce(now, trust, reason),
            Action::Record(fact) => {
                self.proven(fact);
                self.signs.noted(fact);
                self.performed.note(self.cursor.epoch, fact);
                self.facts.record(now, self.cursor.epoch, fact, &mut self.metrics);
            }
        }
    }

    fn answer(&mut self, attempt: Attempt, part: AnswerPart) {
        self.inputs.push_back(Input::Source(SourceEvent::Answer { attempt, part }));
    }

    fn apply(&mut self, now: Tick, batch: Batch) {
        let mut deltas = Vec::new();
        let mut findings = Vec::new();
        self.view.apply(&batch.events, &mut deltas, &mut findings);
        self.inputs.extend(findings.into_iter().map(Input::Finding));
        self.cursor.next_seq = batch.next_seq();
        if let Some(hashes) = &mut self.hashes {
            hashes.look(self.cursor.epoch, &batch);
        }
        // The engine tells its pool only while it runs.
        if self.view.block_count() > self.blocks_max() {
            self.inputs.push_back(Input::OverLimit);
        }
        self.moved_at = now;
        self.metrics.applied.increment(1);
        self.write(deltas);
        if self.log.is_some() || self.local.wanted() {
            let envelope = Arc::new(self.envelope(batch));
            self.local.applied(&envelope);
            if let Some(log) = &mut self.log {
                log.applied(envelope);
            }
        }
    }

    fn blocks_max(&self) -> u64 {
        self.kept_max.blocks_max(self.signs.pool_blocks())
    }

    /// Withdrawals take effect at once; grants wait for the data before them.
    fn announce(&mut self, now: Tick, trust: TierTrust, reason: TrustReason) {
        let (before, _) = self.told;
        if trust.device < before.device || trust.host < before.host {
            if let Some(log) = &mut self.log {
                log.withdrawn(trust.device, reason.as_str());
            }
            self.generation = self.outputs.index.withdraw(self.slot, reason.as_str());
            self.told = (TierTrust::default(), reason);
            self.blind_since = now;
        }
    }

    /// Sends what the input changed, the last version with what may be believed now.
    async fn publish(&mut self) {
        let standing = self.recovery.standing();
        self.cursor = self.recovery.cursor();
        let (changed, renamed) = {
            let shown = self.status.borrow();
            let changed = (shown.trust, shown.reason) != (standing.0, standing.1.as_str());
            (changed, shown.cursor.epoch != self.cursor.epoch)
        };
        let moved = !self.writes.is_empty();
        if changed {
            self.stand(standing);
        }
        self.told = standing;
        if let Some(log) = &mut self.log {
            log.settled(self.cursor, standing.0.device, standing.1.as_str());
        }
        // A withdrawal that was taken back in the same breath needs a version of the new
        // generation.
        let regranted = self.generation != self.published_generation;
        if (changed || regranted) && self.writes.is_empty() {
            self.write(Vec::new());
        }
        self.published_generation = self.generation;
        let published = self.published();
        match self.writes.last_mut() {
            Some(IndexWrite::Apply { published: last, .. })
            | Some(IndexWrite::Replace { published: last, .. }) => *last = published,
            Some(IndexWrite::Drop { .. }) | None => (),
        }
        for mut write in std::mem::take(&mut self.writes) {
            while let Err(back) = self.outputs.writers.try_send(write) {
                write = back;
                tokio::time::sleep(INDEX_RETRY).await;
            }
        }
        if changed || renamed || moved {
            self.show();
        }
        self.feed();
    }
}

#[path = "driver_asked.rs"]
mod asked;
#[path = "driver_bus.rs"]
mod bus;
#[path = "driver_fed.rs"]
mod fed;
#[path = "driver_parts.rs"]
mod parts;
#[path = "driver_shadow.rs"]
mod shadow;
#[path = "driver_told.rs"]
mod told;
use bus::catch_up;
use fed::Step;
pub use parts::{DriverParts, Outputs};
use shadow::Shadow;

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
