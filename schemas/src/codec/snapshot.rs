//! Snapshot header, records and status.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    CodecError, RECORDS_MAX, direct,
    envelope::check_version,
    error::need,
    event::{is_false, secret},
    leaf::{Hash64, parent_is_unknown, parent_unknown},
    wire::{Got, List, Named, Put, Show, Wire, opt},
};
use crate::{
    BlockHash, BusSeq, Digest, Epoch, Group, Parent, Replica, SCHEMA_VERSION, Seq, SnapshotHeader,
    SnapshotRecord, SnapshotState, Status, Tier, Trust,
};

// === header ===

#[derive(Deserialize)]
pub(super) struct HeaderIn {
    v: Option<u64>,
    replica: Option<Got<Replica>>,
    epoch: Option<u64>,
    resume_seq: Option<u64>,
    bus_seq: Option<u64>,
    last_digest: Option<Got<Digest>>,
    trust: Option<Got<Trust>>,
    block_count: Option<u64>,
    state: Option<Got<SnapshotState>>,
}

impl HeaderIn {
    fn header(self) -> Result<SnapshotHeader, CodecError> {
        let of = "snapshot header";
        check_version(self.v, of)?;
        Ok(SnapshotHeader {
            replica: need(self.replica, of, "replica")?.0?,
            epoch: Epoch(need(self.epoch, of, "epoch")?),
            resume_seq: Seq(need(self.resume_seq, of, "resume_seq")?),
            bus_seq: self.bus_seq.map(BusSeq),
            last_digest: opt(self.last_digest)?,
            trust: need(self.trust, of, "trust")?.0?,
            block_count: need(self.block_count, of, "block_count")?,
            state: opt(self.state)?,
        })
    }
}

#[derive(Serialize)]
struct HeaderOut<'a> {
    v: u16,
    replica: Put<'a, Replica>,
    epoch: u64,
    resume_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bus_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_digest: Option<Put<'a, Digest>>,
    trust: Put<'a, Trust>,
    block_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Put<'a, SnapshotState>>,
}

impl Wire for SnapshotHeader {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<HeaderIn>::deserialize(from).map(|wire| wire.0.header())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        HeaderOut {
            v: SCHEMA_VERSION,
            replica: Put(&self.replica, show),
            epoch: self.epoch.0,
            resume_seq: self.resume_seq.0,
            bus_seq: self.bus_seq.map(|seq| seq.0),
            last_digest: self.last_digest.as_ref().map(|digest| Put(digest, show)),
            trust: Put(&self.trust, show),
            block_count: self.block_count,
            state: self.state.as_ref().map(|state| Put(state, show)),
        }
        .serialize(to)
    }
}

// === records ===

#[derive(Deserialize)]
pub(super) struct RecordIn {
    hash: Option<Got<BlockHash>>,
    #[serde(default = "parent_unknown")]
    parent: Got<Parent>,
    content: Option<Got<Hash64>>,
    block_size: Option<u32>,
    tier: Option<Got<Tier>>,
    group: Option<Got<Group>>,
    count: Option<u32>,
    lora: Option<String>,
    salt: Option<String>,
    extra: Option<Got<Hash64>>,
    partial: Option<bool>,
    bigram: Option<bool>,
    parked: Option<bool>,
    hint: Option<bool>,
}

