//! The program from outside: command line, HTTP, sockets. One binary, because linking is the cost.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod check_config;
mod decode;
mod nats_bus;
mod nats_run;
mod nats_server;
mod program;
