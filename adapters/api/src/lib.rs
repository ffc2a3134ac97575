//! What an adapter is: one replica of one engine as a single ordered stream of events and answers.
//!
//! The vocabulary is plain data (no async, no I/O), so the pure recovery core shares it with the
//! adapters and no enum exists twice. The [`Source`] trait itself sits behind the feature `source`.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod batch;
mod capabilities;
mod counters;
mod delivery;
mod event;
mod hash_chain;
mod knobs;
mod metrics;
pub mod prometheus;
#[cfg(feature = "source")]
mod source;
mod told;

pub use batch::{Batch, Loss};
pub use capabilities::{Capabilities, Continuity, Drain, Removal, Replay, SnapshotSupport};
pub use counters::Counters;
pub use delivery::Delivery;
pub use event::{
    AnswerPart, Attempt, SnapshotIntro, SnapshotRefusal, SourceEvent, SourceRequest, Upstream,
};
pub use hash_chain::{
    COMPARED_FIRST, Compared, HashBlock, HashChain, HashFunction, Link, SAMPLE_ONE_OF,
};
pub use knobs::Knobs;
pub use metrics::EngineMetrics;
#[cfg(feature = "source")]
pub use source::{RequestRefused, Source};
pub use told::{EventSources, RANK_COUNT_MAX, RankStream, SourcesFault, Streams};
