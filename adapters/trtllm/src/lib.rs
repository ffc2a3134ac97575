//! TensorRT-LLM KV-cache events, drained from its HTTP endpoint: every form of its JSON from 0.19
//! to 1.4, decoded and normalised.
//!
//! Reading takes the events away from everybody else, and there is neither a journal nor a
//! snapshot. So an answer that is lost is a loss of state, and one engine must have one reader.
//!
//! [`mod@stream`] is what it publishes over ZeroMQ instead, where that is switched on.
//!
//! [`Instance`] is pure: bytes of answers in, what each rank is told out. `Poller` (feature
//! `source`) asks the engine.
//!
//! ```
//! use kvbridge_adapters_api::{Delivery, SourceEvent};
//! use kvbridge_adapters_trtllm::Instance;
//!
//! let body = br#"[{"event_id": 0, "window_size": 256, "layer_group_id": 0,
//!     "data": {"type": "created", "num_blocks_per_cache_level": [100, 0]}}]"#;
//! let mut instance = Instance::new(0, 1);
//! for event in Instance::split(body).unwrap() {
//!     let step = instance.step(event);
//!     let (rank, last) = step.told.last().unwrap();
//!     let Delivery::Event(SourceEvent::Live(batch)) = last else { panic!("a batch") };
//!     assert_eq!((*rank, batch.seq.0, step.faults.len()), (0, 0, 0));
//! }
//! ```
#![deny(clippy::indexing_slicing, clippy::string_slice)]

#[cfg(feature = "source")]
mod answer;
pub mod block_key;
mod capabilities;
mod fault;
mod instance;
mod jump;
mod knobs;
pub mod limits;
#[cfg(feature = "source")]
mod poll;
mod rank;
#[cfg(feature = "source")]
mod rank_source;
#[cfg(feature = "source")]
mod seat;
pub mod stream;
mod tree;
mod wire;

pub use capabilities::capabilities;
pub use fault::{BodyError, Fault};
pub use instance::{Instance, Step, Strange};
pub use knobs::KNOBS;
#[cfg(feature = "source")]
pub use poll::{Permit, PollSettings, Poller};
pub use rank::FORMAT_JSON;
#[cfg(feature = "source")]
pub use rank_source::RankSource;
pub use wire::{ServerInfo, read_sources};
