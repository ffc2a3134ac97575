//! The KV hint envelope, schema version 1: the contract on the bus and in every file that kvbridge
//! writes.
//!
//! Plain data, no I/O, no async. Types here carry no serde derives on purpose: a derive is a
//! promise, and every byte of the contract is made in [`codec`].
//!
//! - [`Envelope`] wraps the [`Event`]s that share one engine batch (one `seq`).
//! - [`Replica`] says whose cache they speak of, [`Epoch`] which life of it, [`Trust`] how far to
//!   believe it.
//! - [`SnapshotHeader`] and [`SnapshotRecord`] carry a whole view; [`Status`] is a heartbeat.
//! - [`codec`] reads and writes all of them, [`subject`] names them on a bus; [`msgpack`] is the
//!   cursor beneath, which readers of engines' bytes share.
//!
//! ```
//! use kvbridge_schemas::{
//!     BlockHash, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Place,
//!     Removed, Replica, Seq, Tier, Trust, codec, digest, subject,
//! };
//!
//! let replica = Replica { model: "m".into(), instance: "10.0.0.7:8000".into(), rank: 0 };
//! let removed = Removed {
//!     hashes: vec![BlockHash::from_u64(0x7353_5d66_e768_7837)],
//!     place: Place::of(Tier::Device),
//! };
//! let envelope = Envelope {
//!     replica,
//!     epoch: Epoch(1_796_006_936_000),
//!     incarnation: None,
//!     seq: Seq(17),
//!     span: 1,
//!     digest: digest(b"the engine's payload"),
//!     trust: Trust::Exact,
//!     ts: 1_796_006_936_107_260,
//!     engine: Engine { kind: EngineKind::Vllm, format: "vllm.map".into() },
//!     hash: HashInfo { scheme: HashScheme::Unknown, block_size: 16 },
//!     events: vec![Event::Removed(removed)],
//! };
//!
//! // What goes on the bus, and where.
//! let payload = codec::encode_msgpack(&envelope);
//! let key = envelope.replica.key();
//! assert_eq!(subject::hint(&key), "kv.v1.hint.m.10=2E0=2E0=2E7=3A8000.0");
//! assert_eq!(
//!     subject::message_id(&key, envelope.epoch, envelope.seq),
//!     "m.10=2E0=2E0=2E7=3A8000.0/1796006936000/17",
//! );
//!
//! // What comes back is what was sent; people read it as JSON.
//! let read: Envelope = codec::decode_msgpack(&payload)?;
//! assert_eq!(read, envelope);
//! assert_eq!(codec::to_json(&read)["events"][0]["hashes"][0], "73535d66e7687837");
//! # Ok::<(), codec::CodecError>(())
//! ```
#![deny(clippy::indexing_slicing, clippy::string_slice)]

// Shared strategies of tests name the crate as its users do.
#[cfg(test)]
extern crate self as kvbridge_schemas;

pub mod codec;
mod content;
mod envelope;
mod event;
mod hash;
mod identity;
pub mod msgpack;
mod residency;
mod snapshot;
mod status;
pub mod subject;
mod trust;

pub use content::{CONTENT_SEED, content_hash, digest};
pub use envelope::{Engine, Envelope, HashInfo, SCHEMA_VERSION};
pub use event::{
    ClearCause, Cleared, Event, ExtraKey, Moved, Parent, Place, Removed, Reset, Scope, Stored,
    StoredBlock, Tokens, TrustChange,
};
pub use hash::{BlockHash, BlockHashError, Digest, HASH_BYTES_MAX, HashScheme, Projection};
pub use identity::{BusSeq, Cursor, EngineKind, Epoch, KeyError, Replica, ReplicaKey, Seq};
pub use residency::{Group, GroupKind, Tier};
pub use snapshot::{SnapshotHeader, SnapshotRecord, SnapshotState};
pub use status::Status;
pub use trust::{TierTrust, Trust};
