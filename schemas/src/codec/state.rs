//! What a snapshot's view rests on: the optional part of its header.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    CodecError, DIGESTS_MAX, LIVES_MAX,
    error::need,
    event::is_false,
    wire::{Got, List, Named, Put, Show, Wire, opt},
};
use crate::{Digest, Scope, Seq, SnapshotState, Trust};

#[derive(Deserialize)]
pub(super) struct StateIn {
    host: Option<Got<Trust>>,
    reason: Option<String>,
    proven: Option<Got<Scope>>,
    stores_lost: Option<String>,
    removals_lost: Option<bool>,
    audit_from: Option<u64>,
    highest_live: Option<u64>,
    confirmed: Option<bool>,
    incarnation: Option<String>,
    closed: Option<List<Life, LIVES_MAX>>,
    settings: Option<String>,
    digests: Option<List<(Seq, Digest), DIGESTS_MAX>>,
}

impl StateIn {
    fn state(self) -> Result<SnapshotState, CodecError> {
        let of = "snapshot state";
        let closed = self.closed.map_or(Ok(Vec::new()), |closed| closed.take("closed"))?;
        Ok(SnapshotState {
            host: need(self.host, of, "host")?.0?,
            reason: need(self.reason, of, "reason")?,
            proven: opt(self.proven)?,
            stores_lost: self.stores_lost,
            removals_lost: self.removals_lost.unwrap_or(false),
            audit_from: Seq(need(self.audit_from, of, "audit_from")?),
            highest_live: self.highest_live.map(Seq),
            confirmed: self.confirmed.unwrap_or(false),
            incarnation: self.incarnation,
            closed: closed.into_iter().map(|life| life.0).collect(),
            settings: need(self.settings, of, "settings")?,
            digests: need(self.digests, of, "digests")?.take("digests")?,
        })
    }
}

#[derive(Serialize)]
struct StateOut<'a> {
    host: Put<'a, Trust>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    proven: Option<Put<'a, Scope>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stores_lost: Option<&'a str>,
    #[serde(skip_serializing_if = "is_false")]
    removals_lost: bool,
    audit_from: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    highest_live: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    confirmed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    closed: &'a [String],
    settings: &'a str,
    digests: Put<'a, [(Seq, Digest)]>,
}

impl Wire for SnapshotState {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        Named::<StateIn>::deserialize(from).map(|wire| wire.0.state())
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        StateOut {
            host: Put(&self.host, show),
            reason: &self.reason,
            proven: self.proven.as_ref().map(|scope| Put(scope, show)),
            stores_lost: self.stores_lost.as_deref(),
            removals_lost: self.removals_lost,
            audit_from: self.audit_from.0,
            highest_live: self.highest_live.map(|seq| seq.0),
            confirmed: self.confirmed,
            incarnation: self.incarnation.as_deref(),
            closed: &self.closed,
            settings: &self.settings,
            digests: Put(self.digests.as_slice(), show),
        }
        .serialize(to)
    }
}

/// The name of a life.
struct Life(String);

impl Wire for Life {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        String::deserialize(from).map(|name| Ok(Life(name)))
    }

    fn write<S: Serializer>(&self, _: Show, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[derive(Deserialize)]
pub(super) struct BatchDigestIn {
    seq: Option<u64>,
    digest: Option<Got<Digest>>,
}

#[derive(Serialize)]
struct BatchDigestOut<'a> {
    seq: u64,
    digest: Put<'a, Digest>,
}

impl Wire for (Seq, Digest) {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Result<Self, CodecError>, D::Error> {
        let Named(wire) = Named::<BatchDigestIn>::deserialize(from)?;
        let of = "batch digest";
        Ok(need(wire.seq, of, "seq")
            .and_then(|seq| Ok((Seq(seq), need(wire.digest, of, "digest")?.0?))))
    }

    fn write<S: Serializer>(&self, show: Show, to: S) -> Result<S::Ok, S::Error> {
        BatchDigestOut { seq: self.0.0, digest: Put(&self.1, show) }.serialize(to)
    }
}
