//! What an engine's server tells of where its events are, and the sources that follow.

use kvbridge_schemas::EngineKind;

use super::Say;
use crate::{
    config::{self, Config, EngineConfig, Flags, Problems, SourceConfig, SourceFile, Told},
    discovery::{Address, Answer, Place, Refusal},
    doctor::ServerSight,
    lookout::Asker,
    pipeline::registry,
};

/// Refusals of a server that did not answer at all.
const UNREACHABLE: [&str; 3] = ["no_answer", "timed_out", "no_client"];

/// What is known before anything is listened to.
pub(super) struct Server {
    pub(super) sight: ServerSight,
    pub(super) url: Option<String>,
    pub(super) engine: Option<EngineKind>,
    pub(super) model: Option<String>,
    pub(super) block_size: Option<u32>,
    pub(super) algorithm: Option<String>,
    /// One for each rank.
    pub(super) sources: Vec<SourceConfig>,
    /// What they are read by.
    pub(super) config: Config,
}

fn load(source: SourceFile) -> Result<Config, Problems> {
    config::load(None, &[], Flags { sources: vec![source], ..Flags::default() })
}

/// Asks the engine, if it is given by its server.
pub(super) async fn ask(
    asker: &Asker,
    source: &SourceFile,
    say: Say<'_>,
) -> Result<Server, Problems> {
    let named = source.engine.as_deref().map(EngineKind::from_name);
    let is_polled = source.url.is_some() && named.as_ref().is_some_and(registry::is_polled);
    // The configuration needs no word of such an engine; here its word is wanted.
    let engine = source.engine.clone().filter(|_| !is_polled);
    let config = load(SourceFile { engine, ..source.clone() })?;
    let asked = config.engines.first().cloned();
    let (model, block_size, algorithm) = (source.model.clone(), None, None);
    let sources = config.sources.clone();
    let engine = named.clone().or_else(|| sources.first().map(|source| source.engine.clone()));
    let sight = ServerSight::NotAsked;
    let mut server =
        Server { sight, url: None, engine, model, block_size, algorithm, sources, config };
    let Some((asked, address)) = asked.and_then(|asked| match asked.place.clone() {
        Place::Here(address) => Some((asked, address)),
        Place::Name { .. } => None,
    }) else {
        return Ok(server);
    };
    let url = asked.url(&address);
    say(&format!("asking {url} where its events are"));
    server.url = Some(url);
    match asker.ask(&asked, &address).await {
        Answer::Told(told) => server.told(told, (&asked, &address)),
        Answer::Nothing(_) => server.sight = ServerSight::NotPublishing,
        Answer::Failed(Refusal { reason, detail }) if UNREACHABLE.contains(&reason) => {
            server.sight = ServerSight::Unreachable(detail);
        }
        Answer::Failed(_) if is_polled => {
            // An older release: it can be asked for its events all the same.
            let name = source.engine.as_deref().unwrap_or_default();
            server.sight = ServerSight::Told(format!("{name}, as named; it does not tell"));
            // Where it is said where it publishes, it is not asked.
            let url = source.url.clone().filter(|_| source.endpoint.is_none());
            server.config = load(SourceFile { url, ..source.clone() })?;
            server.sources.clone_from(&server.config.sources);
        }
        Answer::Failed(Refusal { detail, .. }) => server.sight = ServerSight::Untold(detail),
    }
    Ok(server)
}

impl Server {
    fn told(&mut self, told: Told, (asked, address): (&EngineConfig, &Address)) {
        // The asker has tried it.
        self.sources = asked.sources(address, &told).unwrap_or_default();
        let mut words = format!("{}, {} ranks", told.engine.as_str(), self.sources.len());
        if let Some(size) = told.block_size {
            words.push_str(&format!(", {size} tokens per block"));
        }
        if let Some(algorithm) = &told.algorithm {
            words.push_str(&format!(", hashes {algorithm}"));
        }
        self.sight = ServerSight::Told(words);
        self.model = self.model.take().or(told.model);
        self.engine = Some(told.engine);
        self.block_size = told.block_size;
        self.algorithm = told.algorithm;
    }
}
