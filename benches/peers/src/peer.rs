//! What every index is asked to do. Its own events and questions are built before the clock starts.

use std::{collections::BTreeMap, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::workload::{Kind, Op};

/// An index as a router would use it.
pub trait Peer: Sized {
    const NAME: &str;
    type Event: Send;
    type Question: Clone + Send + Sync;
    /// What the caller keeps for its writes.
    type Lane: Send;

    fn new(workers: usize) -> Self;
    fn lane(&self, workers: usize) -> Self::Lane;
    fn stored(op: &Op) -> Self::Event;
    fn removed(op: &Op) -> Self::Event;
    fn question(op: &Op) -> Self::Question;

    /// Applies and frees the events; returns the CPU time of the thread that did it.
    fn apply(&self, lane: &mut Self::Lane, events: Vec<Self::Event>) -> Duration;

    /// Asks, and throws the answer away; how many workers match, so that nothing is left out.
    fn find(&self, question: &mut Self::Question) -> usize;

    /// The blocks that each worker matches; one that matches nothing may be absent.
    fn scores(&self, question: Self::Question) -> BTreeMap<u16, u64>;

    /// Forgets a worker; what that took, in CPU time where the caller's thread does it.
    fn remove_worker(&self, lane: &mut Self::Lane, worker: u16) -> Duration;

    /// Everything held, in a form that can be sent, and a second index made of it: the number of
    /// blocks and the times of both. `None` = the peer has no such thing.
    fn snapshot(&self, lane: &mut Self::Lane, workers: usize) -> Option<Copied<Self>>;

    /// What fell out of the peer's own books.
    fn note(&self, _lane: &Self::Lane) -> Option<String> {
        None
    }
}

/// A snapshot's worth.
pub struct Copied<P> {
    pub blocks: usize,
    pub exported: Duration,
    pub installed: Duration,
    pub index: P,
}

/// The events of some operations in a peer's own form.
pub fn events<'a, P: Peer>(ops: impl Iterator<Item = &'a Op>) -> Vec<P::Event> {
    let event = |op: &Op| match op.kind {
        Kind::Stored => Some(P::stored(op)),
        Kind::Removed => Some(P::removed(op)),
        Kind::Query => None,
    };
    ops.filter_map(event).collect()
}

/// CPU time of the calling thread: other work on the machine does not count.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What `work` took of this thread.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = cpu();
    let result = work();
    (cpu() - start, result)
}
