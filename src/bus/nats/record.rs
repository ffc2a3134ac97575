//! The registry's records as JSON: read by people with `nats kv get KVEPOCH <key>`.

use std::collections::BTreeMap;

use kvbridge_schemas::{Digest, Epoch, Seq};
use serde::{Deserialize, Serialize};

use crate::shared_log::lives::{ANCHORS_MAX, Life, PAST_LIVES_MAX, Record};

/// The form below. A record of another one is not understood, and nothing is published beside it.
const FORM: u64 = 1;

/// Longest record read: the lists below are short.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordFault {
    /// It is not one.
    #[error("the record is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It has a later form.
    #[error("the record has form {found}, this version reads {FORM}")]
    Form {
        /// Which.
        found: u64,
    },
    /// A digest is not one.
    #[error("a digest of the record is not 32 hex digits")]
    Digest,
    /// It is longer than any of ours.
    #[error("the record has {found} bytes, expected at most {RECORD_BYTES_MAX}")]
    Long {
        /// How long.
        found: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct RecordWire {
    v: u64,
    epoch: u64,
    anchors: Vec<(u64, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    published: u64,
    content: String,
    by: String,
    #[serde(default)]
    past: Vec<LifeWire>,
}

#[derive(Serialize, Deserialize)]
struct LifeWire {
    epoch: u64,
    anchors: Vec<(u64, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
}

#[derive(Deserialize)]
struct FormWire {
    v: u64,
}

pub(super) fn write(record: &Record) -> Vec<u8> {
    let past = record.past.iter().map(|life| LifeWire {
        epoch: life.epoch.0,
        anchors: anchors(life),
        incarnation: life.incarnation.clone(),
    });
    let wire = RecordWire {
        v: FORM,
        epoch: record.life.epoch.0,
        anchors: anchors(&record.life),
        incarnation: record.life.incarnation.clone(),
        published: record.published.0,
        content: record.content.clone(),
        by: record.by.clone(),
        past: past.collect(),
    };
    // Strings, numbers and lists: memory takes them.
    serde_json::to_vec(&wire).unwrap_or_default()
}

fn anchors(life: &Life) -> Vec<(u64, String)> {
    life.anchors.iter().map(|(seq, digest)| (seq.0, hex::encode(digest.0))).collect()
}

pub(super) fn read(bytes: &[u8]) -> Result<Record, RecordFault> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordFault::Long { found: bytes.len() });
    }
    let FormWire { v } = serde_json::from_slice(bytes)?;
    if v != FORM {
        return Err(RecordFault::Form { found: v });
    }
    let wire: RecordWire = serde_json::from_slice(bytes)?;
    let past = wire.past.into_iter().take(PAST_LIVES_MAX);
    Ok(Record {
        life: life(wire.epoch, wire.anchors, wire.incarnation)?,
        published: Seq(wire.published),
        past: past
            .map(|past| life(past.epoch, past.anchors, past.incarnation))
            .collect::<Result<_, _>>()?,
        content: wire.content,
        by: wire.by,
    })
}

fn life(
    epoch: u64,
    anchors: Vec<(u64, String)>,
    incarnation: Option<String>,
) -> Result<Life, RecordFault> {
    let anchors = anchors.into_iter().take(ANCHORS_MAX).map(|(seq, text)| {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| RecordFault::Digest)?;
        Ok((Seq(seq), Digest(bytes)))
    });
    let anchors = anchors.collect::<Result<BTreeMap<_, _>, RecordFault>>()?;
    Ok(Life { epoch: Epoch(epoch), anchors, incarnation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let of = |epoch: u64, incarnation: Option<&str>| Life {
            epoch: Epoch(epoch),
            anchors: [(Seq(0), Digest([1; 16])), (Seq(9), Digest([255; 16]))].into(),
            incarnation: incarnation.map(str::to_owned),
        };
        Record {
            life: of(7, Some("a")),
            published: Seq(10),
            past: vec![of(6, None)],
            content: "c".to_owned(),
            by: "b".to_owned(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&write(&record())).unwrap(), record());
    }

    #[test]
    fn what_is_no_record_is_named() {
        assert!(matches!(read(b"{"), Err(RecordFault::Malformed(_))));
        assert!(matches!(read(br#"{"v":2}"#), Err(RecordFault::Form { found: 2 })));
        let text = String::from_utf8(write(&record())).unwrap();
        let short = text.replace("ffffffffffffffffffffffffffffffff", "ff");
        assert!(matches!(read(short.as_bytes()), Err(RecordFault::Digest)));
        assert!(matches!(read(&vec![b' '; 70_000]), Err(RecordFault::Long { found: 70_000 })));
    }
}
