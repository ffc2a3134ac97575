//! `kvbridge run`: reads engines, keeps their views true and answers routers.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use kvbridge_schemas::Trust;
use tokio::net::TcpListener;
use tracing::warn;

use super::{
    CliError, ConfigArgs, ConfigError, Console, Environment, Exit, SourceArgs, examples,
    play_args::PlaybackArgs,
    service::{Origin, Service},
    signal, version,
};
use crate::{
    checkpoint::StateError,
    config::{Config, Flags, Problems, SourceFile, limits},
    http::{Access, Security},
    pipeline::{self, Pipeline, ReplicaHandle, registry},
    playback::{PlayError, Player, Recording},
    telemetry,
};

/// Model name of a played recording.
const PLAYED_MODEL: &str = "capture";

/// Read engines, keep their views true, answer routers
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Address of the HTTP API [default: 127.0.0.1:8090]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Listen beyond the loopback although nobody is asked who they are
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    sources: SourceArgs,
    /// Play a recording as one more engine, on free ports of this machine
    #[arg(long, value_name = "FILE")]
    play: Option<PathBuf>,
    /// Engine that sent the recording [default: the first of this build]
    #[arg(long, value_name = "NAME", requires = "play", value_parser = PossibleValuesParser::new(registry::engine_names()))]
    engine: Option<String>,
    #[command(flatten)]
    playback: PlaybackArgs,
}

/// Why `run` did not start or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--drop` or `--once` without `--play`.
    #[error("--drop and --once belong to --play FILE")]
    NothingPlayed,
    /// Nothing to read.
    #[error("no source is configured; see kvbridge run --help")]
    NoSource,
    /// The API cannot listen.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The folder of checkpoints cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What was added over HTTP cannot be read again.
    #[error("{} {text}", path.display())]
    AddedSources {
        /// Where it is kept.
        path: PathBuf,
        /// Why.
        text: String,
    },
    /// It can be read, and is at odds with the configuration of today.
    #[error(
        "sources added over HTTP (sources.json in state.dir) are at odds with the configuration"
    )]
    Added(#[source] Problems),
    /// The pipeline did not start.
    #[error(transparent)]
    Start(#[from] pipeline::StartError),
    /// Metrics did not start.
    #[error(transparent)]
    Metrics(#[from] telemetry::MetricsError),
    /// A task ended that must not.
    #[error("task {name} ended; see the log")]
    TaskEnded {
        /// Which.
        name: String,
    },
}

impl RunError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            RunError::NothingPlayed
            | RunError::NoSource
            | RunError::AddedSources { .. }
            | RunError::Added(_)
            | RunError::State(_) => Exit::BadInput,
            RunError::Listen { .. }
            | RunError::Start(_)
            | RunError::Metrics(_)
            | RunError::TaskEnded { .. } => Exit::Failed,
        }
    }
}

impl RunArgs {
    pub(super) async fn execute(
        mut self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut player = match self.play.take() {
            Some(path) => Some(self.player(&path).await?),
            None if self.playback.once || self.playback.drop.is_some() => {
                return Err(RunError::NothingPlayed.into());
            }
            None => None,
        };
        let mut flags = Flags {
            listen: self.listen.take(),
            insecure: self.insecure,
            sources: std::mem::take(&mut self.sources.sources),
            ..Flags::default()
        };
        let engine =
            self.engine.take().or_else(|| registry::engine_names().next().map(str::to_owned));
        flags.sources.extend(player.as_ref().map(|player| played_source(player, engine)));
        let origin = Origin { args: self.config.clone(), environment, flags };
        let config = origin.load()?;
        // With a folder to keep them in, sources may come over HTTP.
        if !config.has_sources() && !config.bus.is_read() && config.state.dir.is_none() {
            return Err(RunError::NoSource.into());
        }
        let security = Security::read(&config.http).map_err(ConfigError::from)?;
        warn_if_exposed(&config, &security);
        let render = telemetry::install_metrics().map_err(RunError::from)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| RunError::Listen { address: config.listen, source })?;
        let mut stop = signal::Stop::new()?;
        let listen = listener.local_addr()?;
        let mut service = Service::start(config, security, listener, render).await?;
        banner(console, &service, listen)?;
        let pipeline = service.running.pipeline.clone();
        let playing = play(player.as_mut(), self.playback.once, &pipeline, console);
        let ended = live(&mut service, &origin, &mut stop, playing).await;
        tokio::select! {
            () = service.end() => ended,
            // Whoever asks twice wants no order.
            _ = stop.wait() => Ok(Exit::Interrupted),
        }
    }

    async fn player(&self, path: &std::path::Path) -> Result<Player, PlayError> {
        let recording = Recording::read(path)?;
        Player::bind(recording, self.playback.settings(0, 0)).await
    }
}

