//! SHELL. Engines that this repository does not know: an adapter under a name of its own, which
//! `engine = "…"` of a `[[sources]]` entry then means. `docs/adapters.md` says how to write one.

use std::{collections::BTreeMap, error::Error, fmt, sync::Arc, time::Duration};

use kvbridge_adapters_api::{Counters, Source};
use kvbridge_schemas::{EngineKind, Projection, Replica};

use crate::config::Endpoint;

/// Longest name of an engine: it travels in every envelope.
const NAME_BYTES_MAX: usize = 64;

/// What envelopes say where nobody knows the engine.
pub(crate) const UNKNOWN: &str = "unknown";

/// What only the adapter understands: `[sources.options]`, passed through untouched.
pub type Options = serde_json::Map<String, serde_json::Value>;

/// What a `[[sources]]` entry says of one rank, and the bounds that its adapter must keep.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Whose cache.
    pub replica: Replica,
    /// Where its events are: of a later rank the port is that many higher. Beside `url`, its host
    /// and port.
    pub endpoint: Endpoint,
    /// The engine's HTTP server, where the entry names that and no endpoint. All ranks have one.
    pub url: Option<String>,
    /// Where its journal answers.
    pub replay: Option<Endpoint>,
    /// The adapter's own table.
    pub options: Options,
    /// Batches that may wait to be read; what comes then is dropped, and `Overflowed` in its place.
    pub queue_batches: usize,
    /// The largest message that may be read.
    pub frame_bytes_max: usize,
    /// First and longest delay before a new connection.
    pub reconnect: (Duration, Duration),
    /// Becomes the metrics of the source.
    pub counters: Arc<Counters>,
}

/// A source that has begun to connect, and what the fold cannot read from its capabilities.
pub struct Adapted {
    /// The stream. Dropping it must end whatever reads for it: nothing else stops it.
    pub source: Box<dyn Source>,
    /// Which 64 bits of a block's hash tell it from others: those in which the engine's differ.
    pub projection: Projection,
}

/// Why an adapter opened no source, in its own words.
pub type AdapterFault = Box<dyn Error + Send + Sync>;

type Factory = dyn Fn(Opening) -> Result<Adapted, AdapterFault> + Send + Sync;

/// Adapters by the name of their engine.
#[derive(Clone, Default)]
pub struct Adapters {
    by_name: BTreeMap<String, Arc<Factory>>,
}

/// A name under which no adapter can be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// An engine of this repository has it, whether or not this build reads that one.
    #[error("engine {0} is built in: an adapter needs a name of its own")]
    BuiltIn(String),
    /// Another adapter has it.
    #[error("two adapters have the name {0}")]
    Taken(String),
    /// It cannot travel.
    #[error("engine name {0:?}: expected 1 to {NAME_BYTES_MAX} letters, digits, - and _")]
    Unusable(String),
}

impl Adapters {
    /// None yet.
    pub fn new() -> Adapters {
        Adapters::default()
    }

    /// Registers one. It is called for each source of its engine, inside the runtime, and again
    /// when a source is opened anew; it must not wait: connecting is the source's own work.
    pub fn add<F>(&mut self, name: &str, factory: F) -> Result<(), AdapterError>
    where
        F: Fn(Opening) -> Result<Adapted, AdapterFault> + Send + Sync + 'static,
    {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let too_long = name.len() > NAME_BYTES_MAX;
        if name.is_empty() || too_long || !name.chars().all(fits) || name == UNKNOWN {
            return Err(AdapterError::Unusable(name.to_owned()));
        }
        if !matches!(EngineKind::from_name(name), EngineKind::Other(_)) {
            return Err(AdapterError::BuiltIn(name.to_owned()));
        }
        if self.by_name.contains_key(name) {
            return Err(AdapterError::Taken(name.to_owned()));
        }
        self.by_name.insert(name.to_owned(), Arc::new(factory));
        Ok(())
    }

    /// Their names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Whether one reads that engine.
    pub fn has(&self, engine: &EngineKind) -> bool {
        self.by_name.contains_key(engine.as_str())
    }

    /// What it makes of an entry; `None` = no adapter reads that engine.
    pub(crate) fn open(
        &self,
        engine: &EngineKind,
        opening: Opening,
    ) -> Option<Result<Adapted, AdapterFault>> {
        self.by_name.get(engine.as_str()).map(|factory| factory(opening))
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// By name: a program registers them once, before it reads a configuration.
impl PartialEq for Adapters {
    fn eq(&self, other: &Adapters) -> bool {
        self.names().eq(other.names())
    }
}

impl Eq for Adapters {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_usable_and_nobody_elses() {
        let mut adapters = Adapters::new();
        let mut add = |name: &str| {
            let added = adapters.add(name, |_| Err("opens nothing".into()));
            added.map_err(|error| error.to_string())
        };
        assert_eq!(add("tiny-engine"), Ok(()));
        assert_eq!(add("tiny-engine"), Err("two adapters have the name tiny-engine".to_owned()));
        for built_in in ["vllm", "sglang", "trtllm"] {
            assert!(add(built_in).unwrap_err().contains("is built in"));
        }
        for unusable in ["", "a b", "ä", "a.b", UNKNOWN, &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert!(add(unusable).unwrap_err().contains("letters, digits"), "{unusable}");
        }
        assert_eq!(adapters.names().collect::<Vec<_>>(), ["tiny-engine"]);
    }
}
