//! Whether the JSON schema and the codec know the same fields. Here and not among the integration
//! tests, because the structures that name the fields are the codec's own.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Deserializer, de::Visitor, forward_to_deserialize_any};
use serde_json::Value;

use super::{envelope, event, leaf, snapshot, state};

/// A deserializer that reads nothing: it fails with the fields that a structure asks for.
struct Ask;

#[derive(Debug)]
struct Asked(&'static [&'static str]);

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Asked {}

impl serde::de::Error for Asked {
    fn custom<T: fmt::Display>(message: T) -> Self {
        panic!("not a structure: {message}")
    }
}

impl<'de> Deserializer<'de> for Ask {
    type Error = Asked;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Asked> {
        Err(Asked(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

pub(super) fn codec_fields<T: Deserialize<'static>>() -> BTreeSet<String> {
    match T::deserialize(Ask) {
        Ok(_) => BTreeSet::new(),
        Err(Asked(fields)) => fields.iter().map(|field| (*field).to_owned()).collect(),
    }
}

/// Fields of the definitions `names` of the schema, together.
fn schema_fields(names: &[&str]) -> BTreeSet<String> {
    let schema: Value =
        serde_json::from_str(include_str!("../../envelope.v1.schema.json")).expect("valid JSON");
    let fields = |name: &&str| match &schema["$defs"][*name]["properties"] {
        Value::Object(properties) => properties.keys().cloned().collect::<Vec<_>>(),
        _ => panic!("no properties in $defs/{name}"),
    };
    names.iter().flat_map(fields).collect()
}

#[test]
fn schema_and_codec_know_the_same_fields() {
    let events = ["stored", "removed", "cleared", "reset", "moved", "trust_change"];
    assert_eq!(schema_fields(&events), codec_fields::<event::EventIn>());
    assert_eq!(schema_fields(&["block"]), codec_fields::<event::BlockIn>());
    assert_eq!(schema_fields(&["envelope"]), codec_fields::<envelope::EnvelopeIn>());
    assert_eq!(schema_fields(&["replica"]), codec_fields::<envelope::ReplicaIn>());
    assert_eq!(schema_fields(&["engine"]), codec_fields::<envelope::EngineIn>());
    assert_eq!(schema_fields(&["hash_info"]), codec_fields::<envelope::HashIn>());
    assert_eq!(schema_fields(&["group"]), codec_fields::<leaf::GroupIn>());
    assert_eq!(schema_fields(&["other_tier"]), codec_fields::<leaf::OtherTierIn>());
    assert_eq!(schema_fields(&["extra_bytes"]), codec_fields::<leaf::ExtraBytesIn>());
    assert_eq!(schema_fields(&["snapshot_header"]), codec_fields::<snapshot::HeaderIn>());
    assert_eq!(schema_fields(&["snapshot_state"]), codec_fields::<state::StateIn>());
    assert_eq!(schema_fields(&["batch_digest"]), codec_fields::<state::BatchDigestIn>());
    assert_eq!(schema_fields(&["snapshot_record"]), codec_fields::<snapshot::RecordIn>());
    assert_eq!(schema_fields(&["status"]), codec_fields::<snapshot::StatusIn>());
}
