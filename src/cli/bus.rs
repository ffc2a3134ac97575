//! `kvbridge bus`: the streams of a NATS bus beside what they must be.

use async_nats::{ConnectOptions, jetstream::stream::Config as StreamConfig};

use super::{CliError, ConfigArgs, Console, Environment, Exit, examples};
use crate::{
    bus::nats::{
        ConnectFailure, Plan, StreamReport,
        browse::BrowseError,
        connect,
        streams::{self, StreamFailure},
    },
    config::{BusConfig, Config, Flags, NatsConfig},
};

/// Look at the streams of a NATS bus, or set them up
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::BUS)]
pub struct BusArgs {
    #[command(subcommand)]
    action: BusAction,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum BusAction {
    /// Show each stream and what differs; changes nothing
    Status {
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Make missing streams and change what differs
    Apply {
        #[command(flatten)]
        config: ConfigArgs,
    },
}

/// Why `bus` could not look or change.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// There is no bus to look at.
    #[error("no NATS server: neither --nats nor bus.kind = \"nats\" is given")]
    NotNats,
    /// No replica, no stream.
    #[error("no source is configured: with bus.shards \"model\" there are no streams")]
    NoStreams,
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectFailure),
    /// The server refuses.
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// It could not be looked at.
    #[error(transparent)]
    Browse(#[from] BrowseError),
}

impl BusError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            BusError::NotNats | BusError::NoStreams => Exit::BadInput,
            BusError::Connect(_) | BusError::Stream(_) | BusError::Browse(_) => Exit::Failed,
        }
    }
}

impl BusArgs {
    pub(super) async fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let (args, apply) = match self.action {
            BusAction::Status { config } => (config, false),
            BusAction::Apply { config } => (config, true),
        };
        let config = args.load(environment, Flags::default())?;
        let BusConfig::Nats(nats) = &config.bus else { return Err(BusError::NotNats.into()) };
        let wanted = wanted(&config, nats);
        if wanted.is_empty() {
            return Err(BusError::NoStreams.into());
        }
        let client = connect(nats, ConnectOptions::new()).await.map_err(BusError::from)?;
        let context = async_nats::jetstream::new(client);
        let mut good = true;
        for wanted in &wanted {
            let mut report = streams::look(&context, wanted).await.map_err(BusError::from)?;
            if apply && !report.is_good() {
                let before = streams::apply(&context, wanted).await.map_err(BusError::from)?;
                let done = if before.info.is_some() { "changed" } else { "made" };
                console.line(&format!("{}: {done}", before.name))?;
                report = streams::look(&context, wanted).await.map_err(BusError::from)?;
            }
            good &= report.is_good();
            show(console, &report)?;
        }
        console.out.flush()?;
        Ok(if good { Exit::Ok } else { Exit::NotReached })
    }
}

fn wanted(config: &Config, nats: &NatsConfig) -> Vec<StreamConfig> {
    let plan = Plan::new(&nats.streams);
    let names = plan.names(config.sources.iter().map(|source| &source.replica));
    names.iter().map(|name| plan.wanted(name)).collect()
}

fn show(console: &mut Console<'_>, report: &StreamReport) -> std::io::Result<()> {
    let Some(info) = &report.info else {
        return console.line(&format!("{}: missing", report.name));
    };
    let word = if report.is_good() { "as wanted" } else { "differs" };
    console.line(&format!("{}: {word}", report.name))?;
    let state = &info.state;
    console.line(&format!(
        "  {} messages, {} bytes, {} replicas, seqs {} to {}, created {}",
        state.messages,
        state.bytes,
        state.subjects_count,
        state.first_sequence,
        state.last_sequence,
        info.created,
    ))?;
    for difference in &report.differences {
        console.line(&format!("  {difference}"))?;
    }
    Ok(())
}
