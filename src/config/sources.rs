//! `[[sources]]` as typed → one source for each replica, or an engine that is asked for them.

use std::{collections::BTreeSet, time::Duration};

use kvbridge_adapters_api::RANK_COUNT_MAX;
use kvbridge_adapters_zmq::Transport;
use kvbridge_schemas::{EngineKind, Replica};

use super::{
    AdaptedConfig, Config, DiscoveryConfig, Endpoint, EngineConfig, EntryConfig, EntryOrigin,
    InstanceTemplate, Polled, SourceConfig, SourceFile,
    discovery_file::{DiscoverFile, DiscoveryFile},
    instance::host_ip,
    limits,
    validate::{Check, MODEL_DEFAULT},
};
use crate::{
    discovery::{Address, Place},
    pipeline::registry,
};

/// Longest name of an entry: it stands in paths and in the log.
const NAME_BYTES_MAX: usize = 64;

/// Longest name that a name server can be asked for.
const DNS_NAME_BYTES_MAX: usize = 253;

/// Least time between two looks: engines serve requests, and name servers other clients.
const DISCOVERY_EVERY_MIN: Duration = Duration::from_millis(100);

/// What entries name together.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) sources: Vec<SourceConfig>,
    pub(super) engines: Vec<EngineConfig>,
    pub(super) entries: Vec<EntryConfig>,
    replicas: BTreeSet<Replica>,
    urls: BTreeSet<String>,
}

impl Named {
    /// What a proven configuration names already.
    pub(super) fn of(config: &Config) -> Named {
        let urls = config.sources.iter().filter_map(|source| source.polled.as_ref());
        let urls = urls.map(|polled| polled.url.clone());
        let asked = config.engines.iter().filter_map(|engine| engine.url.clone());
        Named {
            sources: config.sources.clone(),
            engines: config.engines.clone(),
            entries: config.entries.clone(),
            replicas: config.sources.iter().map(|source| source.replica.clone()).collect(),
            urls: urls.chain(asked).collect(),
        }
    }

    fn has_name(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    /// What an entry is called that has no name of its own.
    fn free_name(&self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 2_u32;
        while self.has_name(&name) {
            name = format!("{wanted}#{number}");
            number += 1;
        }
        name
    }
}

/// What all ranks of an entry have in common.
struct Shared {
    engine: Option<EngineKind>,
    transport: Transport,
    instance: InstanceTemplate,
    rank_count: u32,
}

impl Check<'_> {
    /// Entries, one after the other.
    pub(super) fn sources(&mut self, named: &mut Named, files: &[SourceFile], is_added: bool) {
        for (at, file) in files.iter().enumerate() {
            let path = format!("sources[{at}]");
            let origin = if is_added {
                EntryOrigin::Http
            } else {
                // What only variables name has no one place.
                EntryOrigin::File(self.origin_of(&path).unwrap_or_else(|| "environment".into()))
            };
            let name = self.name(&path, named, file);
            let shared = self.shared(&path, file);
            let mut entry = EntryConfig { name, origin, place: place(file), replicas: Vec::new() };
            let Some(shared) = shared else { continue };
            if self.is_asked(file, shared.engine.as_ref()) {
                if let Some(engine) = self.asked(&path, file, (&entry.name, shared)) {
                    if engine.url.as_ref().is_some_and(|url| !named.urls.insert(url.clone())) {
                        self.note(&path, "two sources ask one engine: use dp for its ranks");
                    }
                    named.engines.push(engine);
                    named.entries.push(entry);
                }
                continue;
            }
            let of_entry = self.source(&path, file, shared);
            let url = of_entry.iter().find_map(|source| source.polled.as_ref());
            if let Some(polled) = url
                && !named.urls.insert(polled.url.clone())
            {
                self.note(&path, "two sources drain one engine: use dp for its ranks");
            }
            for source in of_entry {
                if !named.replicas.insert(source.replica.clone()) {
                    let key = source.replica.key();
                    self.note(&path, format!("two sources speak of replica {key}"));
                }
                entry.replicas.push(source.replica.clone());
                named.sources.push(source);
            }
            named.entries.push(entry);
        }
    }

