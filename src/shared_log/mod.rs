//! PURE. What makes a log safe that bridges write and many read: decisions as data, no bus inside.
//!
//! - [`Author`]: what a bridge writes, and when; [`Naming`]: what it knows of the life it writes.
//! - [`Window`]: what a writer has sent and not been told is stored.
//! - [`Follower`]: what a reader of the log knows, and where it reads on.
//! - [`lane`](Lane): what one replica's log holds, and what must be written next so that it has no
//!   hole.
//! - [`Healing`]: whether what another bridge wrote closes a hole of an engine's journal.
//! - [`TailReader`]: the end of a log, out of its newest messages.
//! - [`Tenure`]: who of several bridges drains an engine.
//! - [`Vouches`]: which bridge's word counts for a log, and for how long.
//! - [`lives`]: which life of the cache the log is of, and who may name one.
//! - [`reorder`](Reorder): what a log delivers, put back in order within bounds.
//! - [`positions`](Positions): where on a bus a replica's newest batches lie.
//! - [`pointer`](Pointer): which of several stored snapshots readers are sent to.
//! - [`stretch`](Stretch): which seqs of a stretch came back, which did not, and why.

mod author;
mod content;
mod follower;
mod healing;
mod lane;
pub mod lives;
mod naming;
mod pointer;
mod positions;
mod reorder;
mod stretch;
mod tail;
mod tenure;
mod unnamed;
mod vouch;
mod window;

pub use author::Author;
pub use content::{FORMAT, batch_of, events_of};
pub use follower::{Follower, Joined, Known, LogEnds, Search, log_capabilities};
pub use healing::{Healing, Step};
#[cfg(feature = "shell")]
pub(crate) use lane::{Covered, reset_envelope};
pub use lane::{DIGESTS_KEPT, Lane, LogTail, Outgoing, ResetCause};
pub use naming::{Called, Name, Named, Naming, called};
pub use pointer::{Pointer, PointerFault, parse_wish, wish_of};
pub use positions::{Positions, Start};
pub use reorder::{Place, Reorder, ReorderLimits};
pub use stretch::{Missing, Part, Stretch, Why};
pub use tail::TailReader;
pub use tenure::{Grant, LeaseTerms, Tenure};
pub use unnamed::UnnamedLimits;
pub use vouch::Vouches;
pub use window::Window;
