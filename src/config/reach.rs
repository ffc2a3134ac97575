//! Where a source is reached: endpoints, addresses of HTTP servers, the library that reads.

use kvbridge_adapters_zmq::Transport;
use kvbridge_schemas::EngineKind;

use super::{Endpoint, SourceFile, instance::host_ip, limits, validate::Check};
use crate::{discovery::Address, pipeline::registry};

/// Where an engine is reached.
pub(super) struct Reach {
    pub(super) endpoint: Endpoint,
    /// It is asked there, for all its ranks.
    pub(super) url: Option<String>,
}

impl Reach {
    /// Of a later rank; `None` past the last port.
    pub(super) fn for_rank(&self, offset: u32) -> Option<Endpoint> {
        if self.url.is_some() {
            return Some(self.endpoint.clone());
        }
        self.endpoint.for_rank(offset)
    }
}

/// Whether the entry's engine is asked for its events: one that can publish them as well does so
/// where the entry names the place of that alone.
pub(super) fn is_drained(file: &SourceFile, engine: Option<&EngineKind>) -> bool {
    let publishes = file.endpoint.is_some() && file.url.is_none();
    engine.is_some_and(registry::is_polled) && !publishes
}

impl Check<'_> {
    /// An engine's HTTP server: its address without a slash at the end, and where that is.
    pub(super) fn server(&mut self, path: &str, url: &str) -> Option<(String, Address)> {
        let path = format!("{path}.url");
        let parsed = self.address(&path, url, "expected an address such as http://host:port")?;
        let (host, port) = (parsed.host_str()?.to_owned(), parsed.port_or_known_default()?);
        let address = Address { ip: host_ip(&host), host, port };
        Some((url.trim_end_matches('/').to_owned(), address))
    }

    /// By `endpoint` or by `url`, as the engine has it.
    pub(super) fn reach(
        &mut self,
        path: &str,
        file: &SourceFile,
        engine: Option<&EngineKind>,
    ) -> Option<Reach> {
        if self.is_adapted(engine) {
            return self.reach_adapted(path, file);
        }
        if !is_drained(file, engine) {
            let path = format!("{path}.endpoint");
            let Some(text) = &file.endpoint else {
                self.note(&path, "is missing, expected tcp://host:port, or a url to be asked at");
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
            ("flush", file.flush.is_some()),
        ];
        for (field, _) in of_sockets.into_iter().filter(|(_, given)| *given) {
            let message = "belongs to an engine that publishes: this one is asked at url";
            self.note(&format!("{path}.{field}"), message);
        }
        let Some(url) = &file.url else {
            self.note(&format!("{path}.url"), "is missing, expected http://host:port");
            return None;
        };
        let (url, address) = self.server(path, url)?;
        Some(Reach { endpoint: address.into(), url: Some(url) })
    }

    /// Where the engine answers what it holds. What its answer leaves out must be the same for all
    /// blocks, or the view would have them where they are not.
    pub(super) fn snapshot(
        &mut self,
        path: &str,
        file: &SourceFile,
        engine: Option<&EngineKind>,
    ) -> Option<Endpoint> {
        let text = file.snapshot.as_ref().filter(|_| !self.is_adapted(engine))?;
        let path = format!("{path}.snapshot");
        if engine.is_some_and(|engine| !registry::has_snapshots(engine)) {
            if !is_drained(file, engine) {
                self.note(&path, "this engine has no snapshots");
            }
            return None;
        }
        if file.plain_cache != Some(true) {
            let message = "needs plain_cache = true: it names neither tiers nor copies";
            self.note(&path, message);
        }
        self.endpoint(&path, text, file.url.is_some())
    }

    /// How blocks are hashed, where only the operator can tell.
    pub(super) fn hashes(&mut self, path: &str, file: &SourceFile, engine: &EngineKind) {
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
    pub(super) fn addresses(&mut self, path: &str, file: &SourceFile) {
        let expected = "expected an address such as http://host:port/metrics";
        if let Some(url) = &file.metrics {
            self.address(&format!("{path}.metrics"), url, expected);
        }
        if let Some(url) = &file.flush {
            let expected = "expected an address such as http://host:port/path";
            self.address(&format!("{path}.flush"), url, expected);
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

    pub(super) fn transport(&mut self, path: &str, name: Option<&str>) -> Option<Transport> {
        let Some(name) = name else { return Some(Transport::default()) };
        match name.parse::<Transport>() {
            Ok(transport) => Some(transport),
            Err(error) => {
                self.note(&format!("{path}.transport"), format!("{error}, got {name:?}"));
                None
            }
        }
    }

    pub(super) fn endpoint(&mut self, path: &str, text: &str, bind: bool) -> Option<Endpoint> {
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
