//! kvbridge keeps a cache-aware router's map of KV blocks true, knows when it is not, and says so.
//!
//! - [`recovery`]: PURE. One replica's state machine: gap, replay, snapshot, epoch, trust.
//! - [`view`]: PURE. The fold of one replica's events: which blocks it holds, where, how often.
//! - [`index`]: PURE. All views together, answering prefix queries.
//! - [`pipeline`]: SHELL. What moves events between the world and the pure parts.

pub mod index;
#[cfg(feature = "shell")]
pub mod pipeline;
pub mod recovery;
pub mod view;

pub use kvbridge_adapters_api as api;
pub use kvbridge_schemas as schemas;
