//! `[[sinks]]`: routers that are fed in a form they know already.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use kvbridge_schemas::{Replica, Tier};

use super::{file::Span, limits, sinks_file::SinkFile, validate::Check};
use crate::sink_line::Preset;

/// One router's feed: a publisher and a journal for each rank of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// What it is called, in metrics and logs.
    pub name: String,
    /// Which router reads it.
    pub preset: Preset,
    /// Where rank 0 is published; rank r at port + r.
    pub listen: SocketAddr,
    /// Where requests for its past are answered; likewise.
    pub replay: SocketAddr,
    /// Whose replicas are told; absent = of the instance that comes first.
    pub instance: Option<String>,
    /// Of which models; empty = of any.
    pub models: Vec<String>,
    /// Which tiers are told.
    pub tiers: Vec<Tier>,
    /// Blocks of this many tokens are told; absent = of as many as the first one has.
    pub block_size: Option<u32>,
    /// How long trust may be away before everything is taken back.
    pub grace: Duration,
    /// Silence after which an empty batch is sent.
    pub heartbeat: Duration,
    /// Messages of drivers that may wait.
    pub queue_messages: u32,
}

impl SinkConfig {
    /// Whether a replica may be told here, whichever instance came first.
    pub fn takes(&self, replica: &Replica) -> bool {
        self.instance.as_ref().is_none_or(|instance| *instance == replica.instance)
            && (self.models.is_empty() || self.models.contains(&replica.model))
    }
}

impl Check<'_> {
    pub(super) fn sinks(&mut self, files: &[SinkFile]) -> Vec<SinkConfig> {
        if files.len() > limits::SINK_COUNT_MAX {
            let max = limits::SINK_COUNT_MAX;
            self.note("sinks", format!("expected up to {max}, got {}", files.len()));
            return Vec::new();
        }
        let sinks: Vec<SinkConfig> = files
            .iter()
            .enumerate()
            .filter_map(|(at, file)| self.sink(&format!("sinks[{at}]"), file))
            .collect();
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for (at, sink) in sinks.iter().enumerate() {
            if !names.insert(&sink.name) {
                let message = format!("{:?} is there twice", sink.name);
                self.note(&format!("sinks[{at}].name"), message);
            }
            for (field, address) in [("listen", sink.listen), ("replay", sink.replay)] {
                if address.port() != 0 && !addresses.insert(address) {
                    let message = format!("{address} is there twice");
                    self.note(&format!("sinks[{at}].{field}"), message);
                }
            }
        }
        sinks
    }

    fn sink(&mut self, path: &str, file: &SinkFile) -> Option<SinkConfig> {
        let at = |field: &str| format!("{path}.{field}");
        let names = Preset::ALL.map(Preset::as_str).join(", ");
        let preset = file.preset.as_deref().and_then(Preset::from_name);
        if preset.is_none() {
            let got = file.preset.as_deref().unwrap_or("none");
            self.note(&at("preset"), format!("expected one of {names}, got {got:?}"));
        }
        let insecure = file.insecure.unwrap_or(false);
        let listen = (file.listen.as_deref(), limits::SINK_LISTEN);
        let replay = (file.replay.as_deref(), limits::SINK_REPLAY);
        let listen = self.sink_address(&at("listen"), listen, insecure);
        let replay = self.sink_address(&at("replay"), replay, insecure);
        if file.instance.as_deref() == Some("") {
            self.note(&at("instance"), "must not be empty");
        }
        if file.block_size == Some(0) {
            self.note(&at("block_size"), "must be at least 1");
        }
        let span = |check: &mut Self, field: &str, value: Option<Span>, default| {
            check.span(&at(field), value, default)
        };
        let preset = preset?;
        Some(SinkConfig {
            name: file.name.clone().unwrap_or_else(|| preset.as_str().to_owned()),
            preset,
            listen,
            replay,
            instance: file.instance.clone(),
            models: file.models.clone().unwrap_or_default(),
            tiers: self.tiers(&at("tiers"), file.tiers.as_deref()),
            block_size: file.block_size,
            grace: span(self, "grace", file.grace, limits::SINK_GRACE),
            heartbeat: span(self, "heartbeat", file.heartbeat, limits::SINK_HEARTBEAT),
            queue_messages: self.count(&at("queue"), file.queue, limits::SINK_QUEUE_MESSAGES),
        })
    }

    fn sink_address(
        &mut self,
        path: &str,
        (text, default): (Option<&str>, &str),
        insecure: bool,
    ) -> SocketAddr {
        let address = self.bus_address(path, text, default);
        if !address.ip().is_loopback() && !insecure {
            let message = "is not the loopback, and a reader of a sink is asked nothing and sees \
                           prompts: set insecure in the sink";
            self.note(path, message);
        }
        address
    }

    fn tiers(&mut self, path: &str, names: Option<&[String]>) -> Vec<Tier> {
        let mut tiers = Vec::new();
        for name in names.unwrap_or(&["device".to_owned()]) {
            match name.as_str() {
                "device" => tiers.push(Tier::Device),
                "host" => tiers.push(Tier::Host),
                other => self.note(path, format!("expected device or host, got {other:?}")),
            }
        }
        if tiers.is_empty() {
            self.note(path, "must name a tier");
        }
        tiers
    }
}
