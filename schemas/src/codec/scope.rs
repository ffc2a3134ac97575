//! How far a clear reaches: a word or a list.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::{
    CodecError, TIERS_MAX,
    wire::{List, Put, Show, Wire},
};
use crate::{Scope, Tier};

struct ScopeVisitor;

impl<'de> Visitor<'de> for ScopeVisitor {
    type Value = Result<Scope, CodecError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`all` or a list of tiers")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
        // Not an open word: whoever does not know how far a clear reaches cannot apply it.
        match word {
            "all" => Ok(Ok(Scope::All)),
            _ => Err(E::custom("unknown scope")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        let tiers = List::<Tier, TIERS_MAX>::deserialize(SeqAccessDeserializer::new(seq))?;
        Ok(tiers.take("scope").map(Scope::Tiers))
    }
}

impl Wire for Scope {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        from.deserialize_any(ScopeVisitor)
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Scope::All => to.serialize_str("all"),
            Scope::Tiers(tiers) => Put(tiers.as_slice(), show).serialize(to),
        }
    }
}