    fn name(&mut self, path: &str, named: &Named, file: &SourceFile) -> String {
        let Some(name) = &file.name else { return named.free_name(&place(file)) };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let path = format!("{path}.name");
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
            let message = format!("expected 1 to {NAME_BYTES_MAX} letters, digits, - _ and . only");
            self.note(&path, message);
        } else if named.has_name(name) {
            self.note(&path, format!("two sources have the name {name}"));
        }
        name.clone()
    }

    /// `None` = wrong in a way that hides everything else.
    fn shared(&mut self, path: &str, file: &SourceFile) -> Option<Shared> {
        let engine = self.engine(path, file);
        let transport = self.transport(path, file.transport.as_deref());
        if file.pool_blocks == Some(0) {
            self.note(&format!("{path}.pool_blocks"), "must be at least 1");
        }
        self.addresses(path, file);
        self.options(path, file, engine.as_ref());
        if let Some(engine) = &engine {
            self.hashes(path, file, engine);
        }
        for (field, text) in [("model", &file.model), ("instance", &file.instance)] {
            if text.as_deref() == Some("") {
                self.note(&format!("{path}.{field}"), "must not be empty");
            }
        }
        let instance = match file.instance.as_deref().filter(|text| !text.is_empty()) {
            None => InstanceTemplate::default(),
            Some(text) => text.parse().unwrap_or_else(|error| {
                self.note(&format!("{path}.instance"), format!("{error}"));
                InstanceTemplate::default()
            }),
        };
        let rank_count = file.dp.unwrap_or(1);
        if rank_count == 0 || usize::try_from(rank_count).unwrap_or(usize::MAX) > RANK_COUNT_MAX {
            let message = format!("expected 1 to {RANK_COUNT_MAX} ranks, got {rank_count}");
            self.note(&format!("{path}.dp"), message);
            // The endpoint is looked at all the same: all problems at once.
            self.reach(path, file, engine.as_ref());
            return None;
        }
        Some(Shared { engine, transport: transport?, instance, rank_count })
    }

    /// One entry, one [`SourceConfig`] for each of its ranks.
    fn source(&mut self, path: &str, file: &SourceFile, shared: Shared) -> Vec<SourceConfig> {
        let Shared { engine, transport, instance, rank_count } = shared;
        let reach = self.reach(path, file, engine.as_ref());
        let replay_path = format!("{path}.replay");
        let replay = file.replay.as_ref().and_then(|t| self.endpoint(&replay_path, t, false));
        let snapshot = self.snapshot(path, file, engine.as_ref());
        let (Some(engine), Some(reach)) = (engine, reach) else { return Vec::new() };
        let host = reach.endpoint.host.clone();
        let address = Address { ip: host_ip(&host), host, port: reach.endpoint.port };
        if address.host == "*" && !(file.instance.is_some() && instance.is_fixed()) {
            let message = "is missing: a bound endpoint does not tell whom a router sends to";
            self.note(&format!("{path}.instance"), message);
        } else if instance.names_ip() && address.ip.is_none() {
            self.note(&format!("{path}.instance"), "{ip} needs an address: the host is a name");
        }
        let first_rank = file.rank.unwrap_or(0);
        let adapted = self.is_adapted(Some(&engine)).then(|| AdaptedConfig {
            url: reach.url.clone(),
            options: file.options.clone().unwrap_or_default(),
        });
        let url = reach.url.clone().filter(|_| adapted.is_none());
        let polled = url.map(|url| Polled { url, first_rank, rank_count });
        let rank = |offset| {
            let beside = |base: &Option<Endpoint>| match base {
                Some(base) => base.for_rank(offset).map(Some),
                None => Some(None),
            };
            let ports = reach.for_rank(offset).zip(beside(&replay)).zip(beside(&snapshot));
            let Some(((endpoint, replay), snapshot)) = ports else {
                self.note(&format!("{path}.dp"), format!("no port left for rank {offset}"));
                return None;
            };
            let rank = first_rank.saturating_add(offset);
            Some(SourceConfig {
                engine: engine.clone(),
                replica: Replica {
                    model: file.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
                    instance: instance.at(&address, rank)?,
                    rank,
                },
                endpoint,
                polled: polled.clone(),
                adapted: adapted.clone(),
                replay,
                snapshot,
                bind: file.bind.unwrap_or(false),
                topic: file.topic.clone().unwrap_or_default(),
                transport,
                ignore_tags: file.ignore_tags.clone().unwrap_or_default(),
                pool_blocks: file.pool_blocks,
                metrics: file.metrics.clone(),
                members: file.members.clone().unwrap_or_default(),
                flush: file.flush.clone(),
                hash_scheme: file.hash_scheme.clone(),
                hash_seed: file.hash_seed.clone(),
            })
        };
        (0..rank_count).filter_map(rank).collect()
    }

    /// One entry whose engines are asked where their events are.
    fn asked(
        &mut self,
        path: &str,
        file: &SourceFile,
        (name, shared): (&str, Shared),
    ) -> Option<EngineConfig> {
        if file.bind == Some(true) {
            self.note(&format!("{path}.bind"), "belongs to an engine that connects to us");
        }
        let mut endpoint = |field: &str, text: &Option<String>| {
            // A wildcard stands for the engine's host, as the engine's own configuration has it.
            text.as_ref().and_then(|text| self.endpoint(&format!("{path}.{field}"), text, true))
        };
        let first = endpoint("endpoint", &file.endpoint);
        let replay = endpoint("replay", &file.replay);
        let snapshot = self.snapshot(path, file, shared.engine.as_ref());
        let (url, place) = match &file.discover {
            Some(discover) => (None, self.by_name(path, file, discover)?),
            None => {
                let (url, address) = self.server(path, file.url.as_deref()?)?;
                if shared.instance.names_ip() && address.ip.is_none() {
                    let message = "{ip} needs an address: the host is a name";
                    self.note(&format!("{path}.instance"), message);
                }
                (Some(url), Place::Here(address))
            }
        };
        Some(EngineConfig {
            name: name.to_owned(),
            place,
            url,
            engine: shared.engine,
            model: file.model.clone(),
            instance: shared.instance,
            first_rank: file.rank.unwrap_or(0),
            rank_count: shared.rank_count,
            endpoint: first,
            replay,
            snapshot,
            is_plain: file.plain_cache.unwrap_or(false),
            topic: file.topic.clone(),
            transport: shared.transport,
            ignore_tags: file.ignore_tags.clone().unwrap_or_default(),
            pool_blocks: file.pool_blocks,
            metrics: file.metrics.clone(),
            members: file.members.clone().unwrap_or_default(),
            flush: file.flush.clone(),
            hash_scheme: file.hash_scheme.clone(),
            hash_seed: file.hash_seed.clone(),
        })
    }

    /// A name that leads to engines, and what cannot be said of many at once.
    fn by_name(&mut self, path: &str, file: &SourceFile, discover: &DiscoverFile) -> Option<Place> {
        let of_one = [
            ("url", file.url.is_some()),
            ("metrics", file.metrics.is_some()),
            ("members", file.members.is_some()),
            ("flush", file.flush.is_some()),
        ];
        for (field, _) in of_one.into_iter().filter(|(_, given)| *given) {
            let message = "belongs to one engine: discover leads to any number of them";
            self.note(&format!("{path}.{field}"), message);
        }
        let Some(name) = discover.dns.as_deref().filter(|name| !name.is_empty()) else {
            self.note(&format!("{path}.discover.dns"), "is missing, expected a name");
            return None;
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.len() > DNS_NAME_BYTES_MAX || !name.chars().all(fits) {
            self.note(&format!("{path}.discover.dns"), "expected a name such as engines.ns.svc");
        }
        match (name.starts_with('_'), discover.port) {
            (true, Some(_)) => {
                let message = "belongs to address records: those of services tell the port";
                self.note(&format!("{path}.discover.port"), message);
            }
            (false, None | Some(0)) => {
                self.note(&format!("{path}.discover.port"), "is missing, expected the HTTP port");
            }
            (true, None) | (false, Some(_)) => (),
        }
        Some(Place::Name { name: name.to_owned(), port: discover.port })
    }

    pub(super) fn discovery(&mut self, file: &DiscoveryFile) -> DiscoveryConfig {
        let config = DiscoveryConfig {
            refresh: self.span("discovery.refresh", file.refresh, limits::DISCOVERY_REFRESH),
            resolve: self.span("discovery.resolve", file.resolve, limits::DISCOVERY_RESOLVE),
            grace: file.grace.map_or(limits::DISCOVERY_GRACE, |span| span.0),
            nameserver: file.nameserver.as_deref().and_then(|text| {
                let address = text.parse().ok();
                if address.is_none() {
                    let message = format!("expected an address such as 10.0.0.10:53, got {text:?}");
                    self.note("discovery.nameserver", message);
                }
                address
            }),
        };
        for (field, span) in [("refresh", config.refresh), ("resolve", config.resolve)] {
            if span < DISCOVERY_EVERY_MIN {
                let message = format!("must be at least {DISCOVERY_EVERY_MIN:?}");
                self.note(&format!("discovery.{field}"), message);
            }
        }
        config
    }

    /// Absent is no problem where the engine can be asked which one it is.
    fn engine(&mut self, path: &str, file: &SourceFile) -> Option<EngineKind> {
        let path = format!("{path}.engine");
        let known = self.engine_names().join(", ");
        match file.engine.as_deref() {
            Some(name) if self.engine_names().contains(&name) => {
                return Some(EngineKind::from_name(name));
            }
            Some(name) => self.note(&path, format!("expected one of {known}, got {name:?}")),
            None if file.url.is_some() || file.discover.is_some() => (),
            None => self.note(&path, format!("is missing, expected one of {known}")),
        }
        None
    }

    /// Whether the entry's engines are asked where their events are.
    fn is_asked(&self, file: &SourceFile, engine: Option<&EngineKind>) -> bool {
        let by_server = file.url.is_some() && !engine.is_some_and(registry::is_polled);
        !self.is_adapted(engine) && (by_server || file.discover.is_some())
    }
}

/// Where an entry says that its engine is.
fn place(file: &SourceFile) -> String {
    let name = file.discover.as_ref().and_then(|discover| discover.dns.as_ref());
    let place = [file.url.as_ref(), name, file.endpoint.as_ref()].into_iter().flatten().next();
    place.cloned().unwrap_or_else(|| "nowhere".to_owned())
}
