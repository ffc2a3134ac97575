//! SHELL. The threads that write the index, so that folding a large batch or building a replaced
//! view never holds up a task.

#[cfg(test)]
mod tests;

use std::{io, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::{
    index::{Index, Published, ReplicaSlot},
    view::Delta,
};

/// Messages waiting per writer thread. Too small: senders wait at every burst. Too large: after a
/// burst the index lags by that many batches. Policy when full: the sender waits; nothing is
/// dropped.
pub const INDEX_QUEUE_MESSAGES_MAX: usize = 1_024;

/// How long a writer rests when it has applied all that waited. Whoever sends to one that waits has
/// to wake it, which costs more than a small batch does. Shorter: many wake-ups. Longer: of batches
/// that come one upon the other, all but the first are visible that much later.
const REST: Duration = Duration::from_micros(200);

/// One change of one replica; readers see all of it or nothing.
#[derive(Clone, Debug)]
pub enum IndexWrite {
    /// One batch's deltas and what is said of the result. No deltas: publish only.
    Apply {
        /// Whose.
        slot: ReplicaSlot,
        /// What changed.
        deltas: Vec<Delta>,
        /// What is said of it.
        published: Published,
    },
    /// A whole view in the place of the old one.
    Replace {
        /// Whose.
        slot: ReplicaSlot,
        /// Everything that is linked.
        links: Vec<Delta>,
        /// What is said of it.
        published: Published,
    },
    /// The replica is gone.
    Drop {
        /// Whose.
        slot: ReplicaSlot,
    },
}

impl IndexWrite {
    fn slot(&self) -> ReplicaSlot {
        match self {
            IndexWrite::Apply { slot, .. }
            | IndexWrite::Replace { slot, .. }
            | IndexWrite::Drop { slot } => *slot,
        }
    }

    fn run(self, index: &Index) {
        match self {
            IndexWrite::Apply { slot, deltas, published } => index.apply(slot, &deltas, published),
            IndexWrite::Replace { slot, links, published } => index.replace(slot, links, published),
            IndexWrite::Drop { slot } => index.drop_replica(slot),
        }
    }
}

/// A fixed number of writer threads. All writes of a replica go through one of them, in order.
///
/// Only grants of trust come this way. [`Index::withdraw`] is called on the index itself: it has to
/// overtake what waits here. Dropping the writers applies what waits, then ends the threads.
pub struct IndexWriters {
    queues: Vec<Sender<IndexWrite>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl IndexWriters {
    /// Starts `thread_count` writers.
    pub fn start(index: &Arc<Index>, thread_count: NonZeroUsize) -> io::Result<IndexWriters> {
        let mut writers = IndexWriters { queues: Vec::new(), threads: Vec::new() };
        for number in 0..thread_count.get() {
            let (queue, writes) = bounded(INDEX_QUEUE_MESSAGES_MAX);
            let index = Arc::clone(index);
            let named = thread::Builder::new().name(format!("index-writer-{number}"));
            writers.threads.push(named.spawn(move || write_all(&index, &writes))?);
            writers.queues.push(queue);
        }
        Ok(writers)
    }

    /// Queues a write; waits while the queue is full. Not for async callers.
    ///
    /// # Panics
    /// If the writer thread died, which only a broken invariant of the index can bring about.
    pub fn send(&self, write: IndexWrite) {
        let sent = self.queue(write.slot()).send(write);
        assert!(sent.is_ok(), "an index writer died");
    }

    /// Queues a write, or gives it back if the queue is full: for callers that must not block.
    ///
    /// # Panics
    /// As [`IndexWriters::send`].
    pub fn try_send(&self, write: IndexWrite) -> Result<(), IndexWrite> {
        match self.queue(write.slot()).try_send(write) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(write)) => Err(write),
            Err(TrySendError::Disconnected(_)) => panic!("an index writer died"),
        }
    }

    /// Messages waiting, all queues together: how far the index lags.
    pub fn queued_count(&self) -> usize {
        self.queues.iter().map(Sender::len).sum()
    }

    fn queue(&self, slot: ReplicaSlot) -> &Sender<IndexWrite> {
        let shards = u64::try_from(self.queues.len()).unwrap_or(u64::MAX);
        let shard = usize::try_from(slot.number() % shards).unwrap_or(0);
        self.queues.get(shard).expect("a remainder is smaller than its divisor")
    }
}

impl Drop for IndexWriters {
    fn drop(&mut self) {
        self.queues.clear(); // the threads end when they have drained what is left
        for thread in self.threads.drain(..) {
            // A writer's panic was reported when it happened; the others are waited for all the
            // same.
            drop(thread.join());
        }
    }
}

fn write_all(index: &Index, writes: &Receiver<IndexWrite>) {
    while let Ok(first) = writes.recv() {
        first.run(index);
        writes.try_iter().for_each(|write| write.run(index));
        thread::sleep(REST);
    }
}
