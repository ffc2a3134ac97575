//! The engines of the demonstration and the kvbridge that reads them, asked as anybody asks them:
//! over HTTP.

use std::time::Duration;

use kvbridge_schemas::{Replica, Trust};
use serde_json::{Value, json};

use super::{DemoError, script::Role, truth::Cut};
use crate::{
    cli::fake_engine::newest,
    clock::Clock,
    config::SourceFile,
    fake_engine::{self, FakeError, FakeSettings, Ports},
    pipeline::{Tasks, registry},
    web_client,
};

/// What all of them serve: routers compare replicas of one model.
const MODEL: &str = "demo";

/// Blocks of each cache: few, so that some are evicted.
const BLOCKS: u32 = 96;

/// One modelled engine.
pub(super) struct Engine {
    pub(super) role: Role,
    pub(super) name: &'static str,
    pub(super) release: String,
    pub(super) http: String,
    /// Of its replica.
    pub(super) key: String,
    source: SourceFile,
}

/// How a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) trust: Option<Trust>,
    pub(super) epoch: u64,
    pub(super) next_seq: u64,
    /// Oldest first.
    pub(super) changes: Vec<Change>,
}

/// What a replica changed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) at_ms: u64,
    pub(super) epoch: u64,
    /// Trust and reason.
    pub(super) said: String,
}

/// Everything that runs.
pub(super) struct World {
    pub(super) engines: Vec<Engine>,
    bridge: String,
    client: reqwest::Client,
}

/// Starts one engine of each kind, on free ports.
pub(super) async fn engines(tasks: &mut Tasks) -> Result<Vec<Engine>, FakeError> {
    let mut engines = Vec::new();
    for name in registry::engine_names() {
        let model = newest(name);
        let settings = FakeSettings {
            engine: model,
            blocks: BLOCKS,
            step: Duration::from_millis(1),
            drain_wait: Duration::from_millis(60),
            model: MODEL.to_owned(),
            ..FakeSettings::default()
        };
        let ports = fake_engine::start(settings, tasks, Clock::start()).await?;
        engines.push(Engine::of(Role::of(model), name, model.to_string(), ports));
    }
    Ok(engines)
}

impl Engine {
    fn of(role: Role, name: &'static str, release: String, ports: Ports) -> Engine {
        let http = ports.http;
        let instance = http.trim_start_matches("http://").to_owned();
        let replica = Replica { model: MODEL.to_owned(), instance: instance.clone(), rank: 0 };
        let mut source = SourceFile {
            engine: Some(name.to_owned()),
            model: Some(MODEL.to_owned()),
            instance: Some(instance),
            ..SourceFile::default()
        };
        match ports.ranks.into_iter().next().filter(|_| role != Role::Drained) {
            Some(rank) => (source.endpoint, source.replay) = (Some(rank.live), Some(rank.replay)),
            None => source.url = Some(http.clone()),
        }
        if role == Role::Paged {
            source.metrics = Some(format!("{http}/metrics"));
        }
        Engine { role, name, release, http, key: replica.key().to_string(), source }
    }

    /// How it is read.
    pub(super) fn source(&self) -> SourceFile {
        self.source.clone()
    }
}

impl World {
    pub(super) fn new(engines: Vec<Engine>, bridge: String) -> Result<World, DemoError> {
        Ok(World { engines, bridge, client: web_client::builder(["http:"]).build()? })
    }

    pub(super) async fn fault(&self, engine: &Engine, body: &str) -> Result<(), DemoError> {
        self.post(format!("{}/control", engine.http), body.to_owned()).await
    }

    /// So many requests, each of one step.
    pub(super) async fn traffic(&self, engine: &Engine, count: u64) -> Result<(), DemoError> {
        let burst = json!({"fault": "burst", "count": count});
        self.fault(engine, &burst.to_string()).await
    }

    pub(super) async fn flush(&self, engine: &Engine) -> Result<(), DemoError> {
        self.post(format!("{}/flush_cache", engine.http), String::new()).await
    }

    /// What the engine really has.
    pub(super) async fn truth(&self, engine: &Engine) -> Result<Cut, DemoError> {
        self.cut(format!("{}/truth", engine.http)).await
    }

    /// What the bridge says that it has.
    pub(super) async fn view(&self, engine: &Engine) -> Result<Cut, DemoError> {
        self.cut(format!("{}/v1/replicas/{}/snapshot", self.bridge, engine.key)).await
    }

    pub(super) async fn status(&self, engine: &Engine) -> Result<Status, DemoError> {
        let url = format!("{}/v1/replicas/{}", self.bridge, engine.key);
        let text = self.get(&url).await?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        Status::of(&value).ok_or(DemoError::Answer { url })
    }

    async fn cut(&self, url: String) -> Result<Cut, DemoError> {
        Cut::read(&self.get(&url).await?).ok_or(DemoError::Answer { url })
    }

    async fn get(&self, url: &str) -> Result<String, DemoError> {
        Ok(self.client.get(url).send().await?.error_for_status()?.text().await?)
    }

    async fn post(&self, url: String, body: String) -> Result<(), DemoError> {
        self.client.post(url).body(body).send().await?.error_for_status()?;
        Ok(())
    }
}

impl Status {
    fn of(value: &Value) -> Option<Status> {
        let said = |of: &Value| {
            let (trust, reason) = (of["trust"].as_str()?, of["reason"].as_str()?);
            let (at_ms, epoch) = (of["at"].as_u64()?, of["epoch"].as_u64()?);
            Some(Change { at_ms, epoch, said: format!("{trust} ({reason})") })
        };
        let changes = value["changes"].as_array()?;
        let trusts = [Trust::None, Trust::LowerBound, Trust::Exact];
        Some(Status {
            trust: trusts.into_iter().find(|trust| value["trust"] == trust.as_str()),
            epoch: value["epoch"].as_u64()?,
            next_seq: value["next_seq"].as_u64()?,
            changes: changes.iter().filter_map(said).collect(),
        })
    }
}
