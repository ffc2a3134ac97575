//! Where a block is held: tier and group.

/// Where a block is, nearest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The accelerator's own memory.
    Device,
    /// The host's memory.
    Host,
    /// Local disk.
    Disk,
    /// Storage shared beyond the machine.
    External,
    /// A tier this version has no word for, by the engine's own.
    Other(String),
}

impl Tier {
    /// The name on the wire; of an unknown tier the engine's own word.
    pub fn as_str(&self) -> &str {
        match self {
            Tier::Device => "device",
            Tier::Host => "host",
            Tier::Disk => "disk",
            Tier::External => "external",
            Tier::Other(name) => name,
        }
    }

    /// The tier of that name; an unknown one is kept as [`Tier::Other`].
    pub fn from_name(name: &str) -> Tier {
        match name {
            "device" => Tier::Device,
            "host" => Tier::Host,
            "disk" => Tier::Disk,
            "external" => Tier::External,
            other => Tier::Other(other.to_owned()),
        }
    }

    /// A tier whose engines never announce removals is a hint: off in matches unless asked for,
    /// and never part of `exact`.
    pub fn is_hint(&self) -> bool {
        match self {
            Tier::Device | Tier::Host => false,
            Tier::Disk | Tier::External | Tier::Other(_) => true,
        }
    }
}

/// What an attention or layer group caches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Full attention: a prefix is usable only when all of it is held.
    FullAttention,
    /// Multi-head latent attention: as full attention.
    MlaAttention,
    /// Sliding window: only the last window is held.
    SlidingWindow,
    /// Any other kind, by the engine's own word (`mamba`, `chunked_local_attention`, …).
    Other(String),
}

impl GroupKind {
    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            GroupKind::FullAttention => "full_attention",
            GroupKind::MlaAttention => "mla_attention",
            GroupKind::SlidingWindow => "sliding_window",
            GroupKind::Other(name) => name,
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> GroupKind {
        match name {
            "full_attention" => GroupKind::FullAttention,
            "mla_attention" => GroupKind::MlaAttention,
            "sliding_window" => GroupKind::SlidingWindow,
            other => GroupKind::Other(other.to_owned()),
        }
    }

    /// Whether prefix matching looks at groups of this kind.
    pub fn holds_whole_prefix(&self) -> bool {
        match self {
            GroupKind::FullAttention | GroupKind::MlaAttention => true,
            GroupKind::SlidingWindow | GroupKind::Other(_) => false,
        }
    }
}

/// The group a hash belongs to, as far as one event tells: a removal carries only the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Index among this engine's groups; an allocator detail, not stable across configurations.
    pub index: u32,
    /// What the group caches; absent where the event does not say.
    pub kind: Option<GroupKind>,
    /// Sliding window in tokens.
    pub window: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["device", "host", "disk", "external", "cxl"] {
            assert_eq!(Tier::from_name(name).as_str(), name);
        }
        for name in ["full_attention", "mla_attention", "sliding_window", "mamba"] {
            assert_eq!(GroupKind::from_name(name).as_str(), name);
        }
        assert_eq!(Tier::from_name("cxl"), Tier::Other("cxl".into()));
        assert_eq!(GroupKind::from_name("mamba"), GroupKind::Other("mamba".into()));
    }

    #[test]
    fn only_device_and_host_announce_removals() {
        let trusted = |name| !Tier::from_name(name).is_hint();
        assert!(trusted("device") && trusted("host"));
        assert!(!trusted("disk") && !trusted("external") && !trusted("cxl"));
    }

    #[test]
    fn only_full_attention_holds_a_whole_prefix() {
        let whole = |name| GroupKind::from_name(name).holds_whole_prefix();
        assert!(whole("full_attention") && whole("mla_attention"));
        assert!(!whole("sliding_window") && !whole("mamba"));
    }
}
