//! `[[sources]]` as typed → one source for each replica.

use std::collections::BTreeSet;

use kvbridge_adapters_zmq::Transport;
use kvbridge_schemas::{EngineKind, Replica};

use super::{
    Endpoint, Polled, SourceConfig, SourceFile, limits,
    validate::{Check, MODEL_DEFAULT},
};
use crate::pipeline::registry;

/// Ranks of one engine process. The largest deployments published use a few hundred; beyond that a
/// typo would open sockets by the thousand.
const RANK_COUNT_MAX: u32 = 1024;

/// Where an engine is reached.
struct Reach {
    endpoint: Endpoint,
    /// It is asked there, for all its ranks.
    url: Option<String>,
}

impl Reach {
    /// Of a later rank; `None` past the last port.
    fn for_rank(&self, offset: u32) -> Option<Endpoint> {
        if self.url.is_some() {
            return Some(self.endpoint.clone());
        }
        self.endpoint.for_rank(offset)
    }
}

impl Check<'_> {
    pub(super) fn sources(&mut self, files: &[SourceFile]) -> Vec<SourceConfig> {
        let mut sources = Vec::new();
        let mut seen = BTreeSet::new();
        let mut urls = BTreeSet::new();
        for (at, file) in files.iter().enumerate() {
            let path = format!("sources[{at}]");
            let of_entry = self.source(&path, file);
            let url = of_entry.iter().find_map(|source| source.polled.as_ref());
            if let Some(polled) = url
                && !urls.insert(polled.url.clone())
            {
                self.note(&path, "two sources drain one engine: use dp for its ranks");
            }
            for source in of_entry {
                if !seen.insert(source.replica.clone()) {
                    let key = source.replica.key();
                    self.note(&path, format!("two sources speak of replica {key}"));
                }
                sources.push(source);
            }
        }
        sources
    }

    /// One entry, one [`SourceConfig`] for each of its ranks.
    fn source(&mut self, path: &str, file: &SourceFile) -> Vec<SourceConfig> {
        let engine = self.engine(path, file.engine.as_deref());
        let transport = self.transport(path, file.transport.as_deref());
        let reach = self.reach(path, file, engine.as_ref());
        let replay_path = format!("{path}.replay");
        let replay = file.replay.as_ref().and_then(|t| self.endpoint(&replay_path, t, false));
        let snapshot = self.snapshot(path, file, engine.as_ref());
        if file.pool_blocks == Some(0) {
            self.note(&format!("{path}.pool_blocks"), "must be at least 1");
        }
        self.addresses(path, file);
        if let Some(engine) = &engine {
            self.hashes(path, file, engine);
        }
        let rank_count = file.dp.unwrap_or(1);
        if rank_count == 0 || rank_count > RANK_COUNT_MAX {
            let message = format!("expected 1 to {RANK_COUNT_MAX} ranks, got {rank_count}");
            self.note(&format!("{path}.dp"), message);
            return Vec::new();
        }
        for (field, text) in [("model", &file.model), ("instance", &file.instance)] {
            if text.as_deref() == Some("") {
                self.note(&format!("{path}.{field}"), "must not be empty");
            }
        }
        let (Some(engine), Some(transport), Some(reach)) = (engine, transport, reach) else {
            return Vec::new();
        };
        if reach.endpoint.host == "*" && file.instance.is_none() {
            let message = "is missing: a bound endpoint does not tell whom a router sends to";
            self.note(&format!("{path}.instance"), message);
        }
        let first_rank = file.rank.unwrap_or(0);
        let polled = reach.url.clone().map(|url| Polled { url, first_rank, rank_count });
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
            Some(SourceConfig {
                engine: engine.clone(),
                replica: Replica {
                    model: file.model.clone().unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
                    instance: file.instance.clone().unwrap_or_else(|| reach.endpoint.authority()),
                    rank: first_rank.saturating_add(offset),
                },
                endpoint,
                polled: polled.clone(),
                replay,
                snapshot,
                bind: file.bind.unwrap_or(false),
                topic: file.topic.clone().unwrap_or_default(),
                transport,
                ignore_tags: file.ignore_tags.clone().unwrap_or_default(),
                pool_blocks: file.pool_blocks,
                metrics: file.metrics.clone(),
                members: file.members.clone().unwrap_or_default(),
                hash_scheme: file.hash_scheme.clone(),
                hash_seed: file.hash_seed.clone(),
            })
        };
        (0..rank_count).filter_map(rank).collect()
    }

    /// Where the engine answers what it holds. What its answer leaves out must be the same for all
    /// blocks, or the view would have them where they are not.
    fn snapshot(
        &mut self,
        path: &str,
        file: &SourceFile,
        engine: Option<&EngineKind>,
    ) -> Option<Endpoint> {
        let text = file.snapshot.as_ref()?;
        let path = format!("{path}.snapshot");
        if engine.is_some_and(|engine| !registry::has_snapshots(engine)) {
            if !engine.is_some_and(registry::is_polled) {
                self.note(&path, "this engine has no snapshots");
            }
            return None;
        }
        if file.plain_cache != Some(true) {
            let message = "needs plain_cache = true: it names neither tiers nor copies";
            self.note(&path, message);
        }
        self.endpoint(&path, text, false)
    }

    /// By `endpoint` or by `url`, as the engine has it.
    fn reach(
        &mut self,
        path: &str,
        file: &SourceFile,
        engine: Option<&EngineKind>,
    ) -> Option<Reach> {
        if !engine.is_some_and(registry::is_polled) {
            if file.url.is_some() {
                let message = "belongs to an engine that is asked over HTTP: use endpoint";
                self.note(&format!("{path}.url"), message);
            }
            let path = format!("{path}.endpoint");
            let Some(text) = &file.endpoint else {
                self.note(&path, "is missing, expected tcp://host:port");
                return None;
            };
            let endpoint = self.endpoint(&path, text, file.bind.unwrap_or(false))?;
            return Some(Reach { endpoint, url: None });
        }
        let of_sockets = [
            ("endpoint", file.endpoint.is_some()),
            ("replay", file.replay.is_some()),
            ("snapshot", file.snapshot.is_some()),
            ("plain_cache", file.plain_cache.is_some()),
            ("bind", file.bind == Some(true)),
            ("topic", file.topic.is_some()),
            ("transport", file.transport.is_some()),
            ("ignore_tags", file.ignore_tags.is_some()),
        ];
        for (field, _) in of_sockets.into_iter().filter(|(_, given)| *given) {
            let message = "belongs to an engine that publishes: this one is asked at url";
            self.note(&format!("{path}.{field}"), message);
        }
        let path = format!("{path}.url");
        let Some(url) = &file.url else {
            self.note(&path, "is missing, expected http://host:port");
            return None;
        };
        let parsed = self.address(&path, url, "expected an address such as http://host:port")?;
        let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            return None;
        };
        let endpoint = Endpoint { host: host.to_owned(), port };
        Some(Reach { endpoint, url: Some(url.trim_end_matches('/').to_owned()) })
    }

    fn hashes(&mut self, path: &str, file: &SourceFile, engine: &EngineKind) {
        let known = registry::hash_schemes(engine);
        let given =
            [("hash_scheme", file.hash_scheme.is_some()), ("hash_seed", file.hash_seed.is_some())];
        if known.is_empty() {
            for (field, _) in given.into_iter().filter(|(_, given)| *given) {
                let message = "belongs to an engine whose events do not tell how blocks are hashed";
                self.note(&format!("{path}.{field}"), message);
            }
        } else if let Some(scheme) = &file.hash_scheme
            && !known.contains(&scheme.as_str())
        {
            let message = format!("expected one of {}, got {scheme:?}", known.join(", "));
            self.note(&format!("{path}.hash_scheme"), message);
        }
    }

    /// What is asked over HTTP beside the events.
    fn addresses(&mut self, path: &str, file: &SourceFile) {
        let expected = "expected an address such as http://host:port/metrics";
        if let Some(url) = &file.metrics {
            self.address(&format!("{path}.metrics"), url, expected);
        }
        let members = file.members.as_deref().unwrap_or_default();
        if members.len() > limits::ENGINE_MEMBER_COUNT_MAX {
            let max = limits::ENGINE_MEMBER_COUNT_MAX;
            let message = format!("expected up to {max} addresses, got {}", members.len());
            self.note(&format!("{path}.members"), message);
        }
        for (at, url) in members.iter().enumerate() {
            self.address(&format!("{path}.members[{at}]"), url, expected);
        }
    }

    fn address(&mut self, path: &str, text: &str, expected: &str) -> Option<reqwest::Url> {
        match reqwest::Url::parse(text) {
            // It is shown in the log. The text is not repeated here, for the same reason.
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                self.note(path, format!("{expected}, without credentials"));
            }
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                return Some(url);
            }
            Ok(_) | Err(_) => self.note(path, expected),
        }
        None
    }

    fn engine(&mut self, path: &str, name: Option<&str>) -> Option<EngineKind> {
        let path = format!("{path}.engine");
        let known = registry::engine_names().collect::<Vec<_>>().join(", ");
        match name {
            Some(name) if registry::engine_names().any(|engine| engine == name) => {
                return Some(EngineKind::from_name(name));
            }
            Some(name) => self.note(&path, format!("expected one of {known}, got {name:?}")),
            None => self.note(&path, format!("is missing, expected one of {known}")),
        }
        None
    }

    fn transport(&mut self, path: &str, name: Option<&str>) -> Option<Transport> {
        let Some(name) = name else { return Some(Transport::default()) };
        match name.parse::<Transport>() {
            Ok(transport) => Some(transport),
            Err(error) => {
                self.note(&format!("{path}.transport"), format!("{error}, got {name:?}"));
                None
            }
        }
    }

    fn endpoint(&mut self, path: &str, text: &str, bind: bool) -> Option<Endpoint> {
        match text.parse::<Endpoint>() {
            Ok(endpoint) if endpoint.host == "*" && !bind => {
                self.note(path, "host * can only be bound, not connected to");
                None
            }
            Ok(endpoint) => Some(endpoint),
            Err(error) => {
                self.note(path, error.to_string());
                None
            }
        }
    }
}
