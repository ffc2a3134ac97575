//! `[[sinks]]`: routers that are fed in a form they know already.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use kvbridge_schemas::{Replica, Tier};

use super::{
    Endpoint, file::Span, limits, sinks_file::SinkFile, sinks_guard::SinkGuard, validate::Check,
};
use crate::sink_line::{Preset, Sizes, Topics};

/// One router's feed: a publisher and a journal for each rank of one instance, or all replicas at
/// one pair of sockets or over connections to the readers.
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
    /// All replicas are published at `listen` and answered at `replay`, each under its topic.
    pub one_socket: bool,
    /// Readers that bind: all replicas are told over a connection to each; nothing is listened on.
    pub connect: Vec<Endpoint>,
    /// Who may read, where readers open streams.
    pub guard: SinkGuard,
    /// The topic of a replica; see [`topic_of`](crate::sink_line::topic_of).
    pub topic: String,
    /// Whose replicas are told; absent = of the instance that comes first, or of all where sockets
    /// are shared.
    pub instance: Option<String>,
    /// Of which models; empty = of any.
    pub models: Vec<String>,
    /// Which tiers are told.
    pub tiers: Vec<Tier>,
    /// Blocks of how many tokens are told.
    pub sizes: Sizes,
    /// How long trust may be away before everything is taken back.
    pub grace: Duration,
    /// Silence after which an empty batch is sent.
    pub heartbeat: Duration,
    /// Messages of drivers that may wait.
    pub queue_messages: u32,
}

impl SinkConfig {
    /// Whether several replicas are told over the same sockets, told apart by their topics.
    pub fn shares_sockets(&self) -> bool {
        self.one_socket || !self.connect.is_empty()
    }

    /// Whether readers open streams at `listen`; then `replay` is not listened on.
    pub fn is_streamed(&self) -> bool {
        self.preset.profile().encoding.is_streamed()
    }

    /// Whether a replica may be told here, whichever instance came first.
    pub fn takes(&self, replica: &Replica) -> bool {
        self.instance.as_ref().is_none_or(|instance| *instance == replica.instance)
            && (self.models.is_empty() || self.models.contains(&replica.model))
    }
}

