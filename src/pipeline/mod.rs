//! SHELL. One task per replica, from a source to the view, the index and the readers of events.
//!
//! `start` builds what a configuration names, `driver` is the task of one replica, `fleet` is how
//! the rest of the program sees all of them, `registry` alone knows which engines there are.

mod adapted;
mod budget;
mod changes;
mod driver;
mod feeds;
mod fleet;
mod found;
mod hash_watch;
mod index_writers;
mod kept;
mod lease;
mod open_error;
mod published;
pub mod registry;
mod reload;
mod shutdown;
mod signs;
mod start;
mod twin;

pub use budget::Budget;
pub use changes::{Change, Changes};
pub use driver::{Driver, DriverParts, Outputs};
pub use feeds::{Fed, Feed, Feeds, Heard, News};
pub use fleet::{AskError, Command, Fleet, FleetEvent, ReplicaHandle, ReplicaStatus, ViewCut};
pub use hash_watch::{HashStanding, HashWatch};
pub use index_writers::{INDEX_QUEUE_MESSAGES_MAX, IndexWrite, IndexWriters};
pub use lease::{Leases, Shift};
pub use published::Message;
pub use reload::{ReloadError, Reloaded, reload};
pub use shutdown::Tasks;
pub use signs::Signs;
pub use start::{Pipeline, StartError, Terms, start};
