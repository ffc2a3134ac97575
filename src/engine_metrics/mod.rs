//! SHELL. What engines say of themselves over HTTP: whether a member started anew, how large the
//! cache is, whether requests are served.
//!
//! One task a replica. A member that started anew is evidence of a new life although the stream
//! goes on; one that cannot be reached is evidence of nothing.

mod members;
mod poll;

pub use members::Members;
pub use poll::{Poll, PollError};
