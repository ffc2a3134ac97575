//! The envelope around the events of one engine batch.

use crate::{Digest, EngineKind, Epoch, Event, HashScheme, Replica, Seq, Trust};

/// The major version of the schema. Another one is refused by name.
pub const SCHEMA_VERSION: u16 = 1;

/// The engine and the wire form its batch had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Which engine.
    pub kind: EngineKind,
    /// The wire form seen, e.g. `vllm.map`.
    pub format: String,
}

/// How blocks are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashInfo {
    /// The engine's scheme.
    pub scheme: HashScheme,
    /// Tokens per block; 0 if the batch does not tell.
    pub block_size: u32,
}

/// One engine batch, normalised. Architecture: one batch = one envelope = one bus message.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Whose cache.
    pub replica: Replica,
    /// Which life of it.
    pub epoch: Epoch,
    /// The engine's own evidence of its life (an epoch uuid, a start time), when there is one.
    pub incarnation: Option<String>,
    /// First source seq covered.
    pub seq: Seq,
    /// How many seqs are covered; next expected = seq + span. 1 for data, more only in a reset.
    pub span: u32,
    /// XXH3-128 of the engine's payload bytes.
    pub digest: Digest,
    /// The bridge's trust when it published.
    pub trust: Trust,
    /// The engine's batch time, unix µs; 0 if unknown.
    pub ts: u64,
    /// Which engine, which wire form.
    pub engine: Engine,
    /// Hash scheme and block size.
    pub hash: HashInfo,
    /// What happened; may be empty (a barrier or heartbeat).
    pub events: Vec<Event>,
}
