//! The task that asks one replica's engine.

use std::sync::Arc;

use kvbridge_adapters_api::EngineMetrics;
use kvbridge_schemas::{EngineKind, ReplicaKey};
use metrics::{Counter, counter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Members;
use crate::{
    config::{SourceConfig, limits},
    pipeline::{Command, Signs, registry},
    telemetry::{label, name},
    web_client,
};

/// Why an address told nothing.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// No answer.
    #[error("no answer: {}", web_client::root(.0))]
    Request(#[from] reqwest::Error),
    /// Another answer.
    #[error("answered {0}")]
    Status(u16),
    /// More than is read.
    #[error("answered more than {} bytes", limits::ENGINE_METRICS_BYTES_MAX)]
    TooLarge,
    /// An answer without what a member is asked for.
    #[error("tells no start time")]
    NoStart,
}

/// Asks one replica's engine, and passes on what it hears.
pub struct Poll {
    key: ReplicaKey,
    engine: EngineKind,
    rank: u32,
    client: reqwest::Client,
    metrics: Option<Address>,
    member_addresses: Vec<Address>,
    members: Members,
    signs: Arc<Signs>,
    commands: mpsc::Sender<Command>,
    failed: Counter,
}

/// One address, and whether it told nothing the last time.
struct Address {
    url: String,
    is_away: bool,
}

impl Poll {
    /// A task for that source; none where it names no address.
    pub fn new(
        source: &SourceConfig,
        signs: Arc<Signs>,
        commands: mpsc::Sender<Command>,
    ) -> Result<Option<Poll>, reqwest::Error> {
        if source.metrics.is_none() && source.members.is_empty() {
            return Ok(None);
        }
        let key = source.replica.key();
        let urls = source.metrics.iter().chain(&source.members).map(String::as_str);
        let client = web_client::builder(urls).timeout(limits::ENGINE_POLL_DEADLINE).build()?;
        let address = |url: &String| Address { url: url.clone(), is_away: false };
        Ok(Some(Poll {
            engine: source.engine.clone(),
            rank: source.replica.rank,
            client,
            metrics: source.metrics.as_ref().map(address),
            member_addresses: source.members.iter().map(address).collect(),
            members: Members::new(source.members.len()),
            signs,
            commands,
            failed: counter!(name::ENGINE_POLLS_FAILED, label::REPLICA => key.to_string()),
            key,
        }))
    }

    /// Asks until stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.look() => (),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(limits::ENGINE_POLL_EVERY) => (),
            }
        }
    }

    async fn look(&mut self) {
        // At once, or the slowest member would decide how old the news of the others are.
        let members = self.member_addresses.iter().map(|address| self.ask(&address.url));
        let metrics = async {
            match &self.metrics {
                Some(address) => Some(self.ask(&address.url).await),
                None => None,
            }
        };
        let (members, metrics) = tokio::join!(futures::future::join_all(members), metrics);
        let mut starts = Vec::new();
        for (address, answer) in self.member_addresses.iter_mut().zip(members) {
            let start = answer.and_then(|metrics| metrics.started_ms.ok_or(PollError::NoStart));
            starts.push(told(&self.key, &self.failed, address, start));
        }
        self.compare(&starts);
        if let (Some(address), Some(answer)) = (&mut self.metrics, metrics)
            && let Some(figures) = told(&self.key, &self.failed, address, answer)
        {
            self.signs.set_figures(figures.pool_blocks, figures.request_count);
            self.signs.set_engine_tokens(figures.queried_tokens, figures.hit_tokens);
        }
    }

    fn compare(&mut self, starts: &[Option<u64>]) {
        if self.members.changed(starts) {
            // A driver that has too much to do hears of it at the next look.
            if self.commands.try_send(Command::Restarted).is_err() {
                return;
            }
            info!(replica = %self.key, "a member of the engine started anew");
        }
        self.members.take(starts);
    }

    async fn ask(&self, url: &str) -> Result<EngineMetrics, PollError> {
        let response = self.client.get(url).send().await?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(PollError::Status(response.status().as_u16()));
        }
        let text = web_client::body(response, limits::ENGINE_METRICS_BYTES_MAX).await?;
        let text = text.ok_or(PollError::TooLarge)?;
        Ok(registry::read_metrics(&self.engine, &text, self.rank))
    }
}

/// What was told, with one line in the log when an address falls silent or speaks again.
fn told<T>(
    key: &ReplicaKey,
    failed: &Counter,
    address: &mut Address,
    answer: Result<T, PollError>,
) -> Option<T> {
    let url = &address.url;
    match answer {
        Ok(told) => {
            if std::mem::take(&mut address.is_away) {
                info!(replica = %key, %url, "the engine's metrics can be read again");
            }
            Some(told)
        }
        Err(error) => {
            failed.increment(1);
            if !std::mem::replace(&mut address.is_away, true) {
                warn!(replica = %key, %url, %error, "the engine's metrics cannot be read");
            }
            None
        }
    }
}
