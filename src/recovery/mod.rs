//! PURE. One replica's state machine (recovery contract).

mod action;
mod fact;
mod input;

pub use action::{Action, ClearReason, TrustReason};
pub use fact::Fact;
pub use input::{Finding, Input, Tick};
