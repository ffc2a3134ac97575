//! Why an engine that is drained yields nothing: one question, asked by the command and by the
//! alarm.
//!
//! On the wire an empty list has no reason. What tells the causes apart is how the answers came:
//! such an engine waits for events before it says that there are none, and says so at once only
//! where it has given up waiting.

use std::sync::atomic::{AtomicU64, Ordering};

use kvbridge_adapters_api::Counters;

use super::{
    About,
    table::{
        BLOCK_SIZE_MISMATCH, BUFFER_OFF, COMPETING_CONSUMER, DRAIN_ABSENT, DRAIN_HELD,
        DRAIN_LATCHED,
    },
};
use crate::recovery::Tick;

/// How long an answer may be under way. An idle engine's takes 2 s; one that takes longer is held
/// back by traffic, and what it holds is in no view.
pub const HELD_MS: u64 = 5_000;

/// Answers without events after which they are no accident.
const EMPTY_MIN: u64 = 2;

/// Counts of a reader that takes an engine's events, as they are at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainCounts {
    /// Requests for events, and those of them that are over.
    pub asked: u64,
    /// See there.
    pub answered: u64,
    /// See [`DrainSight::empty`], and so on.
    pub empty: u64,
    /// See there.
    pub at_once: u64,
    /// See there.
    pub absent: u64,
    /// See there.
    pub events: u64,
    /// See there.
    pub too_long: u64,
    /// Answers that showed another reader.
    pub competing: u64,
}

impl DrainCounts {
    /// Those of one reader, now.
    pub fn of(counters: &Counters) -> DrainCounts {
        let now = |of: &AtomicU64| of.load(Ordering::Relaxed);
        DrainCounts {
            // Before the end of it: one that is over in between is not open.
            asked: now(&counters.asked),
            answered: now(&counters.answered),
            empty: now(&counters.answers_empty),
            at_once: now(&counters.answers_at_once),
            absent: now(&counters.answers_absent),
            events: now(&counters.frames),
            too_long: now(&counters.blocks_too_long),
            competing: now(&counters.competing),
        }
    }
}

/// Follows these counts, from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainWatch {
    base: DrainCounts,
    now: DrainCounts,
    /// Since when the request under way is open, as far as looks have shown.
    open_since: Option<Tick>,
    open_ms: u64,
}

impl DrainWatch {
    /// Looks at the counts.
    pub fn look(&mut self, now: Tick, counts: DrainCounts) {
        let is_open = counts.asked > counts.answered;
        let is_same = counts.asked == self.now.asked;
        let since = self.open_since.filter(|_| is_same).unwrap_or(now);
        self.open_since = is_open.then_some(since);
        self.open_ms = if is_open { now.0.saturating_sub(since.0) } else { 0 };
        self.now = counts;
    }

    /// Counts from here on: traffic begins. An answer that is under way may have been empty before.
    pub fn begin(&mut self) {
        self.base = self.now;
    }

    /// What was seen since then, in which so many requests of customers were served.
    pub fn sight(&self, requests: u64) -> DrainSight {
        let since = |of: fn(&DrainCounts) -> u64| of(&self.now).saturating_sub(of(&self.base));
        DrainSight {
            requests,
            empty: since(|it| it.empty),
            at_once: since(|it| it.at_once),
            absent: since(|it| it.absent),
            open_ms: self.open_ms,
            events: since(|it| it.events),
            too_long: since(|it| it.too_long),
            is_competing: since(|it| it.competing) > 0,
        }
    }
}

/// What was seen of taking an engine's events, since its customers' traffic began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSight {
    /// Requests of customers that were served.
    pub requests: u64,
    /// Answers without events.
    pub empty: u64,
    /// Of these, those that came at once.
    pub at_once: u64,
    /// Answers that there is no such path.
    pub absent: u64,
    /// How long the request under way is open.
    pub open_ms: u64,
    /// Events that came.
    pub events: u64,
    /// Blocks that are longer than the engine says its blocks are.
    pub too_long: u64,
    /// Another reader was seen to take events.
    pub is_competing: bool,
}

/// Why nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainCause {
    /// The server has no such path.
    Absent,
    /// Somebody else reads them.
    Competing,
    /// Blocks are not of the size that the engine says.
    BlockSize,
    /// The answer does not end under load.
    Held,
    /// The server no longer waits for events.
    Latched,
    /// The engine keeps none.
    Off,
}

impl DrainCause {
    /// Its row of the table.
    pub fn about(self) -> &'static About {
        match self {
            DrainCause::Absent => &DRAIN_ABSENT,
            DrainCause::Competing => &COMPETING_CONSUMER,
            DrainCause::BlockSize => &BLOCK_SIZE_MISMATCH,
            DrainCause::Held => &DRAIN_HELD,
            DrainCause::Latched => &DRAIN_LATCHED,
            DrainCause::Off => &BUFFER_OFF,
        }
    }
}

/// Why nothing comes; absent = events come, nobody asks for any, or it is too early to tell.
pub fn drain_cause(sight: &DrainSight) -> Option<DrainCause> {
    let DrainSight { requests, empty, at_once, .. } = *sight;
    if sight.absent > 0 {
        return Some(DrainCause::Absent);
    }
    if sight.is_competing {
        return Some(DrainCause::Competing);
    }
    if sight.too_long > 0 {
        return Some(DrainCause::BlockSize);
    }
    if requests == 0 {
        return None;
    }
    if sight.open_ms >= HELD_MS {
        return Some(DrainCause::Held);
    }
    if sight.events > 0 {
        return None;
    }
    if empty < EMPTY_MIN {
        return None;
    }
    // A request of a customer makes the server wait again, unless it is stuck.
    Some(if empty > at_once { DrainCause::Off } else { DrainCause::Latched })
}
