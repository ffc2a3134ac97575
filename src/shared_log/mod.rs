//! PURE. What makes a log safe that bridges write and many read: decisions as data, no bus inside.
//!
//! - [`lane`](Lane): what one replica's log holds, and what must be written next so that it has no
//!   hole.
//! - [`Healing`]: whether what another bridge wrote closes a hole of an engine's journal.
//! - [`TailReader`]: the end of a log, out of its newest messages.
//! - [`Vouches`]: which bridge's word counts for a log, and for how long.
//! - [`lives`]: which life of the cache the log is of, and who may name one.
//! - [`reorder`](Reorder): what a log delivers, put back in order within bounds.
//! - [`positions`](Positions): where on a bus a replica's newest batches lie.
//! - [`pointer`](Pointer): which of several stored snapshots readers are sent to.
//! - [`stretch`](Stretch): which seqs of a stretch came back, which did not, and why.

mod healing;
mod lane;
pub mod lives;
mod pointer;
mod positions;
mod reorder;
mod stretch;
mod tail;
mod vouch;

pub use healing::{Healing, Step};
#[cfg(feature = "shell")]
pub(crate) use lane::{Covered, reset_envelope};
pub use lane::{DIGESTS_KEPT, Lane, LogTail, Outgoing, ResetCause};
pub use pointer::{Pointer, PointerFault};
pub use positions::{Positions, Start};
pub use reorder::{Place, Reorder, ReorderLimits};
pub use stretch::{Missing, Part, Stretch, Why};
pub use tail::TailReader;
pub use vouch::Vouches;
