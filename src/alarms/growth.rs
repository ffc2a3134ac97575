//! PURE. Counts that somebody else keeps, between two looks at them.

use std::collections::VecDeque;

use super::TRAFFIC_WINDOW_SECONDS;
use crate::recovery::Tick;

/// A count, and when it last grew.
#[derive(Default)]
pub(super) struct News {
    count: u64,
    at: Option<Tick>,
}

impl News {
    /// How long ago it grew, with what it is now.
    pub(super) fn ago(&mut self, count: u64, now: Tick) -> Option<u64> {
        if count > self.count {
            (self.count, self.at) = (count, Some(now));
        }
        self.at.map(|at| now.0.saturating_sub(at.0))
    }
}

/// A count at the last looks, oldest first.
#[derive(Default)]
pub(super) struct Window(VecDeque<u64>);

impl Window {
    /// What was added within the window that ends now.
    pub(super) fn added(&mut self, count: u64) -> u64 {
        // Whoever counts started anew.
        if self.0.back().is_some_and(|last| count < *last) {
            self.0.clear();
        }
        let oldest = self.0.front().copied().unwrap_or(count);
        self.0.push_back(count);
        if self.0.len() > TRAFFIC_WINDOW_SECONDS {
            self.0.pop_front();
        }
        count - oldest
    }
}
