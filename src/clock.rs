//! The only place that reads time.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::recovery::Tick;

/// A span as the core counts it, in whole milliseconds.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Ticks since the process started, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose tick 0 is now.
    #[expect(clippy::disallowed_methods, reason = "this is the place that the rule points to")]
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Milliseconds since the start.
    pub fn now(&self) -> Tick {
        Tick(millis(self.start.elapsed()))
    }

    /// Time since the start, for measuring.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns when `deadline` has passed; never for `None`.
    pub async fn sleep_until(&self, deadline: Option<Tick>) {
        match deadline {
            // A timer may fire a fraction of a millisecond early, which would step with the old
            // tick.
            Some(deadline) => {
                tokio::time::sleep_until((self.start + Duration::from_millis(deadline.0)).into())
                    .await;
            }
            None => std::future::pending().await,
        }
    }

    /// The wall clock, unix milliseconds.
    #[expect(clippy::disallowed_methods, reason = "this is the place that the rule points to")]
    pub fn unix_ms() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
    }

    /// Unix milliseconds as they were at first, and what has passed since. A wall clock may be set
    /// back by a day: what waits until then would wait for a day, and a heartbeat would seem old.
    #[expect(clippy::disallowed_methods, reason = "this is the place that the rule points to")]
    pub fn steady_unix_ms() -> u64 {
        static FIRST: OnceLock<(u64, Instant)> = OnceLock::new();
        let (unix_ms, at) = FIRST.get_or_init(|| (Clock::unix_ms(), Instant::now()));
        let passed = millis(at.elapsed());
        unix_ms.saturating_add(passed)
    }

    /// The wall clock time of a tick, unix milliseconds.
    pub fn unix_ms_of(&self, tick: Tick) -> u64 {
        Clock::unix_ms().saturating_sub(self.now().0.saturating_sub(tick.0))
    }
}
