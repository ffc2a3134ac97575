//! Engines that are known by their HTTP server alone: what the configuration says of them, and the
//! sources that follow once they have told where their events are.

use std::collections::BTreeSet;

use kvbridge_adapters_api::{RankStream, Streams};
use kvbridge_adapters_zmq::Transport;
use kvbridge_schemas::{EngineKind, Replica};

use super::{
    Config, Endpoint, InstanceTemplate, Polled, SourceConfig, instance::ip_text,
    validate::MODEL_DEFAULT,
};
use crate::{
    discovery::{Address, Place},
    pipeline::registry,
};

/// An entry whose engines are asked where their events are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// What the entry is called.
    pub name: String,
    /// Where its engines are looked for.
    pub place: Place,
    /// The server as configured, where there is one.
    pub url: Option<String>,
    /// Which engine; absent = it is known by its answer.
    pub engine: Option<EngineKind>,
    /// The served model's name; absent = as the engine tells.
    pub model: Option<String>,
    /// What a router sends requests to.
    pub instance: InstanceTemplate,
    /// Number of the first rank, where the engine does not tell its ranks.
    pub first_rank: u32,
    /// How many follow, likewise.
    pub rank_count: u32,
    /// Where the first rank publishes, likewise; a wildcard stands for the engine's host.
    pub endpoint: Option<Endpoint>,
    /// Where its journal answers, likewise.
    pub replay: Option<Endpoint>,
    /// Where the first rank answers what it holds; absent = as the engine tells.
    pub snapshot: Option<Endpoint>,
    /// Whether what such an answer leaves out is the same for all blocks; else none is asked for.
    pub is_plain: bool,
    /// ZeroMQ topic prefix; absent = as the engine tells.
    pub topic: Option<String>,
    /// The library that reads the sockets.
    pub transport: Transport,
    /// Event tags that the operator knows to be harmless.
    pub ignore_tags: Vec<String>,
    /// How many blocks the engine's device holds, when the operator tells.
    pub pool_blocks: Option<u64>,
    /// The engine's own metrics.
    pub metrics: Option<String>,
    /// Where each process of the engine tells when it started.
    pub members: Vec<String>,
    /// Where the engine is asked to empty its cache; absent = at its server.
    pub flush: Option<String>,
    /// How the engine hashes its blocks, where that is told.
    pub hash_scheme: Option<String>,
    /// The seed of its first blocks.
    pub hash_seed: Option<String>,
}

/// What an engine told, or what is known of it without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which engine it is.
    pub engine: EngineKind,
    /// The served model's name.
    pub model: Option<String>,
    /// Where its events are; absent = where the configuration says.
    pub streams: Option<Streams>,
    /// Tokens per block.
    pub block_size: Option<u32>,
    /// How block hashes are computed.
    pub algorithm: Option<String>,
}

/// Sources of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEngine {
    /// Of which entry.
    pub entry: String,
    /// Where it is.
    pub address: Address,
    /// One for each rank.
    pub sources: Vec<SourceConfig>,
}

/// Why what an engine told is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No socket can be made of it.
    #[error("endpoint {0:?} cannot be connected to")]
    Endpoint(String),
    /// `{ip}` of an engine whose IP is not known.
    #[error("its IP is not known, and the instance names {{ip}}")]
    NoIp,
    /// Ranks beyond the last port.
    #[error("no port is left for rank {0}")]
    NoPort(u32),
}

impl Unusable {
    /// One word.
    pub fn reason(&self) -> &'static str {
        match self {
            Unusable::Endpoint(_) => "unusable_endpoint",
            Unusable::NoIp => "no_ip",
            Unusable::NoPort(_) => "no_port",
        }
    }
}

impl EngineConfig {
    /// Where an engine of this entry is asked.
    pub fn url(&self, address: &Address) -> String {
        self.url.clone().unwrap_or_else(|| format!("http://{}:{}", host(address), address.port))
    }

    /// Whether an engine of the other entry is asked the same: then what it told holds for this
    /// one too.
    pub fn is_asked_as(&self, other: &EngineConfig) -> bool {
        let asked = |it: &EngineConfig| {
            let place = (it.place.clone(), it.url.clone(), it.engine.clone());
            (place, it.model.is_some(), it.endpoint.is_some())
        };
        asked(self) == asked(other)
    }

    /// The sources of an engine that told this.
    pub fn sources(&self, address: &Address, told: &Told) -> Result<Vec<SourceConfig>, Unusable> {
        match &told.streams {
            Some(Streams::Published(streams)) => {
                (0..).zip(streams).map(|of| self.published(address, told, of)).collect()
            }
            None if !registry::is_polled(&told.engine) => self.configured(address, told),
            // One that can publish as well does, where the configuration says where.
            Some(Streams::Drained) | None if self.endpoint.is_some() => {
                self.configured(address, told)
            }
            Some(Streams::Drained) | None => self.drained(address, told),
        }
    }

    fn published(
        &self,
        address: &Address,
        told: &Told,
        (offset, stream): (u32, &RankStream),
    ) -> Result<SourceConfig, Unusable> {
        let endpoint = |text: &String| {
            let parsed = text.parse::<Endpoint>();
            let parsed = parsed.map_err(|_| Unusable::Endpoint(text.clone()))?;
            Ok(reached_at(parsed, address))
        };
        let mut source = self.source(address, told, (stream.rank, endpoint(&stream.endpoint)?))?;
        source.replay = stream.replay.as_ref().map(endpoint).transpose()?;
        let snapshot = stream.snapshot.as_ref().filter(|_| self.is_plain);
        let told = snapshot.map(endpoint).transpose()?;
        source.snapshot = self.snapshot_of(address, offset)?.or(told);
        source.topic = self.topic.clone().unwrap_or_else(|| stream.topic.clone());
        Ok(source)
    }