impl Check<'_> {
    /// Of sources with so many ranks at most.
    pub(super) fn sinks(&mut self, files: &[SinkFile], rank_count: u32) -> Vec<SinkConfig> {
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
            if sink.shares_sockets() && rank_count > 1 && !sink.topic.contains("{rank}") {
                let message = "must have {rank} where sockets are shared and a source has dp > 1: \
                               all ranks but one would be refused";
                self.note(&format!("sinks[{at}].topic"), message);
            }
            let listens = sink.connect.is_empty();
            let addresses_of = [("listen", sink.listen), ("replay", sink.replay)];
            let count = if sink.is_streamed() { 1 } else { 2 };
            for (field, address) in addresses_of.into_iter().take(count).filter(|_| listens) {
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
            let absent =
                if got == Preset::SMG { ", for which the feature sink-smg is built" } else { "" };
            self.note(&at("preset"), format!("expected one of {names}, got {got:?}{absent}"));
        }
        let guard = self.sink_guard(path, file, preset);
        let insecure = file.insecure.unwrap_or(false) || guard.asks();
        let listen = (file.listen.as_deref(), limits::SINK_LISTEN);
        let replay = (file.replay.as_deref(), limits::SINK_REPLAY);
        let listen = self.sink_address(&at("listen"), listen, insecure);
        let replay = self.sink_address(&at("replay"), replay, insecure);
        if file.instance.as_deref() == Some("") {
            self.note(&at("instance"), "must not be empty");
        }
        let sizes = self.sizes(path, file, preset);
        let span = |check: &mut Self, field: &str, value: Option<Span>, default| {
            check.span(&at(field), value, default)
        };
        let preset = preset?;
        let connect = self.readers(&at("connect"), file);
        let one_socket = file.one_socket.unwrap_or(false);
        let topic = self.topic(path, file, preset);
        Some(SinkConfig {
            name: file.name.clone().unwrap_or_else(|| preset.as_str().to_owned()),
            preset,
            listen,
            replay,
            one_socket,
            connect,
            guard,
            topic,
            instance: file.instance.clone(),
            models: file.models.clone().unwrap_or_default(),
            tiers: self.tiers(&at("tiers"), file.tiers.as_deref()),
            sizes,
            grace: span(self, "grace", file.grace, limits::SINK_GRACE),
            heartbeat: span(self, "heartbeat", file.heartbeat, limits::SINK_HEARTBEAT),
            queue_messages: self.count(&at("queue"), file.queue, limits::SINK_QUEUE_MESSAGES),
        })
    }

    /// Readers that are connected to. A sink that connects does not listen.
    fn readers(&mut self, path: &str, file: &SinkFile) -> Vec<Endpoint> {
        let Some(texts) = &file.connect else { return Vec::new() };
        let max = limits::SINK_CONNECT_MAX;
        if texts.is_empty() || texts.len() > max {
            self.note(path, format!("expected 1 to {max} readers, got {}", texts.len()));
        }
        if file.listen.is_some() || file.replay.is_some() || file.one_socket == Some(true) {
            self.note(path, "does not go with listen, replay or one_socket");
        }
        let mut readers = Vec::new();
        for text in texts.iter().take(max) {
            match text.parse::<Endpoint>() {
                Ok(endpoint) if endpoint.host == "*" => {
                    self.note(path, format!("expected a host to connect to, got {text:?}"));
                }
                Ok(endpoint) if readers.contains(&endpoint) => {
                    self.note(path, format!("{endpoint} is there twice"));
                }
                Ok(endpoint) => readers.push(endpoint),
                Err(error) => self.note(path, error.to_string()),
            }
        }
        readers
    }

    /// The topic of each replica. Where sockets are shared it must tell instances apart, and the
    /// reader must look at it.
    fn topic(&mut self, path: &str, file: &SinkFile, preset: Preset) -> String {
        let shares = file.one_socket == Some(true) || file.connect.is_some();
        if shares && preset.needs().topics == Topics::Nothing {
            let field = if file.connect.is_some() { "connect" } else { "one_socket" };
            let name = preset.as_str();
            let message = format!(
                "a reader of preset {name} takes what comes over a socket for one replica's"
            );
            self.note(&format!("{path}.{field}"), message);
        }
        let default = if shares { Preset::SHARED_TOPIC } else { preset.profile().topic };
        let topic = file.topic.clone().unwrap_or_else(|| default.to_owned());
        if shares && !topic.contains("{instance}") {
            self.note(&format!("{path}.topic"), "must have {instance} where sockets are shared");
        }
        if preset.needs().topics == Topics::Named && !has_three_parts(&topic) {
            let name = preset.as_str();
            let message = format!(
                "a reader of preset {name} wants three parts, kv@…@…, the second {{instance}}, got {topic:?}"
            );
            self.note(&format!("{path}.topic"), message);
        }
        topic
    }

    /// Which blocks are told: those of the engine, or others made of them.
    fn sizes(&mut self, path: &str, file: &SinkFile, preset: Option<Preset>) -> Sizes {
        if file.block_size == Some(0) {
            self.note(&format!("{path}.block_size"), "must be at least 1");
        }
        let (Some(own), Some(told)) = (file.engine_block_size, file.block_size) else {
            if file.engine_block_size.is_some() {
                let message = "goes with block_size, the tokens of a block that is told";
                self.note(&format!("{path}.engine_block_size"), message);
            }
            return Sizes::Own(file.block_size);
        };
        let field = format!("{path}.engine_block_size");
        let (small, large) = (own.min(told), own.max(told));
        if small == 0 || large % small != 0 {
            self.note(
                &field,
                format!("expected one that divides {told} or that it divides, got {own}"),
            );
        }
        if let Some(preset) = preset.filter(|preset| !preset.needs().hashes_tokens) {
            let name = preset.as_str();
            let message =
                format!("a reader of preset {name} may take block hashes for the engine's own");
            self.note(&field, message);
        }
        if own == told { Sizes::Own(Some(told)) } else { Sizes::Other { own, told } }
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

/// Whether a reader that wants `kv@<instance>@<model>` can read it.
fn has_three_parts(topic: &str) -> bool {
    let parts: Vec<&str> = topic.split('@').collect();
    matches!(parts.as_slice(), ["kv", instance, model]
        if instance.contains("{instance}") && !model.is_empty())
}

/// Where a rank is published, of the address of rank 0. Port 0 stays 0: each takes a free one. A
/// port past the last one cannot be bound, and is said so.
pub fn for_rank(address: SocketAddr, rank: u32) -> String {
    let port = match address.port() {
        0 => 0,
        port => u32::from(port).saturating_add(rank),
    };
    match address {
        SocketAddr::V4(address) => format!("tcp://{}:{port}", address.ip()),
        SocketAddr::V6(address) => format!("tcp://[{}]:{port}", address.ip()),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{loaded, problems};

    #[test]
    fn ranks_that_share_sockets_are_told_apart() {
        let of = |topic: &str| {
            format!(
                "[[sources]]\nengine = \"vllm\"\nendpoint = \"tcp://h:5557\"\ndp = 2\n\
                 [[sinks]]\npreset = \"llm-d\"\none_socket = true\n{topic}"
            )
        };
        assert!(problems(&of(""), &[]).starts_with("sinks[0].topic: must have {rank}"));
        let topic = "topic = \"kv@{instance}/{rank}@{model}\"";
        assert_eq!(loaded(&of(topic), &[]).sinks.len(), 1);
    }
}
