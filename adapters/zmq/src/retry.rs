//! How long to wait before the next connection attempt.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

/// Doubling delays with full jitter: each wait is a random part of the current delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// The first delay.
    pub first: Duration,
    /// The delay stops growing here.
    pub max: Duration,
}

impl Default for RetrySettings {
    /// 50 ms to 1.5 s. The library's own retry goes to 30 s: 4.3 s of deafness after a peer came
    /// back from 5 s. With 2 s the worst case (up to 0.25 s left of an attempt, the wait, the
    /// handshake) is over 2 s; with 1.5 s it is under.
    fn default() -> RetrySettings {
        RetrySettings { first: Duration::from_millis(50), max: Duration::from_millis(1500) }
    }
}

/// Where in the row of delays we are.
#[derive(Debug)]
pub(crate) struct Retry {
    settings: RetrySettings,
    delay: Duration,
}

impl Retry {
    pub(crate) fn new(settings: RetrySettings) -> Retry {
        Retry { settings, delay: settings.first }
    }

    pub(crate) fn reset(&mut self) {
        self.delay = self.settings.first;
    }

    /// The next wait: a random part of the delay, which doubles after it.
    pub(crate) fn next_wait(&mut self) -> Duration {
        let wait = self.delay.mul_f64(random_part());
        self.delay = (self.delay * 2).min(self.settings.max);
        wait
    }
}

/// In 0..1. Jitter needs no generator: a fresh `RandomState` has other keys each time.
fn random_part() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_differ() {
        let mut retry = Retry::new(RetrySettings::default());
        let waits: Vec<_> = (0..100).map(|_| retry.next_wait()).collect();
        assert!(waits[0] <= Duration::from_millis(50));
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(1500)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(750)));
        assert!(waits.iter().skip(10).any(|wait| *wait < Duration::from_millis(750)));
        retry.reset();
        assert!(retry.next_wait() <= Duration::from_millis(50));
    }
}
