//! SHELL. Views on disk, so that a restarted process need not begin blind.
//!
//! - `file`: the format: header, records in chunks, checksums.
//! - `dir`: the folder of one process: a lock, one file per replica, replaced as a whole.
//! - `keeper`: when each replica is written.
//!
//! A file is never trusted by itself. What it restores is a kept view with no trust: recovery asks
//! the engine's journal whether it is still the same life, and only then believes what was believed
//! when the file was written. A file that cannot be used costs a replay from the start and nothing
//! else; its epoch, as far as the header is whole, stays the floor of later ones.

mod dir;
mod fault;
mod file;
mod keeper;
#[cfg(test)]
mod tests;

pub use dir::{Kept, StateDir, StateError, Wanted};
pub use fault::Fault;
pub use file::{FORMAT, Records, open, read, write};
pub use keeper::{Keeper, keep};
