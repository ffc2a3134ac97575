//! The KV hint envelope, schema version 1: the contract on the bus and in every file kvbridge writes.
//!
//! Plain data, no I/O, no async. Types here carry no serde derives on purpose: a derive is a promise,
//! and every byte of the contract is made in [`codec`].
//!
//! - [`Envelope`] wraps the [`Event`]s that share one engine batch (one `seq`).
//! - [`Replica`] says whose cache they speak of, [`Epoch`] which life of it, [`Trust`] how far to believe it.
//! - [`SnapshotHeader`] and [`SnapshotRecord`] carry a whole view; [`Status`] is a heartbeat.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod codec;
mod content;
mod envelope;
mod event;
mod hash;
mod identity;
mod residency;
mod snapshot;
mod status;
pub mod subject;
mod trust;

pub use content::{CONTENT_SEED, content_hash, digest};
pub use envelope::{Engine, Envelope, HashInfo, SCHEMA_VERSION};
pub use event::{
    ClearCause, Cleared, Event, ExtraKey, Moved, Parent, Place, Removed, Reset, Scope, Stored,
    StoredBlock, Tokens,
};
pub use hash::{BlockHash, BlockHashError, Digest, HASH_BYTES_MAX, HashScheme, Projection};
pub use identity::{BusSeq, Cursor, EngineKind, Epoch, KeyError, Replica, ReplicaKey, Seq};
pub use residency::{Group, GroupKind, Tier};
pub use snapshot::{SnapshotHeader, SnapshotRecord};
pub use status::Status;
pub use trust::{TierTrust, Trust};
