//! What happened to blocks: stored, removed, cleared, and the bus's own reset.

use std::fmt;

use crate::{BlockHash, Group, Tier, Trust};

/// One change. Events of one engine batch are applied in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Blocks became resident.
    Stored(Stored),
    /// Blocks left a tier.
    Removed(Removed),
    /// Everything in `scope` is gone.
    Cleared(Cleared),
    /// What the first hop lost, said by a bridge (never by an engine).
    Reset(Reset),
    /// A block changed its tier in one step.
    Moved(Moved),
    /// A bridge's trust changed here. Covers no seq: its envelope has span 0.
    Trust(TrustChange),
    /// An event type of a later minor version, by its name. It is kept, never acted on.
    Unknown(String),
}

/// The block before the first stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The first block starts a sequence.
    Root,
    /// The block of that hash comes before.
    Block(BlockHash),
    /// The event does not tell (a store that only says where a known block now is).
    Unknown,
}

/// Token ids. They are customers' prompts: the debug form shows their count and nothing else.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(pub Vec<u32>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// One block of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// The engine's identity of the block.
    pub hash: BlockHash,
    /// XXH3-64 of its tokens; absent where the event does not tell which tokens are its own.
    pub content: Option<u64>,
}

/// One item an engine mixes into a block's hash beside the tokens.
#[derive(Clone, PartialEq, Eq)]
pub enum ExtraKey {
    /// A bare text: an adapter name, a salt or, in old releases, a media id.
    Text(String),
    /// A media item and where it starts relative to the block.
    Item {
        /// The engine's id of the item.
        id: String,
        /// Tokens from the block's start to the item's; may be negative.
        offset: i64,
    },
    /// A digest.
    Bytes(Vec<u8>),
}

impl fmt::Debug for ExtraKey {
    // A salt or a media id is a customer's secret as much as a prompt is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExtraKey::Text(_) => "Text(***)",
            ExtraKey::Item { .. } => "Item(***)",
            ExtraKey::Bytes(_) => "Bytes(***)",
        })
    }
}

/// Where blocks are, as the event says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tier, in our words.
    pub tier: Tier,
    /// The engine's own word for it, when it sent one.
    pub medium: Option<String>,
    /// The attention or layer group.
    pub group: Option<Group>,
    /// `LOCAL` or `REMOTE` relative to the publisher, when configured.
    pub locality: Option<String>,
    /// Id of a secondary tier.
    pub ownership: Option<String>,
}

impl Place {
    /// A place that says nothing but its tier.
    pub fn of(tier: Tier) -> Place {
        Place { tier, medium: None, group: None, locality: None, ownership: None }
    }
}

/// Consecutive blocks that became resident.
#[derive(Clone, PartialEq)]
pub struct Stored {
    /// The block before the first one.
    pub parent: Parent,
    /// Tokens per block.
    pub block_size: u32,
    /// The engine's token ids, flat. Block i owns `tokens[i*block_size..(i+1)*block_size]` only
    /// when the lengths match exactly; otherwise the store is sparse and no block has `content`.
    pub tokens: Tokens,
    /// The blocks, in order.
    pub blocks: Vec<StoredBlock>,
    /// The one block is shorter than the group's block size.
    pub partial: bool,
    /// Tokens are EAGLE pairs: n·bs + 1 ids, block i hashed over `tokens[i*bs ..= (i+1)*bs]`.
    pub bigram: bool,
    /// Where they are.
    pub place: Place,
    /// The LoRA adapter's name.
    pub lora: Option<String>,
    /// The LoRA adapter's process-local number.
    pub lora_id: Option<i64>,
    /// The cache salt, only where it can be told apart.
    pub salt: Option<String>,
    /// Extra hash keys, one list per block; empty when the event has none.
    pub extra: Vec<Vec<ExtraKey>>,
    /// The session that caused the store.
    pub session: Option<String>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("parent", &self.parent)
            .field("block_size", &self.block_size)
            .field("tokens", &self.tokens)
            .field("blocks", &self.blocks)
            .field("partial", &self.partial)
            .field("bigram", &self.bigram)
            .field("place", &self.place)
            .field("lora", &self.lora)
            .field("salt", &self.salt.as_ref().map(|_| "***"))
            .field("extra", &self.extra)
            .finish_non_exhaustive()
    }
}

/// Blocks that left a tier, one copy each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The blocks.
    pub hashes: Vec<BlockHash>,
    /// Where they were.
    pub place: Place,
}

/// What a clear reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every tier.
    All,
    /// These tiers.
    Tiers(Vec<Tier>),
}

impl Scope {
    /// Whether the clear reaches `tier`.
    pub fn contains(&self, tier: &Tier) -> bool {
        match self {
            Scope::All => true,
            Scope::Tiers(tiers) => tiers.contains(tier),
        }
    }
}

/// Who cleared. Only the engine's word proves that the cache is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearCause {
    /// The engine flushed its cache.
    Engine,
    /// A bridge dropped what it could not prove.
    Repair,
}

impl ClearCause {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ClearCause::Engine => "engine",
            ClearCause::Repair => "repair",
        }
    }

    /// The cause of that name. A word this version does not know proves nothing: a repair.
    pub fn from_name(name: &str) -> ClearCause {
        match name {
            "engine" => ClearCause::Engine,
            _ => ClearCause::Repair,
        }
    }
}

/// Everything in a scope is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// Which tiers.
    pub scope: Scope,
    /// Who says so.
    pub cause: ClearCause,
}

/// What the first hop lost: takes the place of exactly the missing seqs on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Why, e.g. `permanent_hole`.
    pub cause: String,
    /// The bridge's trust after it.
    pub trust: Trust,
    /// Name of the snapshot object that brings the view back; absent = clear.
    pub snapshot: Option<String>,
}

/// A block changed its tier in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The block.
    pub hash: BlockHash,
    /// Where it was.
    pub from: Tier,
    /// Where it is now.
    pub to: Tier,
}

/// From here on a bridge believes this much of the replica, no more and no less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustChange {
    /// What it believes now.
    pub trust: Trust,
    /// Why it is no better, or `contiguous`.
    pub reason: String,
    /// Which bridge speaks: another one may believe more.
    pub bridge: String,
}
