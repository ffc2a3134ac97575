//! A whole view at one cursor.

use std::fmt;

use crate::{BlockHash, BusSeq, Digest, Epoch, Group, Parent, Replica, Scope, Seq, Tier, Trust};

/// What a snapshot is of, ahead of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Whose cache.
    pub replica: Replica,
    /// Which life.
    pub epoch: Epoch,
    /// The snapshot reflects all batches below this seq: the first one to apply after it.
    pub resume_seq: Seq,
    /// The bus message after which to resume, when it came from a bus.
    pub bus_seq: Option<BusSeq>,
    /// Digest of batch `resume_seq - 1`, the proof that a live engine still lives this life.
    pub last_digest: Option<Digest>,
    /// The trust of the view when it was taken; installing it never gives more.
    pub trust: Trust,
    /// How many records follow.
    pub block_count: u64,
    /// What the reader's state machine needs to go on where the writer's stood; absent = the
    /// records alone, which prove no life.
    pub state: Option<SnapshotState>,
}

/// What a view rests on, beside its records: with it a later process can prove the same life again
/// and then believe as much as the writer did, never more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotState {
    /// The trust of the host tier; that of the device tier is the header's.
    pub host: Trust,
    /// Why trust is no better.
    pub reason: String,
    /// The tiers that were known to be empty when the view began, or since; absent = the view is
    /// contiguous since a point, and what was before is unknown.
    pub proven: Option<Scope>,
    /// Why a store is missing, if one is.
    pub stores_lost: Option<String>,
    /// A removal may be missing.
    pub removals_lost: bool,
    /// The batch from which on the next answer must be compared.
    pub audit_from: Seq,
    /// The highest live seq seen.
    pub highest_live: Option<Seq>,
    /// The journal returned a digest that was known, at least once: it is the right one.
    pub confirmed: bool,
    /// The wire's own name of this life.
    pub incarnation: Option<String>,
    /// Names of lives that ended.
    pub closed: Vec<String>,
    /// Everything that the fold depends on beside the events, in one text. Views folded with other
    /// settings are of no use to each other.
    pub settings: String,
    /// The newest batches, oldest first.
    pub digests: Vec<(Seq, Digest)>,
}

/// One (block, tier, group) with everything the fold's future depends on.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts of one block")]
pub struct SnapshotRecord {
    /// The block.
    pub hash: BlockHash,
    /// The block before it.
    pub parent: Parent,
    /// Content hash, when known.
    pub content: Option<u64>,
    /// Tokens per block; 0 if only its place is known.
    pub block_size: u32,
    /// Where it is.
    pub tier: Tier,
    /// Its group, with the kind as far as learned.
    pub group: Option<Group>,
    /// Physical copies there.
    pub count: u32,
    /// LoRA adapter.
    pub lora: Option<String>,
    /// Cache salt.
    pub salt: Option<String>,
    /// XXH3-64 over the extra keys that are neither adapter nor salt; absent = none.
    pub extra: Option<u64>,
    /// Shorter than its group's block size.
    pub partial: bool,
    /// Hashed over EAGLE pairs.
    pub bigram: bool,
    /// Waits for its parent: resident, but not reachable by a prefix.
    pub parked: bool,
    /// Told by a source that never announces removals, in a tier that otherwise is proven.
    pub hint: bool,
}

impl fmt::Debug for SnapshotRecord {
    // A salt is a customer's secret, as in a store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotRecord")
            .field("hash", &self.hash)
            .field("parent", &self.parent)
            .field("content", &self.content)
            .field("block_size", &self.block_size)
            .field("tier", &self.tier)
            .field("group", &self.group)
            .field("count", &self.count)
            .field("lora", &self.lora)
            .field("salt", &self.salt.as_ref().map(|_| "***"))
            .field("partial", &self.partial)
            .field("bigram", &self.bigram)
            .field("parked", &self.parked)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}
