//! The two connections between engine and machine, each with its own delay and its own losses.

use std::collections::VecDeque;

use kvbridge::api::{AnswerPart, Attempt, Batch, SourceEvent};

use crate::{
    faults::{Fault, Faults},
    rng::Rng,
};

/// The live stream: frames in order, each due at a time.
#[derive(Default)]
pub(crate) struct LiveLink {
    queue: VecDeque<(u64, SourceEvent)>,
    attached: bool,
    last_due: u64,
    swallow: u64,
    /// So many batches went to another reader, or are going there.
    stolen: Option<u64>,
    pub(crate) reattach_at: Option<u64>,
}

impl LiveLink {
    fn push(&mut self, now: u64, delay: u64, event: SourceEvent) {
        self.last_due = self.last_due.max(now + delay);
        self.queue.push_back((self.last_due, event));
    }

    /// A new connection; with a slow joiner its first frames are lost.
    pub(crate) fn attach(&mut self, now: u64, faults: &Faults, rng: &mut Rng) {
        self.attached = true;
        self.reattach_at = None;
        self.push(now, 1, SourceEvent::Attached);
        if faults.strike(Fault::SlowJoiner, rng) {
            self.swallow = 1 + rng.below(12);
        }
    }

    /// The connection breaks: what is under way is lost, the source says so.
    pub(crate) fn detach(&mut self, now: u64, back_after: u64) {
        self.queue.clear();
        self.attached = false;
        // What lagged is lost; the next connection does not wait for it.
        self.last_due = now;
        self.push(now, 1, SourceEvent::Detached);
        self.reattach_at = Some(now + back_after);
    }

    /// The subscriber's process ends; nobody is left to be told.
    pub(crate) fn end(&mut self, now: u64, back_after: u64) {
        self.queue.clear();
        self.attached = false;
        self.reattach_at = Some(now + back_after);
    }

    /// The process behind a drained source is another one, which its ids tell.
    pub(crate) fn restarted(&mut self, now: u64) {
        // What its connections did is still told: without its start none would be read from again.
        self.queue
            .retain(|(_, event)| matches!(event, SourceEvent::Attached | SourceEvent::Detached));
        self.stolen = None;
        self.push(now, 1, SourceEvent::Restarted);
    }

    /// A reconnect nobody sees: so many frames are lost, nothing is said.
    pub(crate) fn hidden_reconnect(&mut self, lost: u64) {
        self.queue.retain(|(_, event)| !matches!(event, SourceEvent::Live(_)));
        self.swallow = lost;
    }

    pub(crate) fn send(&mut self, now: u64, batch: Batch, faults: &Faults, rng: &mut Rng) {
        if !self.attached {
            return;
        }
        if self.swallow > 0 {
            self.swallow -= 1;
            return;
        }
        match &mut self.stolen {
            Some(0) => {
                // The ids show that some are missing; what another one reads is not announced here.
                self.stolen = None;
                self.push(now, 1, SourceEvent::Overflowed);
                self.push(now, 1, SourceEvent::Unannounced);
            }
            Some(left) => {
                *left -= 1;
                return;
            }
            None if faults.has(Fault::Stolen) && faults.strike(Fault::Stolen, rng) => {
                self.stolen = Some(rng.below(6));
                return;
            }
            None => (),
        }
        if faults.strike(Fault::Burst, rng) {
            self.swallow = 2 + rng.below(20);
            return;
        }
        if faults.strike(Fault::Drop, rng) {
            return;
        }
        if faults.strike(Fault::Overflow, rng) {
            self.push(now, 1, SourceEvent::Overflowed);
            return;
        }
        if faults.strike(Fault::Lag, rng) {
            self.last_due = self.last_due.max(now) + rng.below(400);
        }
        let delay = 1 + rng.below(12);
        if faults.strike(Fault::Twice, rng) {
            self.push(now, delay, SourceEvent::Live(batch.clone()));
        }
        self.push(now, delay, SourceEvent::Live(batch));
    }

    /// A frame that is sent whatever the faults are (a straggler of a closed life).
    pub(crate) fn send_raw(&mut self, now: u64, batch: Batch) {
        if self.attached {
            self.push(now, 2, SourceEvent::Live(batch));
        }
    }

    pub(crate) fn due(&mut self, now: u64) -> Option<SourceEvent> {
        if self.queue.front().is_some_and(|(at, _)| *at <= now) {
            return self.queue.pop_front().map(|(_, event)| event);
        }
        None
    }
}

/// The request socket: a fresh one per request; an old one's frames may still come.
#[derive(Default)]
pub(crate) struct AnswerLink {
    queue: VecDeque<(u64, Attempt, AnswerPart)>,
}

impl AnswerLink {
    /// Sends a replay answer, as a ROUTER with a full pipe and a bad day would.
    pub(crate) fn replay(
        &mut self,
        (now, attempt): (u64, Attempt),
        mut batches: Vec<Batch>,
        faults: &Faults,
        rng: &mut Rng,
    ) {
        if faults.strike(Fault::AnswerLost, rng) {
            return;
        }
        let mut end = true;
        if faults.strike(Fault::Cut, rng) {
            let keep = rng.below(batches.len() as u64 + 1);
            batches.truncate(usize::try_from(keep).unwrap());
            end = rng.hit(5_000);
        }
        if faults.strike(Fault::AnswerDrop, rng) && !batches.is_empty() {
            batches.remove(usize::try_from(rng.below(batches.len() as u64)).unwrap());
        }
        if faults.strike(Fault::EndLost, rng) {
            end = false;
        }
        let mut at = now + 1 + rng.below(20);
        if faults.strike(Fault::AnswerSlow, rng) {
            at += rng.below(150);
        }
        for batch in batches {
            at += rng.below(3);
            self.queue.push_back((at, attempt, AnswerPart::Batch(batch)));
        }
        if end {
            self.queue.push_back((at + 1, attempt, AnswerPart::End));
        }
    }

    pub(crate) fn push(&mut self, at: u64, attempt: Attempt, part: AnswerPart) {
        self.queue.push_back((at, attempt, part));
    }

    /// Whoever asked is gone.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
    }

    pub(crate) fn due(&mut self, now: u64) -> Option<SourceEvent> {
        let index = self.queue.iter().position(|(at, _, _)| *at <= now)?;
        let (_, attempt, part) = self.queue.remove(index)?;
        Some(SourceEvent::Answer { attempt, part })
    }
}
