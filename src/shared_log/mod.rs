//! PURE. What makes a log safe that bridges write and many read: decisions as data, no bus inside.
//!
//! - [`lane`](Lane): what one replica's log holds, and what must be written next so that it has no
//!   hole.

mod lane;

#[cfg(feature = "shell")]
pub(crate) use lane::{Covered, reset_envelope};
pub use lane::{Lane, Outgoing, ResetCause};
