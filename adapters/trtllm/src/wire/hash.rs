//! A block hash: an unsigned number, a signed one of a foreign producer, or hex digits.

use std::fmt;

use kvbridge_schemas::BlockHash;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::limits::HASHES_PER_EVENT_MAX;

/// A hash as it was sent, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) BlockHash);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        deserializer.deserialize_any(HashVisitor)
    }
}

struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = Hash;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block hash")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Hash, E> {
        Ok(Hash(BlockHash::from_u64(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Hash, E> {
        Ok(Hash(BlockHash::from_u64(value.cast_unsigned())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Hash, E> {
        let bytes = unhex(text).ok_or_else(|| E::custom("no hex digits"))?;
        BlockHash::from_bytes(&bytes).map(Hash).map_err(|_| E::custom("length"))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || text.len() > 2 * kvbridge_schemas::HASH_BYTES_MAX {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// Hashes, up to the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashes(pub(crate) Vec<BlockHash>);

impl<'de> Deserialize<'de> for Hashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hashes, D::Error> {
        deserializer.deserialize_seq(HashesVisitor)
    }
}

struct HashesVisitor;

impl<'de> Visitor<'de> for HashesVisitor {
    type Value = Hashes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("block hashes")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Hashes, A::Error> {
        let mut hashes = Vec::new();
        while let Some(Hash(hash)) = seq.next_element()? {
            if hashes.len() >= HASHES_PER_EVENT_MAX {
                return Err(A::Error::custom("too many"));
            }
            hashes.push(hash);
        }
        Ok(Hashes(hashes))
    }
}
