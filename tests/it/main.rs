//! The program from outside: command line, HTTP, sockets. One binary, because linking is the cost.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod check_config;
mod decode;
mod harness;
mod lifecycle_restart;
mod lifecycle_signals;
mod program;
