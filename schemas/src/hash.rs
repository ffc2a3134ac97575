//! Engine block hashes, kept whole, and the digest of a batch.

use std::fmt;

/// Longest block hash accepted, in bytes. vLLM concatenates k 32-byte hashes in one release range
/// (k = group block / hash block); 64 of them is beyond any block size ratio seen.
pub const HASH_BYTES_MAX: usize = 2048;

/// An engine's identity of a block: its full bytes. An integer hash is its 8 bytes, big-endian.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(Repr);

// 32 bytes inline: the common forms (8, 16, 32) cost no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Inline { len: u8, bytes: [u8; 32] },
    Heap(Box<[u8]>),
}

impl BlockHash {
    /// The hash an engine sent as an integer.
    pub fn from_u64(value: u64) -> BlockHash {
        let mut bytes = [0; 32];
        if let Some(head) = bytes.first_chunk_mut::<8>() {
            *head = value.to_be_bytes();
        }
        BlockHash(Repr::Inline { len: 8, bytes })
    }

    /// The hash an engine sent as bytes.
    pub fn from_bytes(source: &[u8]) -> Result<BlockHash, BlockHashError> {
        if source.is_empty() || source.len() > HASH_BYTES_MAX {
            return Err(BlockHashError { len: source.len() });
        }
        let mut bytes = [0; 32];
        Ok(match (bytes.get_mut(..source.len()), u8::try_from(source.len())) {
            (Some(head), Ok(len)) => {
                head.copy_from_slice(source);
                BlockHash(Repr::Inline { len, bytes })
            }
            _ => BlockHash(Repr::Heap(Box::from(source))),
        })
    }

    /// All bytes, as the engine sent them.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A block hash of a length that no engine uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block hash has {len} bytes, expected 1 to {HASH_BYTES_MAX}")]
pub struct BlockHashError {
    /// How many bytes came.
    pub len: usize,
}

/// Which 64 bits of a longer hash an engine shows when it sends an integer instead.
///
/// The view compares by these bits, so an integer and the bytes it was cut from are one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// vLLM: the last 8 bytes, big-endian.
    Last8,
    /// SGLang and TensorRT-LLM's SHA-256: the first 8 bytes, big-endian.
    First8,
}

impl Projection {
    /// The 64 bits of `hash`; a hash under 8 bytes is read as one big-endian number.
    pub fn apply(self, hash: &BlockHash) -> u64 {
        let bytes = hash.as_bytes();
        let part = match self {
            Projection::Last8 => bytes.last_chunk::<8>(),
            Projection::First8 => bytes.first_chunk::<8>(),
        };
        part.map_or_else(
            || bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            |eight| u64::from_be_bytes(*eight),
        )
    }
}

/// How the engine computes its block hashes, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashScheme {
    /// Nothing on the wire tells.
    Unknown,
    /// A named scheme, e.g. `vllm.sha256_cbor`, `trtllm.v1_block_key`, `sglang.sha256`.
    Named(String),
}

impl HashScheme {
    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            HashScheme::Unknown => "unknown",
            HashScheme::Named(name) => name,
        }
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> HashScheme {
        match name {
            "unknown" => HashScheme::Unknown,
            other => HashScheme::Named(other.to_owned()),
        }
    }
}

/// XXH3-128 of an engine payload: tells whether two batches under one seq are the same batch.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
