//! The golden cases: one value per file pair in `golden/v1/`.
#![allow(dead_code, reason = "each test binary uses its part")]

mod values;

use std::path::PathBuf;

use kvbridge_schemas::{
    Envelope, SnapshotHeader, SnapshotRecord, Status,
    codec::{self, CodecError},
};
pub(crate) use values::all;

/// A message of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnyMessage {
    Envelope(Envelope),
    Header(SnapshotHeader),
    Record(SnapshotRecord),
    Chunk(Vec<SnapshotRecord>),
    Status(Status),
}

macro_rules! each {
    ($any:expr, $message:ident => $use:expr) => {
        match $any {
            AnyMessage::Envelope($message) => $use,
            AnyMessage::Header($message) => $use,
            AnyMessage::Record($message) => $use,
            AnyMessage::Chunk($message) => $use,
            AnyMessage::Status($message) => $use,
        }
    };
}

macro_rules! same_kind {
    ($any:expr, $read:expr) => {
        Ok(match $any {
            AnyMessage::Envelope(_) => AnyMessage::Envelope($read?),
            AnyMessage::Header(_) => AnyMessage::Header($read?),
            AnyMessage::Record(_) => AnyMessage::Record($read?),
            AnyMessage::Chunk(_) => AnyMessage::Chunk($read?),
            AnyMessage::Status(_) => AnyMessage::Status($read?),
        })
    };
}

impl AnyMessage {
    pub(crate) fn msgpack(&self) -> Vec<u8> {
        each!(self, message => codec::encode_msgpack(message))
    }

    pub(crate) fn json_file(&self) -> String {
        let mut text = each!(self, message => codec::to_json_pretty(message));
        text.push('\n');
        text
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        each!(self, message => codec::to_json(message))
    }

    pub(crate) fn json_string(&self) -> String {
        each!(self, message => codec::to_json_string(message))
    }

    /// Reads `payload` as a message of this kind.
    pub(crate) fn decode_msgpack(&self, payload: &[u8]) -> Result<AnyMessage, CodecError> {
        same_kind!(self, codec::decode_msgpack(payload))
    }

    pub(crate) fn decode_json(&self, value: &serde_json::Value) -> Result<AnyMessage, CodecError> {
        same_kind!(self, codec::from_json(value))
    }

    pub(crate) fn decode_json_str(&self, text: &str) -> Result<AnyMessage, CodecError> {
        same_kind!(self, codec::from_json_str(text))
    }

    /// Its name among the definitions of the JSON schema.
    pub(crate) fn definition(&self) -> &'static str {
        match self {
            AnyMessage::Envelope(_) => "envelope",
            AnyMessage::Header(_) => "snapshot_header",
            AnyMessage::Record(_) => "snapshot_record",
            AnyMessage::Chunk(_) => "snapshot_chunk",
            AnyMessage::Status(_) => "status",
        }
    }
}

/// One golden case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) message: AnyMessage,
}

pub(crate) fn golden_folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "golden", "v1"].iter().collect()
}
