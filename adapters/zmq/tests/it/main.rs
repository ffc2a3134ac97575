//! Real sockets: against ourselves, against libzmq, and against peers that misbehave.
//!
//! One suite for every transport: `loopback`, `libzmq`, `hostile` and `source` must hold over each.
//! `beyond` states where they differ.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what helpers of tests do; the switch for tests covers only test functions"
)]

mod beyond;
mod captures;
mod hostile;
mod libzmq;
mod loopback;
mod peer;
mod source;
mod support;
