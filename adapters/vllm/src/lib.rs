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

mod capabilities;
mod decode;
mod fault;
pub mod limits;
mod metrics;
mod msgpack;
mod normalize;
mod wire;

pub use capabilities::capabilities;
pub use decode::{Decoded, DecodedBatch, Decoder, FORMAT_ARRAY, FORMAT_MAP};
pub use fault::{BodyError, EventFault, FrameError, LostKind, Reason};
pub use limits::Limits;
pub use metrics::read_metrics;
