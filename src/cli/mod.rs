//! The command line: one file per subcommand, exit codes in one place.

mod added;
mod bridge;
mod bus;
mod bus_permissions;
mod bus_status;
mod check_config;
mod completions;
mod config_args;
mod console;
mod decode;
mod demo;
mod doctor;
mod examples;
mod exit;
mod fake_engine;
mod health;
mod job;
mod man;
mod nats_args;
mod play;
mod play_args;
mod pretty;
mod replay;
mod run;
mod service;
mod signal;
mod sink;
mod sink_read;
mod sink_shown;
#[cfg(feature = "sink-smg")]
mod sink_stream;
mod snapshot;
mod source_args;
mod sse;
mod support_bundle;
mod tail;
mod tail_bus;

use std::{io, path::PathBuf, sync::LazyLock};

use clap::{Parser, Subcommand};

pub use bridge::{BridgeError, TlsArgs};
pub use bus::{BusArgs, BusError};
pub use bus_permissions::PermissionsArgs;
pub use check_config::CheckArgs;
pub use completions::CompletionsArgs;
pub use config_args::{CONFIG_DEFAULT, CONFIG_VARIABLE, ConfigArgs, ConfigError};
pub use console::Console;
pub use decode::DecodeArgs;
pub use demo::{DemoArgs, DemoError};
pub use doctor::{DoctorArgs, DoctorError};
pub use exit::Exit;
pub use fake_engine::FakeEngineArgs;
pub use health::HealthArgs;
pub use job::{FlushArgs, ResyncArgs};
pub use man::ManArgs;
pub use nats_args::{AccessArgs, NatsArgs};
pub use play::PlayArgs;
pub use play_args::{PlaybackArgs, Seqs};
pub use replay::{ReplayArgs, ReplayError};
pub use run::{RunArgs, RunError};
pub use sink::{SinkArgs, SinkError};
pub use snapshot::{SnapshotArgs, SnapshotError};
pub use source_args::SourceArgs;
pub use support_bundle::SupportBundleArgs;
pub use tail::{TailArgs, TailError};
pub use tail_bus::TailBusArgs;

use crate::{
    adapters::Adapters,
    fake_engine::{FakeError, ReleaseError},
    playback::PlayError,
    telemetry::{LOG_DEFAULT, LOG_DEFAULT_TOOLS, LOG_OFF, LOG_VARIABLE, LogError, start_log},
};

/// Keeps a cache-aware router's map of KV blocks true, knows when it is not, and says so
#[derive(Clone, Debug, Parser)]
#[command(name = "kvbridge", version = version(), after_help = examples::TOP)]
pub struct Cli {
    /// Log filter, e.g. `info` or `kvbridge=debug` [default: $KVBRIDGE_LOG, else info for run, off
    /// for demo, warn for the others]
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Read engines, keep their views true, answer routers
    Run(Box<RunArgs>),
    /// Three modelled engines, their faults, and the page: see what this program does
    Demo(DemoArgs),
    /// Show what a running kvbridge applies, what is on a bus, or what an engine sends
    Tail(Box<TailArgs>),
    /// Read seqs of a replica back from a bus
    Replay(Box<ReplayArgs>),
    /// Show, save and compare the views of a replica on a bus
    Snapshot(Box<SnapshotArgs>),
    /// Play a recording as an engine
    Play(PlayArgs),
    /// Model an engine: its cache, its event stream, its HTTP API, and faults on demand
    FakeEngine(Box<FakeEngineArgs>),
    /// Print the envelopes of recorded frames, one JSON object a line
    Decode(DecodeArgs),
    /// Ask a running kvbridge whether it is ready
    Health(HealthArgs),
    /// Bring replicas of a running kvbridge back to a proven state
    Resync(ResyncArgs),
    /// Have engines empty their caches, and wait until the views show it
    Flush(FlushArgs),
    /// Look at an engine or a running kvbridge and say what is wrong and what to change
    Doctor(Box<DoctorArgs>),
    /// Check the configuration without opening anything
    CheckConfig(CheckArgs),
    /// Look at a NATS bus, set it up, print who needs which permissions
    Bus(Box<BusArgs>),
    /// Try what routers are fed with
    Sink(Box<SinkArgs>),
    /// Collect what whoever helps needs to see, without prompts and secrets
    SupportBundle(Box<SupportBundleArgs>),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Write manual pages into a folder
    Man(ManArgs),
}

