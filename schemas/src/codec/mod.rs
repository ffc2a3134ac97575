//! The bytes of the contract: msgpack with named fields (the bus) and JSON (people, HTTP).
//!
//! This is the only serde of the envelope. The form of every field is in `envelope.v1.schema.json`,
//! one example of each case in `golden/v1/`.
//!
//! - JSON writes hashes as lower-case hex; msgpack writes them as bin, and 64-bit ones as uint64.
//! - An absent optional is a missing key. The one null is `parent`: null is the root, a missing key
//!   means that the event does not tell. Readers take a null elsewhere for a missing key.
//! - Readers ignore unknown fields and keep unknown words; another major version is refused by
//!   name.
//! - Readers take memory only for what they have counted, up to the limits below, and no error
//!   shows a value of the message.

#[cfg(test)]
#[path = "../../tests/arbitrary/mod.rs"]
#[allow(dead_code, reason = "messages without a direct form are tested elsewhere")]
mod arbitrary;
mod direct;
mod envelope;
mod error;
mod event;
#[cfg(test)]
mod fields;
mod leaf;
mod limits;
mod scope;
mod snapshot;
mod state;
mod wire;

use std::io::Cursor;

use serde::{Deserialize, Deserializer, de::IgnoredAny};

use self::wire::{Named, Show, Wire};
use crate::{Envelope, SCHEMA_VERSION, SnapshotHeader, SnapshotRecord, Status};

pub use error::{CodecError, Fault, Position};
pub use limits::{
    DEPTH_MAX, DIGESTS_MAX, EVENTS_MAX, EXTRA_KEYS_MAX, HASHES_MAX, ITEMS_MAX, JSON_BYTES_MAX,
    LIVES_MAX, PAYLOAD_BYTES_MAX, RECORDS_MAX, TIERS_MAX, TOKENS_MAX,
};

/// What can be a message of its own: an envelope, a snapshot's header, record or chunk of records,
/// a status.
pub trait Message: Wire {}

impl Message for Envelope {}
impl Message for SnapshotHeader {}
impl Message for SnapshotRecord {}
impl Message for Vec<SnapshotRecord> {}
impl Message for Status {}

// === msgpack ===

/// Writes `message` as msgpack with named fields.
pub fn encode_msgpack<M: Message>(message: &M) -> Vec<u8> {
    direct::encode(message)
}

/// Reads one msgpack message. Bytes after it are an error.
pub fn decode_msgpack<M: Message>(payload: &[u8]) -> Result<M, CodecError> {
    check_size(payload.len(), PAYLOAD_BYTES_MAX)?;
    match M::read_direct(payload) {
        Some(message) => {
            debug_assert!(direct::same(&message, payload), "both readers read the same message");
            Ok(message)
        }
        None => serde_msgpack(payload),
    }
}

fn serde_msgpack<M: Wire>(payload: &[u8]) -> Result<M, CodecError> {
    let mut from = rmp_serde::Deserializer::from_read_ref(payload);
    from.set_max_depth(DEPTH_MAX);
    match M::read(&mut from) {
        Ok(Ok(message)) => match IgnoredAny::deserialize(&mut from) {
            Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(message),
            _ => Err(malformed_msgpack::<M>(payload, Fault::Trailing)),
        },
        Ok(Err(error)) => Err(error),
        Err(error) => Err(other_version(|| msgpack_version(payload))
            .unwrap_or_else(|| malformed_msgpack::<M>(payload, error::msgpack_fault(&error)))),
    }
}

/// Finds where reading stopped. The fast reader cannot tell, so a bad message is read twice.
fn malformed_msgpack<M: Wire>(payload: &[u8], fault: Fault) -> CodecError {
    let mut from = rmp_serde::Deserializer::new(Cursor::new(payload));
    from.set_max_depth(DEPTH_MAX);
    // Only the position is wanted; the message was already refused.
    drop(M::read(&mut from));
    CodecError::Malformed { at: Position::Byte(from.position()), fault }
}

