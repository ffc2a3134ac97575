//! Whether what another bridge wrote to the log closes a hole of an engine's journal.
//!
//! It does if the log, under the name of our life, leads without a hole from a batch that we hold
//! to the batch with which the journal goes on, and both are the same bytes there. Neither end
//! alone proves it: a log of the same life may belong to another one from some seq on, and a
//! journal may begin with the next life's batches at just the seq that is missing.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{Digest, Epoch, Event, Seq, Trust};

/// One hole: what is known of its two sides, and how far the log was read.
#[derive(Debug)]
pub struct Healing {
    life: Epoch,
    anchor: (Seq, Digest),
    join: (Seq, Digest),
    next: Seq,
    /// The newest one waits for the next: where the far side does not fit, the view must be left
    /// with a hole before it. Else it would go on with another life's batch as if nothing was
    /// missing.
    kept: Option<Batch>,
}

/// What follows from one more batch of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// This batch may be applied.
    Take(Batch),
    /// This one too, and the journal goes on from here.
    Joined(Batch),
    /// The log does not help.
    Failed,
}

impl Healing {
    /// Between a batch that we hold and the one with which the journal goes on; `None` = nothing
    /// lies between them. `life` is what the log calls our life.
    pub fn new(life: Epoch, anchor: (Seq, Digest), join: (Seq, Digest)) -> Option<Healing> {
        let next = anchor.0;
        (next < join.0).then_some(Healing { life, anchor, join, next, kept: None })
    }

    /// The first seq that is looked for.
    pub fn missing(&self) -> Seq {
        self.anchor.0.plus(1)
    }

    /// What is wanted of the log next.
    pub fn next(&self) -> Seq {
        self.next
    }

    /// One more batch, in the order of the log, with what its bridge believed of its view then.
    pub fn take(&mut self, batch: Batch, trust: Trust) -> Step {
        if batch.seq < self.next {
            // Read before.
            return Step::Wait;
        }
        let is_reset = batch.events.iter().any(|event| matches!(event, Event::Reset(_)));
        if batch.epoch != Some(self.life) || batch.seq > self.next || batch.span != 1 || is_reset {
            return Step::Failed;
        }
        let here = (batch.seq, batch.digest);
        if batch.seq == self.join.0 {
            let kept = self.kept.take().filter(|_| here == self.join);
            return kept.map_or(Step::Failed, Step::Joined);
        }
        // What a bridge could not read it does not say in an envelope, but then it was not sure.
        let sure = trust == Trust::Exact && batch.loss == Loss::Nothing;
        let fits = if batch.seq == self.anchor.0 { here == self.anchor } else { sure };
        if !fits {
            return Step::Failed;
        }
        self.next = batch.next_seq();
        // The engine names no epoch, so its batches do not either.
        let before = self.kept.replace(Batch { epoch: None, ..batch });
        before.map_or(Step::Wait, Step::Take)
    }
}

#[cfg(test)]
#[path = "healing_tests.rs"]
mod tests;
