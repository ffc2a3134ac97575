//! vLLM KV-cache events: every wire form from 0.9.0 on, decoded and normalised.
//!
//! Bytes to [`Batch`](kvbridge_adapters_api::Batch), without I/O and without state. What cannot be
//! read costs as little as it can: an event its neighbours nothing, a payload its seq nothing.
//!
//! ```
//! use kvbridge_adapters_vllm::{Decoded, Decoder};
//!
//! // vLLM 0.9.1: [ts, [["AllBlocksCleared"]], rank]
//! let payload = [&[0x93, 0x01, 0x91, 0x91, 0xb0], &b"AllBlocksCleared"[..], &[0x00]].concat();
//! let decoded = Decoder::default().decode(&7_u64.to_be_bytes(), &payload).expect("a seq frame");
//! let Decoded::Batch(decoded) = decoded else { panic!("a batch") };
//! assert_eq!(decoded.batch.seq.0, 7);
//! assert_eq!(decoded.batch.events.len(), 1);
//! assert!(decoded.faults.is_empty());
//! ```
#![deny(clippy::indexing_slicing, clippy::string_slice)]

pub mod block_hash;
mod capabilities;
mod knobs;
mod metrics;
mod normalize;
mod wire;

use kvbridge_adapters_msgpack::{Dialect, Fault, Opened, Read, Reader};
use kvbridge_schemas::HashScheme;

pub use capabilities::capabilities;
pub use knobs::KNOBS;
pub use kvbridge_adapters_msgpack::{
    BodyError, Decoded, DecodedBatch, EventFault, FrameError, Limits, LostKind, Reason, limits,
};
pub use metrics::read_metrics;
pub use wire::sources::read_sources;

/// Format of a batch whose events are positional arrays (to 0.23), or that has none.
pub const FORMAT_ARRAY: &str = Vllm::FORMAT_ARRAY;
/// Format of a batch whose events are maps (from 0.24).
pub const FORMAT_MAP: &str = Vllm::FORMAT_MAP;

/// Decodes the messages of one publisher.
pub type Decoder = kvbridge_adapters_msgpack::Decoder<Vllm>;

/// vLLM's events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vllm;

impl Dialect for Vllm {
    const RANK: &'static str = wire::RANK;
    const FORMAT_ARRAY: &'static str = "vllm.array";
    const FORMAT_MAP: &'static str = "vllm.map";

    fn read<'a>(reader: &mut Reader<'a, '_>, opened: Opened<'a>) -> Result<Read<'a>, Fault> {
        wire::read(reader, opened).map(normalize::event)
    }

    /// Nothing on the wire tells which of the engine's algorithms is set.
    fn hash_scheme() -> HashScheme {
        HashScheme::Unknown
    }
}
