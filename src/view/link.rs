//! What prefix matching needs of a block: which block comes before it, and what it holds.

use std::{fmt, sync::Arc};

use kvbridge_schemas::{CONTENT_SEED, ExtraKey, Tier, Tokens};
use xxhash_rust::xxh3;

/// A block at one block size. Hybrid engines use one hash at two sizes (a 64-token block ends where
/// the fourth 16-token block ends), so the hash alone does not name a place in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The 64-bit projection of the block's hash.
    pub key: u64,
    /// Tokens per block.
    pub block_size: u32,
}

/// What comes before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkParent {
    /// Nothing: the block starts a sequence in the namespace of that hash (see [`namespace`]).
    /// Children inherit the namespace through their parents.
    Root(u64),
    /// The block at that node. It need not be resident.
    Block(NodeId),
}

/// One change that prefix matching sees.
///
/// Exactly balanced: for every (node, tier) `Linked` and `Unlinked` alternate, beginning with
/// `Linked`; `Cleared` takes the place of all outstanding `Unlinked`. What is said of a strip is
/// said of each of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// The first usable copy in `tier` is there and the block's place in its sequence is known.
    Linked {
        /// Which block.
        node: NodeId,
        /// What comes before it.
        parent: LinkParent,
        /// What it holds: the content hash, with extra keys mixed in where there are any.
        content: u64,
        /// Its content was hashed over `block_size + 1` tokens (EAGLE pairs).
        bigram: bool,
        /// Where.
        tier: Tier,
    },
    /// The last usable copy in `tier` went.
    Unlinked {
        /// Which block.
        node: NodeId,
        /// Where.
        tier: Tier,
    },
    /// The same of blocks that the view has in one strip.
    Strip {
        /// Which one: the view gives the number anew once the strip is cut to nothing.
        number: u32,
        /// What became of it.
        change: StripChange,
    },
    /// Everything is gone.
    Cleared,
}

/// The most blocks of a strip: as many as a number of 64 bits can tell apart.
pub const STRIP_BLOCKS_MAX: usize = 64;

/// What comes before a strip: [`LinkParent`], or a block of another strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripParent {
    /// Nothing: it starts a sequence in the namespace of that hash.
    Root(u64),
    /// A block that is in no strip.
    Block(NodeId),
    /// The block of that number in that strip.
    Strip {
        /// The strip's number.
        number: u32,
        /// The block's.
        at: u8,
    },
}

/// One change of a strip: of blocks that follow one another, all of one size, in one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripChange {
    /// More blocks at its end. From 0 on it is a new one.
    Grown {
        /// The number of the first new block.
        from: u8,
        /// What comes before the strip.
        parent: StripParent,
        /// Key and content of each new block; the first follows the last that was there.
        blocks: Vec<(u64, u64)>,
        /// Tokens per block.
        block_size: u32,
        /// As in [`Delta::Linked`].
        bigram: bool,
        /// Where.
        tier: Tier,
    },
    /// Some of its blocks, a bit each, are there again.
    Refilled {
        /// Which.
        bits: u64,
    },
    /// Some of its blocks, a bit each, went. Those that others follow keep their numbers.
    Thinned {
        /// Which.
        bits: u64,
        /// How many numbers are left, of blocks that are there or that others follow.
        left: u8,
    },
    /// From now on each of its blocks is told by itself. What follows them is told as before.
    Parted,
}

/// The hash of what keeps sequences of equal tokens apart: LoRA adapter and cache salt.
///
/// An empty text is no text: engines treat it so, and a router that sends `""` means none.
pub fn namespace(lora: Option<&str>, salt: Option<&str>) -> u64 {
    let mut bytes = Vec::new();
    for (tag, text) in [(b'l', lora), (b's', salt)] {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            put(&mut bytes, tag, text.as_bytes());
        }
    }
    xxh3::xxh3_64_with_seed(&bytes, CONTENT_SEED)
}

/// What a store told of one block and prefix matching does not need. Shared by everybody who feeds
/// a router with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Described {
    /// The block's own token ids.
    pub tokens: Tokens,
    /// The LoRA adapter's name.
    pub lora: Option<Arc<str>>,
    /// Its process-local number.
    pub lora_id: Option<i64>,
    /// The cache salt of the sequence, where it can be told apart.
    pub salt: Option<Arc<str>>,
    /// The block's extra hash keys, as the engine sent them: the adapter's name and the salt may be
    /// among them.
    pub extra: Vec<ExtraKey>,
}

impl fmt::Debug for Described {
    // Tokens are prompts, and a salt is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Described({} tokens)", self.tokens.0.len())
    }
}

/// A block's place in a sequence, as a store told it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) parent: LinkParent,
    /// XXH3-64 of the tokens alone.
    pub(super) content: u64,
    /// Hash of the extra keys that are neither adapter nor salt.
    pub(super) extra: Option<u64>,
    pub(super) bigram: bool,
    /// Kept for the snapshot; matching uses the root's namespace hash.
    pub(super) lora: Option<Arc<str>>,
    pub(super) salt: Option<Arc<str>>,
    /// Waits for its parent.
    pub(super) parked: bool,
    /// For other routers, where that is kept.
    pub(super) described: Option<Arc<Described>>,
}

impl Link {
    /// Whether both put the block at the same place with the same content.
    pub(super) fn same_place(&self, other: &Link) -> bool {
        (self.parent, self.content, self.extra, self.bigram)
            == (other.parent, other.content, other.extra, other.bigram)
    }

    /// What a query's hash is compared with. A plain token query never equals a block that an
    /// image, a digest or an unexplained text went into.
    pub(super) fn match_content(&self) -> u64 {
        self.extra.map_or(self.content, |extra| {
            let mut bytes = [0; 16];
            let (head, tail) = bytes.split_at_mut(8);
            head.copy_from_slice(&self.content.to_le_bytes());
            tail.copy_from_slice(&extra.to_le_bytes());
            xxh3::xxh3_64_with_seed(&bytes, CONTENT_SEED)
        })
    }

    /// The delta that shows this link in `tier`.
    pub(super) fn linked(&self, node: NodeId, tier: Tier) -> Delta {
        let content = self.match_content();
        Delta::Linked { node, parent: self.parent, content, bigram: self.bigram, tier }
    }
}

/// XXH3-64 over the extra keys that are neither the adapter's name nor the salt; `None` = none
/// left.
///
/// Engines send both untagged, so each explains one text and no more: what remains is kept apart,
/// because a text we cannot name may be a media id.
pub(super) fn extra_hash(keys: &[ExtraKey], lora: Option<&str>, salt: Option<&str>) -> Option<u64> {
    let mut explained = [lora, salt];
    let mut bytes = Vec::new();
    for key in keys {
        match key {
            ExtraKey::Text(text) => {
                let known = explained.iter_mut().find(|known| **known == Some(text.as_str()));
                match known {
                    Some(known) => *known = None,
                    None => put(&mut bytes, b't', text.as_bytes()),
                }
            }
            ExtraKey::Item { id, offset } => {
                put(&mut bytes, b'i', id.as_bytes());
                bytes.extend(offset.to_le_bytes());
            }
            ExtraKey::Bytes(digest) => put(&mut bytes, b'b', digest),
        }
    }
    (!bytes.is_empty()).then(|| xxh3::xxh3_64_with_seed(&bytes, CONTENT_SEED))
}

// Tag and length first: no two lists share their bytes.
fn put(bytes: &mut Vec<u8>, tag: u8, part: &[u8]) {
    bytes.push(tag);
    bytes.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
    bytes.extend(part);
}
