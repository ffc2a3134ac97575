//! What this engine, in this version and configuration, can really do. The core plans with it.

use kvbridge_schemas::Scope;

/// What a source can do. An adapter states it honestly; promising more breaks the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The wire names the life of the cache.
    pub epoch_on_wire: bool,
    /// Whether old batches can be asked for.
    pub replay: Replay,
    /// Whether the whole state can be asked for.
    pub snapshot: Option<SnapshotSupport>,
    /// Whether a new connection is always visible.
    pub continuity: Continuity,
    /// What a removal means where a block has several copies.
    pub removal: Removal,
    /// Which tiers the engine's own clear reaches.
    pub clear_scope: Scope,
    /// Whether reading takes events away from other readers.
    pub drain: Drain,
    /// One hash per physical block: the condition for a proof by capacity.
    pub one_hash_per_block: bool,
}

/// Whether old batches can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// No journal: a late start or a gap cannot be repaired.
    Absent,
    /// A bounded list of past batches.
    Journal,
}

/// What a snapshot of this source carries. Without all of tiers, counts and namespaces it installs
/// as a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a foreign protocol")]
pub struct SnapshotSupport {
    /// A marker in the live stream proves the cut.
    pub barrier: bool,
    /// Every record names its tier.
    pub tiers: bool,
    /// Every record counts its copies.
    pub counts: bool,
    /// Every record names adapter and salt.
    pub namespaces: bool,
    /// Every record has a content hash.
    pub content: bool,
    /// The operator says that the engine has one tier, and one page for each hash: what a record
    /// leaves out is then the same for all. Until the stream shows otherwise.
    pub plain: bool,
}

impl SnapshotSupport {
    /// Whether an install can be as trusted as the engine itself, whatever the engine does.
    pub fn complete(&self) -> bool {
        self.tiers && self.counts && self.namespaces
    }
}

/// Whether the source says Detached before the first frame of every new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// Always.
    Proven,
    /// It cannot know (bound SUB, broker, proxy): recovery audits it also under traffic.
    Unproven,
}

/// What a removal means where a block has several copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// One copy went.
    PerCopy,
    /// The last copy went.
    LastCopy,
}

/// Whether reading takes events away from other readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Every reader gets everything.
    Shared,
    /// What one reader takes, no other sees.
    Destructive,
}