    fn snapshot_of(&self, address: &Address, offset: u32) -> Result<Option<Endpoint>, Unusable> {
        self.snapshot.as_ref().map(|first| of_rank(first, address, offset)).transpose()
    }

    fn configured(&self, address: &Address, told: &Told) -> Result<Vec<SourceConfig>, Unusable> {
        let of_rank = |endpoint, offset| of_rank(endpoint, address, offset);
        let Some(first) = &self.endpoint else { return Ok(Vec::new()) };
        let source = |offset| {
            let rank = self.first_rank.saturating_add(offset);
            let mut source = self.source(address, told, (rank, of_rank(first, offset)?))?;
            source.replay = self.replay.as_ref().map(|it| of_rank(it, offset)).transpose()?;
            source.snapshot = self.snapshot_of(address, offset)?;
            source.topic = self.topic.clone().unwrap_or_default();
            Ok(source)
        };
        (0..self.rank_count).map(source).collect()
    }

    fn drained(&self, address: &Address, told: &Told) -> Result<Vec<SourceConfig>, Unusable> {
        let endpoint = Endpoint { host: host(address), port: address.port };
        let polled = Polled {
            url: self.url(address),
            first_rank: self.first_rank,
            rank_count: self.rank_count,
        };
        let source = |offset| {
            let rank = self.first_rank.saturating_add(offset);
            let mut source = self.source(address, told, (rank, endpoint.clone()))?;
            source.polled = Some(polled.clone());
            Ok(source)
        };
        (0..self.rank_count).map(source).collect()
    }

    fn source(
        &self,
        address: &Address,
        told: &Told,
        (rank, endpoint): (u32, Endpoint),
    ) -> Result<SourceConfig, Unusable> {
        let model = self.model.clone().or_else(|| told.model.clone());
        let instance = self.instance.at(address, rank).ok_or(Unusable::NoIp)?;
        Ok(SourceConfig {
            engine: told.engine.clone(),
            replica: Replica {
                model: model.unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
                instance,
                rank,
            },
            endpoint,
            polled: None,
            adapted: None,
            replay: None,
            snapshot: None,
            bind: false,
            topic: String::new(),
            transport: self.transport,
            ignore_tags: self.ignore_tags.clone(),
            pool_blocks: self.pool_blocks,
            metrics: self.metrics.clone(),
            members: self.members.clone(),
            flush: self.flush.clone().or_else(|| {
                let path = registry::flush_path(&told.engine)?;
                Some(format!("{}{path}", self.url(address)))
            }),
            hash_scheme: self.hash_scheme.clone(),
            hash_seed: self.hash_seed.clone(),
        })
    }
}

/// Where a later rank is reached, if the first is there.
fn of_rank(first: &Endpoint, address: &Address, offset: u32) -> Result<Endpoint, Unusable> {
    let endpoint = first.for_rank(offset).ok_or(Unusable::NoPort(offset))?;
    Ok(reached_at(endpoint, address))
}

/// What to connect to: an IP needs no name server, and ours may not be the one that knew the name.
fn host(address: &Address) -> String {
    address.ip.map_or_else(|| address.host.clone(), ip_text)
}

/// An engine that listens everywhere is reached where its server is.
fn reached_at(endpoint: Endpoint, address: &Address) -> Endpoint {
    let everywhere = ["*", "0.0.0.0", "[::]"].contains(&endpoint.host.as_str());
    if everywhere { Endpoint { host: host(address), ..endpoint } } else { endpoint }
}

impl Config {
    /// This configuration with what was found beside it, and the engines that were left out
    /// because another source speaks of their replicas or drains them. What runs goes first, or
    /// two engines of one name would take the place of each other again and again.
    pub fn with_found(
        &self,
        running: &[SourceConfig],
        found: &[FoundEngine],
    ) -> (Config, Vec<usize>) {
        let mut merged = self.clone();
        let mut replicas: BTreeSet<Replica> =
            self.sources.iter().map(|source| source.replica.clone()).collect();
        let mut urls: BTreeSet<String> = self.sources.iter().filter_map(polled_url).collect();
        let runs = |engine: &FoundEngine| engine.sources.iter().all(|it| running.contains(it));
        let (first, then): (Vec<usize>, Vec<usize>) =
            (0..found.len()).partition(|at| found.get(*at).is_some_and(runs));
        let mut left_out = Vec::new();
        for at in first.into_iter().chain(then) {
            let Some(engine) = found.get(at) else { continue };
            let taken = engine.sources.iter().any(|source| {
                replicas.contains(&source.replica)
                    || polled_url(source).is_some_and(|url| urls.contains(&url))
            });
            if taken {
                left_out.push(at);
                continue;
            }
            replicas.extend(engine.sources.iter().map(|source| source.replica.clone()));
            urls.extend(engine.sources.iter().filter_map(polled_url));
            merged.sources.extend(engine.sources.iter().cloned());
        }
        (merged, left_out)
    }
}

fn polled_url(source: &SourceConfig) -> Option<String> {
    source.polled.as_ref().map(|polled| polled.url.clone())
}
