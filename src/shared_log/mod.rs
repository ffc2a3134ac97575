//! PURE. What makes a log safe that bridges write and many read: decisions as data, no bus inside.
//!
//! - [`lane`](Lane): what one replica's log holds, and what must be written next so that it has no
//!   hole.
//! - [`TailReader`]: the end of a log, out of its newest messages.
//! - [`Vouches`]: which bridge's word counts for a log, and for how long.
//! - [`lives`]: which life of the cache the log is of, and who may name one.

mod lane;
pub mod lives;
mod tail;
mod vouch;

#[cfg(feature = "shell")]
pub(crate) use lane::{Covered, reset_envelope};
pub use lane::{Lane, Outgoing, ResetCause};
pub use tail::TailReader;
pub use vouch::Vouches;
