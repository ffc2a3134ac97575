//! Ctrl-C and SIGTERM; SIGHUP for a program that can read its configuration again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Exit;

/// Waits for a reason to stop.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on both signals are ours.
    pub(super) fn new() -> io::Result<Stop> {
        Ok(Stop {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Ctrl-C is an interruption; SIGTERM is how a supervisor asks for an orderly end. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Ok,
        }
    }
}

/// From now on SIGHUP is ours: it asks for the configuration to be read again.
pub(super) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
