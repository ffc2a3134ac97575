//! PURE. Deliberate returns to a proven state, as jobs: whom to ask now, and what came of it.
//!
//! A [`Job`] asks replicas for one thing, a few at a time, and believes nothing but their views: a
//! resync counts when recovery performed it and trust came back, a flush when the engine's own
//! clear was folded. An engine's answer to the request proves neither. The [`Book`] keeps jobs,
//! the [`Policy`] orders them where nobody has to.

mod book;
mod job;
mod policy;
#[cfg(test)]
mod tests;

pub use book::{Book, JOBS_KEPT_MAX, JOBS_RUNNING_MAX, TooManyJobs};
pub use job::{
    Ask, Failure, Job, Member, Order, Outcome, PENDING_AFTER_MS, Pending, Seen, State, Target,
    Trigger, Verb,
};
pub use policy::{OnUnrecoverable, POLICY_RETRY_MAX_MS, POLICY_RETRY_MS, Policy, UNRECOVERABLE_MS};

use kvbridge_schemas::{Cursor, Epoch};

use crate::recovery::Fact;

/// What a view shows of what was asked: noted where the view is folded, so that it is never ahead
/// of the trust that is told with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Performed {
    /// Resyncs that recovery began.
    pub resyncs: u64,
    /// Place of the newest batch in which the engine said that it emptied its cache.
    pub flushed: Option<Cursor>,
}

impl Performed {
    /// Takes notice of a fact of that life.
    pub fn note(&mut self, epoch: Epoch, fact: Fact) {
        match fact {
            Fact::ResyncAsked => self.resyncs += 1,
            Fact::Flushed(next_seq) => {
                // What is replayed may be older than what was seen.
                self.flushed = self.flushed.max(Some(Cursor { epoch, next_seq }));
            }
            _ => (),
        }
    }
}
