//! PURE. The alarms of one replica: raised after two looks, cleared after half a minute of calm.

use super::{Alarm, Sight, holds};
use crate::recovery::Tick;

/// Looks in a row before an alarm is raised. One could fall into a restart that is already over.
pub const RAISE_AFTER: u32 = 2;

/// Calm before an alarm is cleared. Shorter: a fault that comes and goes rings again and again.
pub const CLEAR_AFTER_MS: u64 = 30_000;

/// What changed in a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It rings from now on.
    Raised(Alarm),
    /// It is over.
    Cleared(Alarm),
}

#[derive(Clone, Copy, Debug, Default)]
struct Bell {
    held_count: u32,
    held_at: Tick,
    raised: bool,
}

/// The alarms of one replica.
#[derive(Clone, Debug, Default)]
pub struct Board {
    bells: [Bell; Alarm::ALL.len()],
}

impl Board {
    /// Takes one look.
    pub fn look(&mut self, now: Tick, sight: &Sight) -> Vec<Change> {
        let mut changes = Vec::new();
        for (alarm, bell) in Alarm::ALL.into_iter().zip(&mut self.bells) {
            if holds(alarm, sight) {
                bell.held_at = now;
                bell.held_count = bell.held_count.saturating_add(1);
                if bell.held_count >= RAISE_AFTER && !bell.raised {
                    bell.raised = true;
                    changes.push(Change::Raised(alarm));
                }
                continue;
            }
            bell.held_count = 0;
            if bell.raised && now >= bell.held_at.plus(CLEAR_AFTER_MS) {
                bell.raised = false;
                changes.push(Change::Cleared(alarm));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_after_two_looks_and_cleared_after_calm() {
        let calm = Sight::CALM;
        let bad = Sight { replay_unusable: true, ..calm };
        let raised = [Change::Raised(Alarm::ReplayUnusable)];
        let mut board = Board::default();
        assert!(board.look(Tick(0), &bad).is_empty());
        assert!(board.look(Tick(1_000), &calm).is_empty(), "one look rings nothing");
        assert!(board.look(Tick(2_000), &bad).is_empty());
        assert_eq!(board.look(Tick(3_000), &bad), raised);
        assert!(board.look(Tick(4_000), &bad).is_empty(), "it rings once");
        assert!(board.look(Tick(33_000), &calm).is_empty(), "calm for 29 s is not over");
        assert!(board.look(Tick(33_500), &bad).is_empty(), "the same alarm goes on");
        assert!(board.look(Tick(63_000), &calm).is_empty());
        let cleared = [Change::Cleared(Alarm::ReplayUnusable)];
        assert_eq!(board.look(Tick(63_500), &calm), cleared);
        assert!(board.look(Tick(64_000), &bad).is_empty(), "and it needs two looks again");
    }
}
