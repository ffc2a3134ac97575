//! Which release is modelled, and what it puts on the wire.

use std::{fmt, str::FromStr};

/// A release 0.`minor`.`patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    minor: u32,
    patch: u32,
}

/// Not a release that publishes events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a release {expected}, got {text:?}")]
pub struct ReleaseError {
    text: String,
    expected: &'static str,
}

impl ReleaseError {
    pub(super) fn new(text: &str, expected: &'static str) -> ReleaseError {
        ReleaseError { text: text.to_owned(), expected }
    }
}

/// The two numbers behind the first, which is 0.
pub(super) fn numbers(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(0)), Some(Ok(minor)), None, None) => Some((minor, 0)),
        (Some(Ok(0)), Some(Ok(minor)), Some(Ok(patch)), None) => Some((minor, patch)),
        _ => None,
    }
}

impl Release {
    /// The newest one known.
    pub const NEWEST: Release = Release::of(33, 0);

    /// 0.`minor`.`patch`.
    pub const fn of(minor: u32, patch: u32) -> Release {
        Release { minor, patch }
    }

    fn since(self, minor: u32, patch: u32) -> bool {
        self >= Release::of(minor, patch)
    }

    /// Events are maps; before they were positional arrays.
    pub fn maps(self) -> bool {
        self.since(24, 0)
    }

    /// The batch names its rank.
    pub fn rank(self) -> bool {
        self.since(9, 1)
    }

    /// Events name their medium; hashes may be bytes.
    pub fn medium(self) -> bool {
        self.since(10, 2)
    }

    /// Stores name the adapter.
    pub fn lora_name(self) -> bool {
        self.since(14, 0)
    }

    /// Stores carry the extra keys.
    pub fn extra_keys(self) -> bool {
        self.since(17, 0)
    }

    /// Events name their group.
    pub fn group(self) -> bool {
        self.since(20, 0)
    }

    /// Stores name the group's kind and window.
    pub fn kind(self) -> bool {
        self.since(22, 0)
    }

    /// Offloading tiers send bytes whatever is set; later they send what the device sends.
    pub fn host_hashes_are_bytes(self) -> bool {
        !self.maps()
    }

    /// Offloading tiers send 0 for the block size.
    pub fn host_block_size_is_zero(self) -> bool {
        self.since(20, 0)
    }

    /// Locality is known.
    pub fn locality(self) -> bool {
        self.since(26, 0)
    }

    /// Ownership is known.
    pub fn ownership(self) -> bool {
        self.since(29, 0)
    }

    /// Sessions are known.
    pub fn session(self) -> bool {
        self.since(30, 0)
    }

    /// A store's map header has 16 bits: the encoder sizes it by the 16 declared fields.
    pub fn wide_store_header(self) -> bool {
        self.since(33, 0)
    }

    /// Replies carry the topic.
    pub fn replay_topic(self) -> bool {
        self.since(26, 0)
    }

    /// The start of every chain is a constant; before it was random in each process.
    pub fn constant_seed(self) -> bool {
        self.since(29, 0)
    }

    /// Its server tells where events are.
    pub fn tells_sources(self) -> bool {
        self.since(31, 0)
    }

    /// Items in a hash are tagged by their source.
    pub fn tagged_keys(self) -> bool {
        self.since(31, 0)
    }
}

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Release, ReleaseError> {
        let release = numbers(text).map(|(minor, patch)| Release::of(minor, patch));
        release
            .filter(|release| release.minor >= 9)
            .ok_or_else(|| ReleaseError::new(text, "from 0.9 on, such as 0.9.1 or 0.28"))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}.{}", self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_as_numbers() {
        let release = |text: &str| text.parse::<Release>();
        assert!(release("0.10.2").unwrap() > release("0.9.1").unwrap());
        assert_eq!(release("0.33"), Ok(Release::NEWEST));
        assert!(release("0.8.5").is_err() && release("1.0").is_err() && release("x").is_err());
    }
}