fn msgpack_version(payload: &[u8]) -> Option<u64> {
    let mut from = rmp_serde::Deserializer::from_read_ref(payload);
    from.set_max_depth(DEPTH_MAX);
    version(&mut from)
}

// === JSON ===

/// The message as a JSON value.
pub fn to_json<M: Message>(message: &M) -> serde_json::Value {
    json_value(message, Show::All)
}

/// The message as a JSON value for people who may not see prompts: token ids are
/// `{"count":n}`; salt, extra keys and session are hidden. Block and content hashes stay, because
/// they name the blocks; whoever already knows a prompt can recognise it by them.
pub fn to_json_redacted<M: Message>(message: &M) -> serde_json::Value {
    json_value(message, Show::Redacted)
}

fn json_value<M: Message>(message: &M, show: Show) -> serde_json::Value {
    message.write(show, serde_json::value::Serializer).expect("every key of a message is a string")
}

/// The message as JSON in one line, fields in the order of the schema.
pub fn to_json_string<M: Message>(message: &M) -> String {
    let mut bytes = Vec::with_capacity(512);
    json_text(message, &mut serde_json::Serializer::new(&mut bytes));
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

/// As [`to_json_redacted`], in one line, fields in the order of the schema.
pub fn to_json_redacted_string<M: Message>(message: &M) -> String {
    let mut bytes = Vec::with_capacity(512);
    let mut to = serde_json::Serializer::new(&mut bytes);
    message.write(Show::Redacted, &mut to).expect("memory takes any message");
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

/// The message as JSON with one field a line, in the order of the schema.
pub fn to_json_pretty<M: Message>(message: &M) -> String {
    let mut bytes = Vec::with_capacity(1024);
    json_text(message, &mut serde_json::Serializer::pretty(&mut bytes));
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

fn json_text<M, F>(message: &M, to: &mut serde_json::Serializer<&mut Vec<u8>, F>)
where
    M: Message,
    F: serde_json::ser::Formatter,
{
    message.write(Show::All, to).expect("memory takes any message");
}

/// Reads a message from a JSON value.
pub fn from_json<M: Message>(value: &serde_json::Value) -> Result<M, CodecError> {
    M::read(value).unwrap_or_else(|error| {
        let other = other_version(|| version(value));
        Err(other.unwrap_or_else(|| error::json_malformed(&error)))
    })
}

/// Reads a message from a JSON text. Text after it is an error.
pub fn from_json_str<M: Message>(text: &str) -> Result<M, CodecError> {
    check_size(text.len(), JSON_BYTES_MAX)?;
    let mut from = serde_json::Deserializer::from_str(text);
    let message = M::read(&mut from).unwrap_or_else(|error| {
        let other = other_version(|| version(&mut serde_json::Deserializer::from_str(text)));
        Err(other.unwrap_or_else(|| error::json_malformed(&error)))
    })?;
    from.end().map_err(|error| match error::json_malformed(&error) {
        CodecError::Malformed { at, .. } => CodecError::Malformed { at, fault: Fault::Trailing },
        other => other,
    })?;
    Ok(message)
}

// === shared ===

fn check_size(found: usize, max: usize) -> Result<(), CodecError> {
    if found > max { Err(CodecError::TooLarge { found, max }) } else { Ok(()) }
}

/// A message of another major version may differ in anything, so reading it as ours can fail before
/// its `v` is reached. Then the version is the answer, not the field that happened to differ.
fn other_version(probe: impl FnOnce() -> Option<u64>) -> Option<CodecError> {
    let found = probe().filter(|found| *found != u64::from(SCHEMA_VERSION))?;
    Some(CodecError::Version { found })
}

fn version<'de, D: Deserializer<'de>>(from: D) -> Option<u64> {
    #[derive(Deserialize)]
    struct VersionIn {
        v: Option<u64>,
    }
    Named::<VersionIn>::deserialize(from).ok()?.0.v
}
