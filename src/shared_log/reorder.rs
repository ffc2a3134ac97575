//! Puts what a log delivers out of order back in order, within bounds.
//!
//! A log that is stored by a cluster can be out of order by our own publishers' windows: after a
//! change of its leader one bridge's messages were seen as 11588, 11765–11842, 11589–11764. To
//! recovery that is a gap, a replay, and another gap. So what runs ahead waits here for what it ran
//! past, until that comes, until there is no more room, or until it has waited long enough: then it
//! goes on, and recovery sees the gap that is there.
//!
//! Nothing is dropped, and of one seq everything is released in the order it came. What cannot be
//! ahead never waits: a seq that has passed, another life, a reset.

use std::collections::BTreeMap;

use kvbridge_adapters_api::Batch;
use kvbridge_schemas::{Epoch, Event, Seq};

use crate::recovery::Tick;

/// How much may wait, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorderLimits {
    /// So many messages.
    pub count_max: u64,
    /// So many bytes.
    pub bytes_max: u64,
    /// So long.
    pub wait_ms: u64,
}

/// Where a message stands in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its life.
    pub epoch: Epoch,
    /// Its first seq.
    pub seq: Seq,
    /// How many seqs it covers.
    pub span: u32,
    /// A bridge says with it what cannot come any more.
    pub is_reset: bool,
    /// What it takes of the room.
    pub bytes: u32,
}

impl Place {
    /// Where a batch that was read from a log stands.
    pub fn of(batch: &Batch) -> Place {
        Place {
            epoch: batch.epoch.unwrap_or_default(),
            seq: batch.seq,
            span: batch.span,
            is_reset: batch.events.iter().any(|event| matches!(event, Event::Reset(_))),
            bytes: batch.bytes,
        }
    }

    fn end(&self) -> Seq {
        self.seq.plus(u64::from(self.span))
    }
}

#[derive(Debug)]
struct Waiting<T> {
    place: Place,
    since: Tick,
    item: T,
}

/// The window of one replica's log.
#[derive(Debug)]
pub struct Reorder<T> {
    limits: ReorderLimits,
    epoch: Option<Epoch>,
    /// What comes next; unknown before the first message, and then whatever comes is next.
    next: Option<Seq>,
    /// By seq, and by arrival where one seq came more than once.
    waiting: BTreeMap<(Seq, u64), Waiting<T>>,
    arrivals: u64,
    bytes: u64,
}

impl<T> Reorder<T> {
    /// An empty window that expects nothing in particular.
    pub fn new(limits: ReorderLimits) -> Reorder<T> {
        Reorder { limits, epoch: None, next: None, waiting: BTreeMap::new(), arrivals: 0, bytes: 0 }
    }

    /// A message came. What may go on is added to `out`, in order.
    pub fn push(&mut self, now: Tick, place: Place, item: T, out: &mut Vec<T>) {
        match self.epoch {
            Some(epoch) if place.epoch < epoch => return out.push(item),
            Some(epoch) if place.epoch > epoch => {
                // Nothing can follow in the closed life that anybody waits for. The new one was
                // seen to begin, so it begins with 0.
                self.flush(out);
                self.next = Some(Seq(0));
            }
            Some(_) | None => (),
        }
        self.epoch = Some(place.epoch);
        let next = *self.next.get_or_insert(place.seq);
        if place.seq <= next || place.is_reset {
            out.push(item);
            self.next = Some(next.max(place.end()));
            return self.release(out);
        }
        self.arrivals += 1;
        self.bytes += u64::from(place.bytes);
        let waiting = Waiting { place, since: now, item };
        self.waiting.insert((place.seq, self.arrivals), waiting);
        let count = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        if count > self.limits.count_max || self.bytes > self.limits.bytes_max {
            self.go_on(out);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When [`Reorder::expire`] has something to do.
    pub fn deadline(&self) -> Option<Tick> {
        let oldest = self.waiting.values().map(|waiting| waiting.since).min()?;
        Some(oldest.plus(self.limits.wait_ms))
    }

    /// What has waited long enough goes on without what it waited for.
    pub fn expire(&mut self, now: Tick, out: &mut Vec<T>) {
        while self.deadline().is_some_and(|at| at <= now) {
            self.go_on(out);
        }
    }

    /// Everything goes on: the log was left, or has ended here.
    pub fn flush(&mut self, out: &mut Vec<T>) {
        while !self.waiting.is_empty() {
            self.go_on(out);
        }
    }

    /// Forgets what comes next: the log is read from another place on.
    pub fn restart(&mut self, out: &mut Vec<T>) {
        self.flush(out);
        (self.epoch, self.next) = (None, None);
    }

    /// Nobody waits any longer for what is missing before the oldest seq here.
    fn go_on(&mut self, out: &mut Vec<T>) {
        if let Some((seq, _)) = self.waiting.keys().next() {
            self.next = Some(*seq);
        }
        self.release(out);
    }

    fn release(&mut self, out: &mut Vec<T>) {
        while let Some(first) = self.waiting.first_entry()
            && self.next.is_none_or(|next| first.key().0 <= next)
        {
            let waiting = first.remove();
            self.bytes -= u64::from(waiting.place.bytes);
            self.next = self.next.max(Some(waiting.place.end()));
            out.push(waiting.item);
        }
    }
}

#[cfg(test)]
#[path = "reorder_tests.rs"]
mod tests;
