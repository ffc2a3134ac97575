//! The program from outside: command line, HTTP, sockets. One binary, because linking is the cost.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bridge;
mod bus_cli;
mod bus_reader;
mod check_config;
mod decode;
mod fake_engine;
mod follow;
mod harness;
mod http;
mod lifecycle_restart;
mod lifecycle_signals;
mod matching;
mod nats_auth;
mod nats_bus;
mod nats_cluster;
mod nats_lives;
mod nats_permissions;
mod nats_reader;
mod nats_run;
mod nats_server;
mod nats_slow;
mod nats_twins;
mod oracle;
mod peer;
mod program;
mod proxy;
mod repair;
mod restart;
mod security;
mod sglang;
mod stop;
mod zmq_bus;
mod zmq_client;
mod zmq_world;
