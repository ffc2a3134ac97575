//! One engine: what it told, and when it is asked again.

use super::{Address, Settings};
use crate::recovery::Tick;

/// Doublings of the wait after a request without an answer; beyond them it is as long as it gets.
const DOUBLINGS_MAX: u32 = 16;

/// Why something told nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word of a closed set.
    pub reason: &'static str,
    /// For people.
    pub detail: String,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Where its events are.
    Told(T),
    /// The engine says that it has none: what it told before is over.
    Nothing(Refusal),
    /// Nothing is known: what it told before stands.
    Failed(Refusal),
}

/// What is remembered of one engine.
#[derive(Clone, Debug)]
pub(super) struct Engine<T> {
    pub(super) address: Address,
    /// The first look at its name that left it out.
    pub(super) missing_since: Option<Tick>,
    pub(super) ask_at: Tick,
    /// Number of the request under way.
    pub(super) open: Option<u64>,
    failures: u32,
    pub(super) told: Option<T>,
    pub(super) refusal: Option<Refusal>,
}

impl<T: PartialEq> Engine<T> {
    pub(super) fn new(address: Address, now: Tick) -> Engine<T> {
        Engine {
            address,
            missing_since: None,
            ask_at: now,
            open: None,
            failures: 0,
            told: None,
            refusal: None,
        }
    }

    /// Its name leads to it. Another IP under the same name is another process: it is asked at
    /// once, and an answer that is under way is of the old one.
    pub(super) fn present(&mut self, address: Address, now: Tick) {
        self.missing_since = None;
        if self.address != address {
            self.address = address;
            self.open = None;
            self.ask_at = now;
        }
    }

    /// Its name leaves it out. `true` = for longer than the grace time.
    pub(super) fn absent(&mut self, now: Tick, grace_ms: u64) -> bool {
        let since = *self.missing_since.get_or_insert(now);
        now >= since.plus(grace_ms)
    }

    pub(super) fn answered(&mut self, now: Tick, answer: Answer<T>, settings: &Settings) {
        self.open = None;
        match answer {
            Answer::Told(told) => {
                self.told = Some(told);
                self.refusal = None;
                self.failures = 0;
                self.ask_at = now.plus(settings.refresh_ms);
                return;
            }
            Answer::Nothing(refusal) => {
                self.told = None;
                self.refusal = Some(refusal);
            }
            Answer::Failed(refusal) => self.refusal = Some(refusal),
        }
        let wait_ms = settings.retry_ms << self.failures.min(DOUBLINGS_MAX);
        self.failures = self.failures.saturating_add(1);
        self.ask_at = now.plus(wait_ms.min(settings.refresh_ms));
    }
}
