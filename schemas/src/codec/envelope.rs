//! The envelope around events.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    CodecError, EVENTS_MAX, ITEMS_MAX, direct,
    error::need,
    wire::{Got, List, Named, Put, Show, Wire},
};
use crate::{
    Digest, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Replica,
    SCHEMA_VERSION, Seq, Trust,
};

/// Refuses another major version.
pub(super) fn check_version(found: Option<u64>, of: &'static str) -> Result<(), CodecError> {
    let found = need(found, of, "v")?;
    if found == u64::from(SCHEMA_VERSION) { Ok(()) } else { Err(CodecError::Version { found }) }
}

#[derive(Deserialize)]
pub(super) struct EnvelopeIn {
    v: Option<u64>,
    replica: Option<Got<Replica>>,
    epoch: Option<u64>,
    incarnation: Option<String>,
    seq: Option<u64>,
    span: Option<u32>,
    digest: Option<Got<Digest>>,
    trust: Option<Got<Trust>>,
    ts: Option<u64>,
    engine: Option<Got<Engine>>,
    hash: Option<Got<HashInfo>>,
    events: Option<List<Event, EVENTS_MAX, ITEMS_MAX>>,
}

impl EnvelopeIn {
    fn envelope(self) -> Result<Envelope, CodecError> {
        let of = "envelope";
        check_version(self.v, of)?;
        Ok(Envelope {
            replica: need(self.replica, of, "replica")?.0?,
            epoch: Epoch(need(self.epoch, of, "epoch")?),
            incarnation: self.incarnation,
            seq: Seq(need(self.seq, of, "seq")?),
            span: need(self.span, of, "span")?,
            digest: need(self.digest, of, "digest")?.0?,
            trust: need(self.trust, of, "trust")?.0?,
            ts: need(self.ts, of, "ts")?,
            engine: need(self.engine, of, "engine")?.0?,
            hash: need(self.hash, of, "hash")?.0?,
            events: need(self.events, of, "events")?.take("events")?,
        })
    }
}

#[derive(Serialize)]
struct EnvelopeOut<'a> {
    v: u16,
    replica: Put<'a, Replica>,
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<&'a str>,
    seq: u64,
    span: u32,
    digest: Put<'a, Digest>,
    trust: Put<'a, Trust>,
    ts: u64,
    engine: Put<'a, Engine>,
    hash: Put<'a, HashInfo>,
    events: Put<'a, [Event]>,
}

impl Wire for Envelope {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<EnvelopeIn>::deserialize(from).map(|wire| wire.0.envelope())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        EnvelopeOut {
            v: SCHEMA_VERSION,
            replica: Put(&self.replica, show),
            epoch: self.epoch.0,
            incarnation: self.incarnation.as_deref(),
            seq: self.seq.0,
            span: self.span,
            digest: Put(&self.digest, show),
            trust: Put(&self.trust, show),
            ts: self.ts,
            engine: Put(&self.engine, show),
            hash: Put(&self.hash, show),
            events: Put(&self.events, show),
        }
        .serialize(to)
    }

    fn read_direct(payload: &[u8]) -> Option<Self> {
        direct::envelope(payload)
    }

    fn write_direct(&self) -> Option<Vec<u8>> {
        Some(direct::write_envelope(self))
    }
}

#[derive(Deserialize)]
pub(super) struct ReplicaIn {
    model: Option<String>,
    instance: Option<String>,
    rank: Option<u32>,
}

#[derive(Serialize)]
struct ReplicaOut<'a> {
    model: &'a str,
    instance: &'a str,
    rank: u32,
}

impl Wire for Replica {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(ReplicaIn { model, instance, rank }) = Named::deserialize(from)?;
        let read = || {
            Ok(Replica {
                model: need(model, "replica", "model")?,
                instance: need(instance, "replica", "instance")?,
                rank: need(rank, "replica", "rank")?,
            })
        };
        Ok(read())
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        ReplicaOut { model: &self.model, instance: &self.instance, rank: self.rank }.serialize(to)
    }
}

#[derive(Deserialize)]
pub(super) struct EngineIn {
    kind: Option<Got<EngineKind>>,
    format: Option<String>,
}

#[derive(Serialize)]
struct EngineOut<'a> {
    kind: Put<'a, EngineKind>,
    format: &'a str,
}

impl Wire for Engine {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(EngineIn { kind, format }) = Named::deserialize(from)?;
        Ok(need(kind, "engine", "kind").and_then(|kind| {
            Ok(Engine { kind: kind.0?, format: need(format, "engine", "format")? })
        }))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        EngineOut { kind: Put(&self.kind, show), format: &self.format }.serialize(to)
    }
}

#[derive(Deserialize)]
pub(super) struct HashIn {
    scheme: Option<Got<HashScheme>>,
    block_size: Option<u32>,
}

#[derive(Serialize)]
struct HashOut<'a> {
    scheme: Put<'a, HashScheme>,
    block_size: u32,
}

impl Wire for HashInfo {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(HashIn { scheme, block_size }) = Named::deserialize(from)?;
        Ok(need(scheme, "hash", "scheme").and_then(|scheme| {
            let block_size = need(block_size, "hash", "block_size")?;
            Ok(HashInfo { scheme: scheme.0?, block_size })
        }))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        HashOut { scheme: Put(&self.scheme, show), block_size: self.block_size }.serialize(to)
    }
}