/// The version, with the commit if the build was told (`KVBRIDGE_COMMIT`): a source archive has
/// none.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("KVBRIDGE_COMMIT") {
            Some(commit) if !commit.is_empty() => format!("{version} ({commit})"),
            Some(_) | None => version.to_owned(),
        }
    });
    &VERSION
}

/// What `main` read from the process's surroundings and brings itself, so that nothing else has to.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Environment variables that are text.
    pub variables: Vec<(String, String)>,
    /// The working directory.
    pub directory: PathBuf,
    /// Engines that this program reads beside those which are built in.
    pub adapters: Adapters,
}

impl Environment {
    /// The variable of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(key, _)| key == name).map(|(_, text)| text.as_str())
    }
}

/// Why a subcommand ended early.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The output could not be written.
    #[error("cannot write output")]
    Output(#[from] io::Error),
    /// No configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log could not be set up.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A recording could not be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// A fake engine knows no such release.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A fake engine did not start.
    #[error(transparent)]
    FakeEngine(#[from] FakeError),
    /// `run` did not start or ended.
    #[error(transparent)]
    Run(#[from] RunError),
    /// `tail` did not start or ended.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// `replay` was refused or could not write.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// `snapshot` found something else than a view.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// `doctor` could not begin.
    #[error(transparent)]
    Doctor(#[from] DoctorError),
    /// `health` got no answer or another one.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// `demo` lost one of its parts.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// `bus` could not look or change.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// `sink` had nothing to look at.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

impl CliError {
    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            // The reader has seen enough (`| head`): that is its right.
            CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            CliError::Demo(DemoError::Output(error))
                if error.kind() == io::ErrorKind::BrokenPipe =>
            {
                Exit::Ok
            }
            CliError::Output(_) | CliError::FakeEngine(_) | CliError::Demo(_) => Exit::Failed,
            CliError::Config(_) | CliError::Log(_) | CliError::Release(_) => Exit::BadInput,
            CliError::Play(PlayError::Line { .. } | PlayError::Empty { .. }) => Exit::BadInput,
            CliError::Play(PlayError::Unreadable { .. } | PlayError::Serve(_)) => Exit::Failed,
            CliError::Run(error) => error.exit(),
            CliError::Tail(error) => error.exit(),
            CliError::Replay(error) => error.exit(),
            CliError::Snapshot(error) => error.exit(),
            CliError::Doctor(error) => error.exit(),
            CliError::Bridge(error) => error.exit(),
            CliError::Bus(error) => error.exit(),
            CliError::Sink(error) => error.exit(),
        }
    }
}

/// Runs one subcommand to its end.
pub async fn execute(
    cli: Cli,
    environment: &Environment,
    console: &mut Console<'_>,
) -> Result<Exit, CliError> {
    let filter = cli.log.as_deref().or_else(|| environment.get(LOG_VARIABLE));
    start_log(filter.unwrap_or(match cli.command {
        Command::Run(_) => LOG_DEFAULT,
        Command::Demo(_) => LOG_OFF,
        _ => LOG_DEFAULT_TOOLS,
    }))?;
    match cli.command {
        Command::Run(args) => Box::pin(args.execute(environment, console)).await,
        Command::Demo(args) => Box::pin(args.execute(console)).await,
        Command::Tail(args) => Box::pin(args.execute(environment, console)).await,
        Command::Replay(args) => Box::pin(args.execute(environment, console)).await,
        Command::Snapshot(args) => Box::pin(args.execute(environment, console)).await,
        Command::Play(args) => Box::pin(args.execute(console)).await,
        Command::FakeEngine(args) => Box::pin(args.execute(console)).await,
        Command::Health(args) => args.execute(console).await,
        Command::Resync(args) => Box::pin(args.execute(console)).await,
        Command::Flush(args) => Box::pin(args.execute(console)).await,
        Command::Doctor(args) => Box::pin(args.execute(console)).await,
        Command::Decode(args) => Ok(args.execute(console)?),
        Command::CheckConfig(args) => args.execute(environment, console),
        Command::Bus(args) => Box::pin(args.execute(environment, console)).await,
        Command::Sink(args) => Box::pin(args.execute(environment, console)).await,
        Command::SupportBundle(args) => Box::pin(args.execute(environment, console)).await,
        Command::Completions(args) => Ok(args.execute(console)?),
        Command::Man(args) => Ok(args.execute(console)?),
    }
}