/// Runs until there is a reason to end; that `playing` has ended is one.
pub(super) async fn live(
    service: &mut Service,
    origin: &Origin<'_>,
    stop: &mut signal::Stop,
    playing: impl Future<Output = Result<Exit, CliError>>,
) -> Result<Exit, CliError> {
    let mut hangup = signal::hangup()?;
    let mut playing = std::pin::pin!(playing);
    loop {
        tokio::select! {
            exit = stop.wait() => return Ok(exit),
            name = service.running.tasks.ended() => {
                return Err(RunError::TaskEnded { name: name.unwrap_or_default() }.into());
            }
            exit = &mut playing => return exit,
            // What is wrong with the file is logged: a signal has nobody to answer.
            _ = hangup.recv() => drop(service.reload(origin).await),
            Some(found) = service.running.found.recv() => service.running.follow(found).await,
            Some(shift) = service.running.shifts.recv() => service.running.shift(shift).await,
            Ok(()) = service.running.lookout.seen.changed() => {
                service.running.follow_engines().await;
            }
            Some(request) = service.source_requests.recv() => service.answer(request).await,
            Some(answer) = service.reloads.recv() => {
                // Whoever asked may have gone; the reload counts all the same.
                drop(answer.send(service.reload(origin).await));
            }
        }
    }
}

fn played_source(player: &Player, engine: Option<String>) -> SourceFile {
    SourceFile {
        engine,
        endpoint: Some(player.live().to_owned()),
        replay: Some(player.replay().to_owned()),
        model: Some(PLAYED_MODEL.to_owned()),
        instance: Some(player.instance().to_owned()),
        ..SourceFile::default()
    }
}

/// What an operator may have meant, and should know.
fn warn_if_exposed(config: &Config, security: &Security) {
    let asks = matches!(security.access, Access::Tokens(_));
    if config.listen.ip().is_loopback() || security.tls.is_some() {
        return;
    }
    if asks {
        warn!(listen = %config.listen, "tokens travel unencrypted: set http.tls, or encrypt in front");
    } else {
        warn!(listen = %config.listen, "open to the network: nobody is asked who they are");
    }
}

fn banner(
    console: &mut Console<'_>,
    service: &Service,
    listen: std::net::SocketAddr,
) -> std::io::Result<()> {
    let (config, pipeline) = (&service.running.configured, &service.running.pipeline);
    let scheme = if config.http.tls.is_some() { "https" } else { "http" };
    console.line(&format!("kvbridge {} on {scheme}://{listen}", version()))?;
    for source in &config.sources {
        let key = source.replica.key();
        let engine = source.engine.as_str();
        if let Some(polled) = &source.polled {
            console.line(&format!("  {key}: {engine} drained at {}, no replay", polled.url))?;
            continue;
        }
        let verb = if source.bind { "bound at" } else { "from" };
        let replay = match &source.replay {
            Some(endpoint) => format!("replay {endpoint}"),
            None => "no replay: late start can only be lower_bound".to_owned(),
        };
        console.line(&format!("  {key}: {engine} {verb} {}, {replay}", source.endpoint))?;
    }
    for engine in &config.engines {
        console.line(&format!("  {}: to be asked where its events are", engine.name))?;
    }
    if let Some(address) = service.dynamo {
        console.line(&format!("  HTTP of Dynamo's indexer on {scheme}://{address}"))?;
    }
    if let Some(place) = pipeline.bus.place() {
        console.line(&format!("  bus: {place}"))?;
    }
    console.out.flush()
}

/// Plays, says how the replica stands afterwards, and ends only when asked to.
async fn play(
    player: Option<&mut Player>,
    once: bool,
    pipeline: &Pipeline,
    console: &mut Console<'_>,
) -> Result<Exit, CliError> {
    let Some(player) = player else { return std::future::pending().await };
    let count = player.play().await?;
    console.line(&format!("played {count} batches"))?;
    let mut reached = true;
    for (key, handle) in pipeline.fleet.replicas() {
        if handle.replica.model != PLAYED_MODEL || handle.replica.instance != player.instance() {
            continue;
        }
        reached = settled(&handle, player.last_seq()).await;
        let status = handle.status.borrow().clone();
        let blocks: Vec<String> =
            status.blocks.iter().map(|(tier, n)| format!("{n} on {}", tier.as_str())).collect();
        let blocks = if blocks.is_empty() { "none".to_owned() } else { blocks.join(", ") };
        console.line(&format!(
            "  {key}: trust {} ({}), next seq {}, blocks {blocks}",
            status.trust.device, status.reason, status.cursor.next_seq,
        ))?;
    }
    console.out.flush()?;
    if !once {
        return std::future::pending().await;
    }
    Ok(if reached { Exit::Ok } else { Exit::NotReached })
}

/// Waits until the replica has applied the last batch and may be used; not for ever.
async fn settled(replica: &ReplicaHandle, last_seq: u64) -> bool {
    let mut status = replica.status.clone();
    let reached = status.wait_for(|status| {
        status.trust.device > Trust::None && status.cursor.next_seq.0 > last_seq
    });
    let waited = tokio::time::timeout(limits::SETTLE_DEADLINE, reached).await;
    waited.is_ok_and(|reached| reached.is_ok())
}
