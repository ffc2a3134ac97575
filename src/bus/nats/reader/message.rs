//! From a stored message to a batch.

use async_nats::HeaderMap;
use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{
    Cursor, EngineKind, Envelope, Epoch, HashInfo, HashScheme, Replica, Seq, Trust,
    codec::{self, CodecError},
    digest,
};

use crate::shared_log::{FORMAT, batch_of};

/// Why a message is not a batch of its replica. The words are labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A newer major version of the schema.
    SchemaTooNew,
    /// Not an envelope.
    Malformed,
    /// An envelope of another replica than its subject's.
    WrongReplica,
}

impl Unreadable {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Unreadable::SchemaTooNew => "schema_too_new",
            Unreadable::Malformed => "malformed",
            Unreadable::WrongReplica => "wrong_replica",
        }
    }
}

/// What the headers say of a message's place; they are looked at where the body is not.
pub(in crate::bus::nats) fn place_of(headers: &HeaderMap) -> Option<(Epoch, Seq)> {
    let number = |name: &str| headers.get(name)?.as_str().parse().ok();
    Some((Epoch(number("Kvbridge-Epoch")?), Seq(number("Kvbridge-Seq")?)))
}

/// What the body says. One that cannot be read still has a place if its headers are ours: its seq
/// is then not missing, only its content, and recovery asks for it once more before it gives it up.
pub(super) fn read(
    replica: &Replica,
    payload: &[u8],
    place: impl FnOnce() -> Option<(Epoch, Seq)>,
) -> Read {
    match envelope_of(replica, payload) {
        // It covers no seq: between two batches a bridge says what it believes.
        Ok(envelope) if envelope.span == 0 => Read::Said(Box::new(envelope)),
        Ok(envelope) => {
            let trust = envelope.trust;
            Read::Batch(batch_of(envelope, bytes(payload)), trust)
        }
        Err(why) => Read::Not(place().map(|place| unread(place, payload)), why),
    }
}

/// What a message is.
pub(super) enum Read {
    /// A batch, and what its bridge believed of its view then.
    Batch(Batch, Trust),
    /// A bridge's word.
    Said(Box<Envelope>),
    /// Nothing that can be read, in this place.
    Not(Option<Batch>, Unreadable),
}

/// The envelope that a replica's subject brought.
pub(in crate::bus::nats) fn envelope_of(
    replica: &Replica,
    payload: &[u8],
) -> Result<Envelope, Unreadable> {
    let envelope: Envelope = codec::decode_msgpack(payload).map_err(|error| match error {
        CodecError::Version { .. } => Unreadable::SchemaTooNew,
        _ => Unreadable::Malformed,
    })?;
    if envelope.replica == *replica { Ok(envelope) } else { Err(Unreadable::WrongReplica) }
}

fn unread((epoch, seq): (Epoch, Seq), payload: &[u8]) -> Batch {
    Batch {
        epoch: Some(epoch),
        incarnation: None,
        seq,
        span: 1,
        digest: digest(payload),
        ts: 0,
        format: FORMAT,
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        rank: None,
        events: Vec::new(),
        loss: Loss::Body,
        bytes: bytes(payload),
    }
}

fn bytes(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).unwrap_or(u32::MAX)
}

/// Where the log stands behind a message, as far as it can be read.
pub(in crate::bus::nats) fn end_of(payload: &[u8]) -> Option<Cursor> {
    let envelope = codec::decode_msgpack::<Envelope>(payload).ok()?;
    let next_seq = envelope.seq.plus(u64::from(envelope.span));
    Some(Cursor { epoch: envelope.epoch, next_seq })
}

/// Which engine's blocks a message speaks of, as far as it can be read.
pub(super) fn engine_of(payload: &[u8]) -> Option<EngineKind> {
    codec::decode_msgpack::<Envelope>(payload).ok().map(|envelope| envelope.engine.kind)
}
