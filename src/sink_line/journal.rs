//! The newest batches of a line, bounded by count and bytes.

use std::collections::VecDeque;

use super::Numbered;

/// Batches without a hole between them.
#[derive(Debug)]
pub(super) struct Journal {
    batches: VecDeque<Numbered>,
    newest: Option<u64>,
    bytes: usize,
    batches_max: usize,
    bytes_max: usize,
}

impl Journal {
    pub(super) fn new(batches_max: usize, bytes_max: usize) -> Journal {
        Journal { batches: VecDeque::new(), newest: None, bytes: 0, batches_max, bytes_max }
    }

    /// Adds the next one. The oldest go when the bounds are passed; a batch beyond them alone is
    /// not kept either.
    pub(super) fn push(&mut self, numbered: Numbered) {
        self.bytes += numbered.payload.len();
        self.newest = Some(numbered.seq);
        self.batches.push_back(numbered);
        while self.batches.len() > self.batches_max || self.bytes > self.bytes_max {
            let Some(oldest) = self.batches.pop_front() else { return };
            self.bytes -= oldest.payload.len();
        }
    }

    pub(super) fn forget(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// The newest number, if anything was published.
    pub(super) fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// All from `start` on, if that one is still there.
    pub(super) fn from(&self, start: u64) -> Option<Vec<Numbered>> {
        let first = self.batches.front()?.seq;
        let skipped = usize::try_from(start.checked_sub(first)?).ok()?;
        Some(self.batches.iter().skip(skipped).cloned().collect())
    }
}
