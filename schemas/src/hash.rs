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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hash(len: usize) -> BlockHash {
        let bytes: Vec<u8> = (1..=u8::MAX).cycle().take(len).collect();
        BlockHash::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn bytes_come_back_whole_at_every_length() {
        for len in [1, 8, 16, 31, 32, 33, 64, 255, 256, HASH_BYTES_MAX] {
            assert_eq!(hash(len).as_bytes().len(), len);
            assert_eq!(BlockHash::from_bytes(hash(len).as_bytes()), Ok(hash(len)));
        }
        assert_eq!(BlockHash::from_bytes(&[]), Err(BlockHashError { len: 0 }));
        let long = vec![0; HASH_BYTES_MAX + 1];
        assert_eq!(BlockHash::from_bytes(&long), Err(BlockHashError { len: HASH_BYTES_MAX + 1 }));
    }

    #[test]
    fn an_integer_is_its_eight_bytes() {
        let value = 0x0102_0304_0506_0708;
        assert_eq!(
            BlockHash::from_u64(value),
            BlockHash::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap()
        );
        assert_eq!(format!("{:?}", BlockHash::from_u64(value)), "0102030405060708");
    }

    #[test]
    fn length_tells_hashes_apart() {
        // Zero bytes at the end are part of a hash, although the short form stores them anyway.
        let zeros: BTreeSet<BlockHash> =
            (1..=40).map(|len| BlockHash::from_bytes(&vec![0; len]).unwrap()).collect();
        assert_eq!(zeros.len(), 40);
    }

    #[test]
    fn projection_takes_the_bits_that_an_integer_shows() {
        let long = hash(32);
        assert_eq!(Projection::First8.apply(&long), 0x0102_0304_0506_0708);
        assert_eq!(Projection::Last8.apply(&long), 0x191a_1b1c_1d1e_1f20);
        for projection in [Projection::First8, Projection::Last8] {
            assert_eq!(projection.apply(&BlockHash::from_u64(77)), 77);
            assert_eq!(projection.apply(&BlockHash::from_bytes(&[1, 0]).unwrap()), 256);
        }
    }

    #[test]
    fn scheme_names_come_back() {
        for name in ["unknown", "vllm.sha256_cbor", "later"] {
            assert_eq!(HashScheme::from_name(name).as_str(), name);
        }
        assert_eq!(HashScheme::from_name("unknown"), HashScheme::Unknown);
    }
}
