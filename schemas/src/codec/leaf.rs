//! The small values: hashes, names, places, extra keys.

use std::{fmt, fmt::Write as _, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap as _,
};

use super::{
    CodecError, EXTRA_KEYS_MAX,
    error::need,
    wire::{Got, HIDDEN, List, Named, Put, Show, Wire, opt},
};
use crate::{
    BlockHash, ClearCause, Digest, EngineKind, ExtraKey, Group, GroupKind, HashScheme, Parent,
    Tier, Trust,
};

// === bytes: lower-case hex in JSON, bin in msgpack ===

/// A value that is bytes.
trait Octets: Sized {
    const NAME: &'static str;
    fn from_octets(bytes: &[u8]) -> Result<Self, CodecError>;
}

impl Octets for BlockHash {
    const NAME: &'static str = "block hash";

    fn from_octets(bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(BlockHash::from_bytes(bytes)?)
    }
}

impl Octets for Digest {
    const NAME: &'static str = "digest";

    fn from_octets(bytes: &[u8]) -> Result<Self, CodecError> {
        fixed(bytes, Self::NAME).map(Digest)
    }
}

impl Octets for Vec<u8> {
    const NAME: &'static str = "extra key";

    fn from_octets(bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(bytes.to_vec())
    }
}

fn fixed<const N: usize>(bytes: &[u8], of: &'static str) -> Result<[u8; N], CodecError> {
    bytes.try_into().map_err(|_| CodecError::Length { of, found: bytes.len(), expected: N })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a String cannot fail");
        hex
    })
}

fn from_hex(text: &str, of: &'static str) -> Result<Vec<u8>, CodecError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return Err(CodecError::Hex { of });
    };
    let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    pairs.iter().map(byte).collect::<Option<_>>().ok_or(CodecError::Hex { of })
}

struct OctetsVisitor<T>(PhantomData<T>);

impl<T: Octets> Visitor<'_> for OctetsVisitor<T> {
    type Value = Result<T, CodecError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(T::from_octets(bytes))
    }
}

struct HexVisitor<T>(PhantomData<T>);

impl<T: Octets> Visitor<'_> for HexVisitor<T> {
    type Value = Result<T, CodecError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::NAME)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(from_hex(text, T::NAME).and_then(|bytes| T::from_octets(&bytes)))
    }
}

fn read_octets<'de, T: Octets, D: Deserializer<'de>>(
    from: D,
) -> Result<Result<T, CodecError>, D::Error> {
    if from.is_human_readable() {
        from.deserialize_str(HexVisitor(PhantomData))
    } else {
        from.deserialize_bytes(OctetsVisitor(PhantomData))
    }
}

fn write_octets<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        to.serialize_str(&to_hex(bytes))
    } else {
        to.serialize_bytes(bytes)
    }
}

impl Wire for BlockHash {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        read_octets(from)
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        write_octets(self.as_bytes(), to)
    }
}

impl Wire for Digest {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        read_octets(from)
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        write_octets(&self.0, to)
    }
}

/// A 64-bit hash: uint64 in msgpack, 16 hex digits in JSON (many readers of JSON round numbers
/// beyond 2^53).
pub(super) struct Hash64(pub(super) u64);

impl Octets for Hash64 {
    const NAME: &'static str = "64-bit hash";

    fn from_octets(bytes: &[u8]) -> Result<Self, CodecError> {
        fixed(bytes, Self::NAME).map(|bytes| Hash64(u64::from_be_bytes(bytes)))
    }
}

impl Wire for Hash64 {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        if from.is_human_readable() {
            read_octets(from)
        } else {
            u64::deserialize(from).map(|value| Ok(Hash64(value)))
        }
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(&format_args!("{:016x}", self.0))
        } else {
            to.serialize_u64(self.0)
        }
    }
}

impl Wire for Parent {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Ok(opt(Option::<Got<BlockHash>>::deserialize(from)?)
            .map(|hash| hash.map_or(Parent::Root, Parent::Block)))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        match self {
            // Unknown is a missing key; a writer asks `parent_is_unknown` first.
            Parent::Root | Parent::Unknown => to.serialize_none(),
            Parent::Block(hash) => hash.write(show, to),
        }
    }
}

