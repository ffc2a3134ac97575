//! `[bus]` of kind `zmq`: where a bridge publishes and keeps its journal, and which bridges are
//! read.

use std::{net::SocketAddr, path::PathBuf};

use super::{Endpoint, HeartbeatConfig, SpoolFull, file::BusFile, limits, validate::Check};

/// A bus without a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZmqConfig {
    /// Where envelopes are published; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where replays, snapshots and the list of replicas are asked for.
    pub requests: SocketAddr,
    /// Where other bridges answer: their replicas are read too.
    pub connect: Vec<Endpoint>,
    /// Folder of the journal; absent only where nothing is published.
    pub journal: Option<PathBuf>,
    /// Bytes of messages it keeps.
    pub journal_bytes_max: u64,
    /// This bridge's name in the ids of what it says itself; absent = one made up at the start.
    pub bridge: Option<String>,
    /// Bytes that wait for the journal.
    pub spool_bytes_max: u64,
    /// What happens when they are used up.
    pub spool_full: SpoolFull,
    /// How often bridges say how they stand.
    pub heartbeat: HeartbeatConfig,
}

/// Least a journal may keep: one message of the largest size would else be all of it.
const JOURNAL_BYTES_MIN: u64 = 1024 * 1024;

/// Bridges that one process reads: each replica is two connections to its bridge.
const CONNECT_COUNT_MAX: usize = 64;

impl Check<'_> {
    pub(super) fn zmq(&mut self, file: &BusFile) -> ZmqConfig {
        let insecure = file.insecure.unwrap_or(false);
        let config = ZmqConfig {
            listen: self.bus_address("bus.listen", file.listen.as_deref(), limits::ZMQ_LIVE),
            requests: self.bus_address(
                "bus.requests",
                file.requests.as_deref(),
                limits::ZMQ_REQUESTS,
            ),
            connect: self.connect(file.connect.as_deref().unwrap_or_default()),
            journal: file.journal.as_deref().map(PathBuf::from),
            journal_bytes_max: self.size(
                "bus.journal_bytes",
                file.journal_bytes,
                limits::ZMQ_JOURNAL_BYTES,
            ),
            bridge: self.bridge(file.bridge.clone()),
            spool_bytes_max: self.spool(file),
            spool_full: self.spool_full(file.spool_full.as_deref()),
            heartbeat: self.heartbeat(file),
        };
        if config.journal_bytes_max < JOURNAL_BYTES_MIN {
            self.note("bus.journal_bytes", "must be at least 1MiB");
        }
        if file.journal.as_deref() == Some("") {
            self.note("bus.journal", "must not be empty");
        }
        for (field, address) in [("bus.listen", config.listen), ("bus.requests", config.requests)] {
            if !address.ip().is_loopback() && !insecure {
                let message = "is not the loopback, and a reader of this bus is asked nothing and \
                               sees prompts: set bus.insecure, or say --insecure";
                self.note(field, message);
            }
        }
        config
    }

    pub(super) fn bus_address(
        &mut self,
        path: &str,
        text: Option<&str>,
        default: &str,
    ) -> SocketAddr {
        let text = text.unwrap_or(default);
        text.parse().unwrap_or_else(|_| {
            self.note(path, format!("expected an address such as {default}, got {text:?}"));
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn connect(&mut self, texts: &[String]) -> Vec<Endpoint> {
        if texts.len() > CONNECT_COUNT_MAX {
            let message = format!("expected up to {CONNECT_COUNT_MAX}, got {}", texts.len());
            self.note("bus.connect", message);
            return Vec::new();
        }
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for text in texts {
            match text.parse::<Endpoint>() {
                Ok(endpoint) if endpoint.host == "*" => {
                    self.note("bus.connect", "host * can only be bound, not connected to");
                }
                Ok(endpoint) if endpoints.contains(&endpoint) => {
                    self.note("bus.connect", format!("{endpoint} is there twice"));
                }
                Ok(endpoint) => endpoints.push(endpoint),
                Err(error) => self.note("bus.connect", error.to_string()),
            }
        }
        endpoints
    }

    /// What is only known beside the rest of the configuration.
    pub(super) fn zmq_beside(
        &mut self,
        zmq: &mut ZmqConfig,
        has_sources: bool,
        state_dir: Option<&PathBuf>,
    ) {
        if zmq.journal.is_none() {
            zmq.journal = state_dir.map(|dir| dir.join("bus"));
        }
        if has_sources && zmq.journal.is_none() {
            let message = "is missing: a folder to keep what is published (or state.dir, for bus \
                           in it)";
            self.note("bus.journal", message);
        }
    }
}
