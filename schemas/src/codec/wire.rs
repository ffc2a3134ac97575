//! How one type meets serde: read with named faults, written with or without secrets.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::CodecError;

/// What a writer may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Everything: the contract.
    All,
    /// Token ids as a count; salt, extra keys and session hidden.
    Redacted,
}

/// What stands where a secret was.
pub(super) const HIDDEN: &str = "***";

/// A type that the codec can read and write.
pub trait Wire: Sized {
    /// Reads one value. The outer error is about its form (its text is never shown), the inner one
    /// is ours, with a name.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error>;

    /// Writes the value.
    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error>;

    /// Reads a whole message without serde, or gives up; see `direct`.
    fn read_direct(_payload: &[u8]) -> Option<Self> {
        None
    }

    /// Writes a whole message without serde, where that is worth it.
    fn write_direct(&self) -> Option<Vec<u8>> {
        None
    }

    /// How many items the value holds, for the limit on an envelope as a whole.
    fn weight(&self) -> usize {
        1
    }
}

/// A value on its way in.
pub(super) struct Got<T>(pub(super) Result<T, CodecError>);

impl<'de, T: Wire> Deserialize<'de> for Got<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Got)
    }
}

/// The value of an optional field.
pub(super) fn opt<T>(value: Option<Got<T>>) -> Result<Option<T>, CodecError> {
    value.map(|got| got.0).transpose()
}

/// A value on its way out.
pub(super) struct Put<'a, T: ?Sized>(pub(super) &'a T, pub(super) Show);

impl<T: Wire> Serialize for Put<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(self.1, to)
    }
}

impl<T: Wire> Serialize for Put<'_, [T]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|item| Put(item, self.1)))
    }
}

/// A list of at most `MAX` items that weigh at most `WEIGHT`.
pub(super) struct List<T, const MAX: usize, const WEIGHT: usize = { usize::MAX }>(
    Result<Vec<T>, ListFault>,
);

enum ListFault {
    TooMany(usize),
    TooHeavy(usize),
    Item(CodecError),
}

impl<T, const MAX: usize, const WEIGHT: usize> List<T, MAX, WEIGHT> {
    /// The items, or what is wrong with the list named `field`.
    pub(super) fn take(self, field: &'static str) -> Result<Vec<T>, CodecError> {
        self.0.map_err(|fault| match fault {
            ListFault::TooMany(found) => CodecError::TooMany { field, found, max: MAX },
            ListFault::TooHeavy(found) => CodecError::TooMany { field, found, max: WEIGHT },
            ListFault::Item(error) => error,
        })
    }
}

impl<'de, T: Wire, const MAX: usize, const WEIGHT: usize> Deserialize<'de>
    for List<T, MAX, WEIGHT>
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListVisitor::<T, MAX, WEIGHT>(PhantomData))
    }
}

struct ListVisitor<T, const MAX: usize, const WEIGHT: usize>(PhantomData<T>);

impl<'de, T: Wire, const MAX: usize, const WEIGHT: usize> Visitor<'de>
    for ListVisitor<T, MAX, WEIGHT>
{
    type Value = List<T, MAX, WEIGHT>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let announced = seq.size_hint().unwrap_or(0);
        // The announced length is the sender's claim: never reserve more than 64 KiB on its word.
        let reserve = announced.min(MAX).min(64 * 1024 / size_of::<T>().max(1));
        let mut items = Vec::with_capacity(reserve);
        let mut weight = 0_usize;
        let mut fault = None;
        while fault.is_none() && items.len() < MAX {
            let Some(Got(item)) = seq.next_element::<Got<T>>()? else {
                return Ok(List(Ok(items)));
            };
            match item {
                Ok(item) => {
                    weight = weight.saturating_add(item.weight());
                    items.push(item);
                    if weight > WEIGHT {
                        fault = Some(ListFault::TooHeavy(weight));
                    }
                }
                Err(error) => fault = Some(ListFault::Item(error)),
            }
        }
        // The rest is skipped, not kept: the caller may still have to find the version in it.
        let mut found = items.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        Ok(List(match fault {
            Some(fault) => Err(fault),
            None if found > MAX => Err(ListFault::TooMany(found)),
            None => Ok(items),
        }))
    }
}

/// A structure that came as a map. Serde would also take a list of its fields in their order of
/// declaration; the contract has names only.
pub(super) struct Named<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Named)
    }
}
