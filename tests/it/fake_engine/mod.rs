//! The real bridge on a real fake engine: what the bridge holds is what the engine has, or it says
//! so.

mod by_server;
mod drained;
mod faults;
mod lines;
mod members;
mod native;
pub(crate) mod peer;
mod radix;
mod resumed;
mod snapshots;
pub(crate) mod started;
mod truth;