impl RecordIn {
    fn record(self) -> Result<SnapshotRecord, CodecError> {
        let of = "snapshot record";
        Ok(SnapshotRecord {
            hash: need(self.hash, of, "hash")?.0?,
            parent: self.parent.0?,
            content: opt(self.content)?.map(|hash| hash.0),
            block_size: need(self.block_size, of, "block_size")?,
            tier: need(self.tier, of, "tier")?.0?,
            group: opt(self.group)?,
            count: need(self.count, of, "count")?,
            lora: self.lora,
            salt: self.salt,
            extra: opt(self.extra)?.map(|hash| hash.0),
            partial: self.partial.unwrap_or(false),
            bigram: self.bigram.unwrap_or(false),
            parked: self.parked.unwrap_or(false),
            hint: self.hint.unwrap_or(false),
        })
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of one record, as on the wire")]
struct RecordOut<'a> {
    hash: Put<'a, BlockHash>,
    #[serde(skip_serializing_if = "parent_is_unknown")]
    parent: Put<'a, Parent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Put<'a, Hash64>>,
    block_size: u32,
    tier: Put<'a, Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Put<'a, Group>>,
    count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    salt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Put<'a, Hash64>>,
    #[serde(skip_serializing_if = "is_false")]
    partial: bool,
    #[serde(skip_serializing_if = "is_false")]
    bigram: bool,
    #[serde(skip_serializing_if = "is_false")]
    parked: bool,
    #[serde(skip_serializing_if = "is_false")]
    hint: bool,
}

impl Wire for SnapshotRecord {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<RecordIn>::deserialize(from).map(|wire| wire.0.record())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        let content = self.content.map(Hash64);
        // A hash of media ids can be guessed from the ids: it is hidden with them.
        let extra = self.extra.filter(|_| show == Show::All).map(Hash64);
        RecordOut {
            hash: Put(&self.hash, show),
            parent: Put(&self.parent, show),
            content: content.as_ref().map(|hash| Put(hash, show)),
            block_size: self.block_size,
            tier: Put(&self.tier, show),
            group: self.group.as_ref().map(|group| Put(group, show)),
            count: self.count,
            lora: self.lora.as_deref(),
            salt: secret(self.salt.as_deref(), show),
            extra: extra.as_ref().map(|hash| Put(hash, show)),
            partial: self.partial,
            bigram: self.bigram,
            parked: self.parked,
            hint: self.hint,
        }
        .serialize(to)
    }

    fn read_direct(payload: &[u8]) -> Option<Self> {
        direct::record(payload)
    }

    fn write_direct(&self) -> Option<Vec<u8>> {
        Some(direct::write_record(self))
    }
}

/// One chunk of a snapshot: a list of records.
impl Wire for Vec<SnapshotRecord> {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Ok(List::<SnapshotRecord, RECORDS_MAX>::deserialize(from)?.take("snapshot records"))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        Put(self.as_slice(), show).serialize(to)
    }

    fn read_direct(payload: &[u8]) -> Option<Self> {
        direct::chunk(payload)
    }

    fn write_direct(&self) -> Option<Vec<u8>> {
        Some(direct::write_chunk(self))
    }
}

// === status ===

#[derive(Deserialize)]
pub(super) struct StatusIn {
    v: Option<u64>,
    replica: Option<Got<Replica>>,
    epoch: Option<u64>,
    next_seq: Option<u64>,
    view_seq: Option<u64>,
    bus_seq: Option<u64>,
    trust: Option<Got<Trust>>,
    reason: Option<String>,
    bridge: Option<String>,
    at: Option<u64>,
}

impl StatusIn {
    fn status(self) -> Result<Status, CodecError> {
        let of = "status";
        check_version(self.v, of)?;
        Ok(Status {
            replica: need(self.replica, of, "replica")?.0?,
            epoch: Epoch(need(self.epoch, of, "epoch")?),
            next_seq: Seq(need(self.next_seq, of, "next_seq")?),
            view_seq: self.view_seq.map(Seq),
            bus_seq: self.bus_seq.map(BusSeq),
            trust: need(self.trust, of, "trust")?.0?,
            reason: need(self.reason, of, "reason")?,
            bridge: need(self.bridge, of, "bridge")?,
            at: need(self.at, of, "at")?,
        })
    }
}

#[derive(Serialize)]
struct StatusOut<'a> {
    v: u16,
    replica: Put<'a, Replica>,
    epoch: u64,
    next_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    view_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bus_seq: Option<u64>,
    trust: Put<'a, Trust>,
    reason: &'a str,
    bridge: &'a str,
    at: u64,
}

impl Wire for Status {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<StatusIn>::deserialize(from).map(|wire| wire.0.status())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        StatusOut {
            v: SCHEMA_VERSION,
            replica: Put(&self.replica, show),
            epoch: self.epoch.0,
            next_seq: self.next_seq.0,
            view_seq: self.view_seq.map(|seq| seq.0),
            bus_seq: self.bus_seq.map(|seq| seq.0),
            trust: Put(&self.trust, show),
            reason: &self.reason,
            bridge: &self.bridge,
            at: self.at,
        }
        .serialize(to)
    }
}
