//! What was asked for deliberately, by whom.

use metrics::{Counter, counter};

use super::{label, name};
use crate::jobs::Trigger;

/// Replicas that were asked to come back to a proven state, by a resync or a flush.
#[derive(Clone)]
pub struct Deliberate {
    operator: Counter,
    policy: Counter,
}

impl Deliberate {
    /// Registers the handles.
    pub fn register() -> Deliberate {
        metrics::describe_counter!(
            name::DELIBERATE_RESYNCS,
            "replicas that were asked to come back to a proven state"
        );
        let of = |trigger: Trigger| counter!(name::DELIBERATE_RESYNCS, label::TRIGGER => trigger.as_str());
        Deliberate { operator: of(Trigger::Operator), policy: of(Trigger::Policy) }
    }

    /// So many more were asked.
    pub fn count(&self, trigger: Trigger, replica_count: usize) {
        let counter = match trigger {
            Trigger::Operator => &self.operator,
            Trigger::Policy => &self.policy,
        };
        counter.increment(u64::try_from(replica_count).unwrap_or(u64::MAX));
    }
}
