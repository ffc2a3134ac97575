//! What the tasks that read an engine count. The shell reads it and makes metrics of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start; they only grow. Shared between the tasks of one source.
#[derive(Debug, Default)]
pub struct Counters {
    /// Live messages received, also those dropped later.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Messages of a wrong shape, live or in a replay.
    pub malformed: AtomicU64,
    /// Live messages dropped because our own queue was full.
    pub overflowed: AtomicU64,
    /// Live connections made. The first one is no reconnect.
    pub attached: AtomicU64,
    /// Live connections that could not be made.
    pub connect_failed: AtomicU64,
    /// Live connections that ended by a reset or by bytes that are not the protocol, such as a
    /// frame length over the limit where the transport checks it.
    pub receive_failed: AtomicU64,
    /// Requests for a replay or a snapshot started.
    pub replays: AtomicU64,
    /// Messages received in answers.
    pub replay_frames: AtomicU64,
    /// Answers that ended without an end.
    pub replays_failed: AtomicU64,
    /// Requests for its events to an engine that is asked for them.
    pub asked: AtomicU64,
    /// Of these, those that are over, in whatever way.
    pub answered: AtomicU64,
    /// Answers without an event.
    pub answers_empty: AtomicU64,
    /// Of these, those that came at once, although such an engine waits for events.
    pub answers_at_once: AtomicU64,
    /// Answers that there is no such path.
    pub answers_absent: AtomicU64,
    /// Blocks that are longer than such an engine says its blocks are.
    pub blocks_too_long: AtomicU64,
    /// Answers that showed another reader.
    pub competing: AtomicU64,
}

impl Counters {
    /// Adds one and says how many there are.
    pub fn one(counter: &AtomicU64) -> u64 {
        counter.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a size.
    pub fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(u64::try_from(amount).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
