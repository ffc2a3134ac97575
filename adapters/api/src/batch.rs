//! One message of the engine.

use kvbridge_schemas::{Digest, Epoch, Event, HashInfo, Seq};

/// Events that share a seq, decoded as far as they could be.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The life, when the wire names it. Engines mostly do not.
    pub epoch: Option<Epoch>,
    /// The engine's own evidence of its life, when there is one.
    pub incarnation: Option<String>,
    /// Number within the epoch.
    pub seq: Seq,
    /// Seqs covered; 1 for everything an engine sends.
    pub span: u32,
    /// XXH3-128 of the payload bytes, computed in the adapter.
    pub digest: Digest,
    /// The engine's batch time, unix µs; 0 if unknown.
    pub ts: u64,
    /// The wire form seen, e.g. `vllm.map`.
    pub format: &'static str,
    /// Hash scheme and block size.
    pub hash: HashInfo,
    /// The data-parallel rank the batch names, when it does.
    pub rank: Option<u32>,
    /// What could be read, in order.
    pub events: Vec<Event>,
    /// What could not.
    pub loss: Loss,
    /// Payload size, for the bounds on what is held.
    pub bytes: u32,
}

/// What a batch lost in decoding, worst first wins. Ordered: a later one costs more trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Everything was read.
    #[default]
    Nothing,
    /// A store was not read: blocks are missing from the view, none is false.
    Stores,
    /// Something that may have removed blocks was not read, or an event type is unknown.
    MayRemove,
    /// The body was not readable at all.
    Body,
}

impl Batch {
    /// The seq expected after this batch.
    pub fn next_seq(&self) -> Seq {
        self.seq.plus(u64::from(self.span))
    }
}
