//! Where the readers of an engine's ranks sit, while its drain runs.

use std::sync::Arc;

use kvbridge_adapters_api::{Counters, Delivery};
use kvbridge_schemas::{Seq, SnapshotRecord};
use tokio::sync::mpsc;

/// Those of all ranks of an engine.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    pub(crate) of: Vec<Option<Seat>>,
    pub(crate) is_running: bool,
    /// The answer that is under way is the last one, for all ranks.
    pub(crate) is_winding_up: bool,
}

/// Where a rank's reader sits.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) queue: mpsc::Sender<Delivery>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) is_attached: bool,
    pub(crate) has_begun: bool,
    /// The view that it goes on with, until the drain knows it.
    pub(crate) kept: Option<(Seq, Vec<SnapshotRecord>)>,
}

impl Seats {
    pub(crate) fn new(count: usize) -> Seats {
        Seats { of: vec![None; count], is_running: false, is_winding_up: false }
    }

    pub(crate) fn is_taken(seat: &Option<Seat>) -> bool {
        seat.as_ref().is_some_and(|seat| !seat.queue.is_closed())
    }

    /// Takes its place, and says whether the drain may begin.
    pub(crate) fn begin(&mut self, at: usize, kept: Option<(Seq, Vec<SnapshotRecord>)>) -> bool {
        if let Some(Some(seat)) = self.of.get_mut(at) {
            // One that joins a drain that runs is told of by what the drain knows already.
            (seat.has_begun, seat.kept) = (true, kept.filter(|_| !self.is_running));
        }
        let ready = |seat: &Option<Seat>| {
            Seats::is_taken(seat) && seat.as_ref().is_some_and(|seat| seat.has_begun)
        };
        let begins = !self.is_running && self.of.iter().all(ready);
        if begins {
            (self.is_running, self.is_winding_up) = (true, false);
        }
        begins
    }

    /// The views that readers go on with, by rank.
    pub(crate) fn take_kept(&mut self) -> Vec<(usize, Seq, Vec<SnapshotRecord>)> {
        let seats = self.of.iter_mut().enumerate();
        let kept = seats.filter_map(|(at, seat)| Some((at, seat.as_mut()?.kept.take()?)));
        kept.map(|(at, (next_seq, records))| (at, next_seq, records)).collect()
    }

    /// Nobody reads any more, or nobody shall; whoever comes next starts the task anew.
    pub(crate) fn ends(&mut self) -> bool {
        if self.is_winding_up {
            self.clear();
        }
        self.is_running = self.of.iter().any(Seats::is_taken);
        !self.is_running
    }

    pub(crate) fn clear(&mut self) {
        self.of.iter_mut().for_each(|seat| *seat = None);
    }

    /// Whether this reader is still to be told that it is attached.
    pub(crate) fn enter(&mut self, at: usize) -> bool {
        let Some(Some(seat)) = self.of.get_mut(at) else { return false };
        let is_new = !std::mem::replace(&mut seat.is_attached, true);
        if is_new {
            Counters::one(&seat.counters.attached);
        }
        is_new
    }

    pub(crate) fn leave(&mut self, at: usize) -> bool {
        let Some(Some(seat)) = self.of.get_mut(at) else { return false };
        std::mem::replace(&mut seat.is_attached, false)
    }
}
