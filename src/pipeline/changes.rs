//! How a replica stood before: its last changes, for those who come when something has happened.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use kvbridge_schemas::{Epoch, Trust};

use crate::config::limits::STANDING_CHANGES_MAX;

/// What a replica changed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, unix ms.
    pub at_ms: u64,
    /// What may be believed from then on.
    pub trust: Trust,
    /// Why it is no better.
    pub reason: &'static str,
    /// Whose life.
    pub epoch: Epoch,
}

/// The last changes of one replica.
#[derive(Debug, Default)]
pub struct Changes(Mutex<VecDeque<Change>>);

impl Changes {
    pub(crate) fn note(&self, change: Change) {
        // Single pushes and pops: nothing in them can panic half-way.
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() >= STANDING_CHANGES_MAX {
            changes.pop_front();
        }
        changes.push_back(change);
    }

    /// Oldest first.
    pub fn all(&self) -> Vec<Change> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_kept_and_the_oldest_goes_first() {
        let changes = Changes::default();
        let change = |epoch| Change {
            at_ms: epoch,
            trust: Trust::Exact,
            reason: "contiguous",
            epoch: Epoch(epoch),
        };
        let count = u64::try_from(STANDING_CHANGES_MAX).unwrap();
        (0..count + 2).for_each(|epoch| changes.note(change(epoch)));
        let kept = changes.all();
        assert_eq!(kept.len(), STANDING_CHANGES_MAX);
        assert_eq!((kept.first(), kept.last()), (Some(&change(2)), Some(&change(count + 1))));
    }
}
