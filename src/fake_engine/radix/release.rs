//! Which release of the engine with a tree is modelled, and what it puts on the wire.

use std::{fmt, str::FromStr};

use crate::fake_engine::release::{ReleaseError, numbers};

/// A release 0.`minor`.`patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RadixRelease {
    minor: u32,
    patch: u32,
}

impl RadixRelease {
    /// The newest one known.
    pub const NEWEST: RadixRelease = RadixRelease::of(5, 23);
    /// The oldest whose layout was seen.
    const OLDEST: RadixRelease = RadixRelease::of(4, 9);

    /// 0.`minor`.`patch`.
    pub const fn of(minor: u32, patch: u32) -> RadixRelease {
        RadixRelease { minor, patch }
    }

    fn since(self, minor: u32, patch: u32) -> bool {
        self >= RadixRelease::of(minor, patch)
    }

    /// Events name their medium.
    pub fn medium(self) -> bool {
        self.since(5, 9)
    }

    /// The salt is in the hashes, and in events; pages linked to each other share an event.
    pub fn salt(self) -> bool {
        self.since(5, 18)
    }

    /// The host tier is announced, by the name that it has kept.
    pub fn host(self) -> bool {
        self.since(5, 18)
    }

    /// Events are maps; before they were positional arrays.
    pub fn maps(self) -> bool {
        self.since(5, 20)
    }

    /// Stores name the adapter.
    pub fn lora_name(self) -> bool {
        self.since(5, 22)
    }

    /// Its server tells where events are.
    pub fn tells_sources(self) -> bool {
        self.since(5, 22)
    }

    /// Replies carry the topic.
    pub fn replay_topic(self) -> bool {
        self.since(5, 22)
    }
}

impl FromStr for RadixRelease {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<RadixRelease, ReleaseError> {
        let release = numbers(text).map(|(minor, patch)| RadixRelease::of(minor, patch));
        release
            .filter(|release| *release >= RadixRelease::OLDEST && release.minor < 9)
            .ok_or_else(|| ReleaseError::new(text, "0.4.9 to 0.5.23, such as 0.5.18"))
    }
}

impl fmt::Display for RadixRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}.{}", self.minor, self.patch)
    }
}