/// Whether the key `parent` is left out.
pub(super) fn parent_is_unknown(parent: &Put<'_, Parent>) -> bool {
    *parent.0 == Parent::Unknown
}

/// What a missing key `parent` means.
pub(super) fn parent_unknown() -> Got<Parent> {
    Got(Ok(Parent::Unknown))
}

impl Wire for u32 {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        u32::deserialize(from).map(Ok)
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(*self)
    }
}

// === names: open enums, written as their word ===

struct WordVisitor<T>(fn(&str) -> T);

impl<T> Visitor<'_> for WordVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E>(self, word: &str) -> Result<T, E> {
        Ok((self.0)(word))
    }
}

macro_rules! words {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            fn read<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<Result<Self, CodecError>, D::Error> {
                from.deserialize_str(WordVisitor($name::from_name)).map(Ok)
            }

            fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }
    )*};
}

words!(Trust, EngineKind, GroupKind, HashScheme, ClearCause);

// === tier and group ===

#[derive(Deserialize)]
pub(super) struct OtherTierIn {
    other: Option<String>,
}

struct TierVisitor;

impl<'de> Visitor<'de> for TierVisitor {
    type Value = Result<Tier, CodecError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tier")
    }

    fn visit_str<E>(self, word: &str) -> Result<Self::Value, E> {
        Ok(Ok(Tier::from_name(word)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let tier = OtherTierIn::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(need(tier.other, "tier", "other").map(Tier::Other))
    }
}

impl Wire for Tier {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        from.deserialize_any(TierVisitor)
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Tier::Other(name) => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry("other", name)?;
                map.end()
            }
            known => to.serialize_str(known.as_str()),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct GroupIn {
    index: Option<u32>,
    kind: Option<Got<GroupKind>>,
    window: Option<u32>,
}

#[derive(Serialize)]
struct GroupOut<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Put<'a, GroupKind>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
}

impl Wire for Group {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(wire) = Named::<GroupIn>::deserialize(from)?;
        Ok(need(wire.index, "group", "index")
            .and_then(|index| Ok(Group { index, kind: opt(wire.kind)?, window: wire.window })))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        let kind = self.kind.as_ref().map(|kind| Put(kind, show));
        GroupOut { index: self.index, kind, window: self.window }.serialize(to)
    }
}

// === extra keys ===

#[derive(Deserialize)]
pub(super) struct ExtraBytesIn {
    bytes: Option<String>,
}

struct ExtraVisitor;

impl<'de> Visitor<'de> for ExtraVisitor {
    type Value = Result<ExtraKey, CodecError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an extra key")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Ok(ExtraKey::Text(text.to_owned())))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Ok(ExtraKey::Bytes(bytes.to_vec())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (Some(id), Some(offset)) = (seq.next_element()?, seq.next_element()?) else {
            return Err(A::Error::custom("an item is [id, offset]"));
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Ok(ExtraKey::Item { id, offset }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let key = ExtraBytesIn::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(need(key.bytes, "extra key", "bytes")
            .and_then(|hex| from_hex(&hex, Vec::<u8>::NAME).map(ExtraKey::Bytes)))
    }
}

impl Wire for ExtraKey {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        from.deserialize_any(ExtraVisitor)
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        match self {
            _ if show == Show::Redacted => to.serialize_str(HIDDEN),
            ExtraKey::Text(text) => to.serialize_str(text),
            ExtraKey::Item { id, offset } => (id, offset).serialize(to),
            ExtraKey::Bytes(bytes) if to.is_human_readable() => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry("bytes", &to_hex(bytes))?;
                map.end()
            }
            ExtraKey::Bytes(bytes) => to.serialize_bytes(bytes),
        }
    }
}

/// The extra keys of one block.
impl Wire for Vec<ExtraKey> {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Ok(List::<ExtraKey, EXTRA_KEYS_MAX>::deserialize(from)?.take("extra keys of a block"))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        Put(self.as_slice(), show).serialize(to)
    }

    fn weight(&self) -> usize {
        1 + self.len()
    }
}
