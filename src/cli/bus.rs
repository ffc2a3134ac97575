//! `kvbridge bus`: how a NATS bus stands, its streams beside what they must be, who may do what.

use async_nats::{ConnectOptions, jetstream::stream::Config as StreamConfig};

use super::{
    AccessArgs, CliError, Console, Environment, Exit, NatsArgs, bus_permissions::PermissionsArgs,
    bus_status, examples,
};
use crate::{
    bus::nats::{
        ConnectFailure, Plan,
        browse::{BrowseError, Browser},
        connect,
        streams::{self, StreamFailure},
    },
    config::{Config, NatsConfig},
};

/// Look at a NATS bus, set it up, print who needs which permissions
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::BUS)]
pub struct BusArgs {
    #[command(subcommand)]
    action: BusAction,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum BusAction {
    /// Show streams and what differs, replicas, views and bridges; changes nothing
    Status {
        #[command(flatten)]
        nats: NatsArgs,
        #[command(flatten)]
        access: AccessArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make missing streams and change what differs
    Apply {
        #[command(flatten)]
        nats: NatsArgs,
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Print the least that users need, for nats-server's configuration; connects to nothing
    Permissions(PermissionsArgs),
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
        match self.action {
            BusAction::Status { nats, access, json } => {
                let (config, nats) = nats.load(&access, environment)?;
                let browser = Browser::open(&nats).await?;
                let replicas = config.sources.iter().map(|source| &source.replica);
                bus_status::show(console, &browser.standing(replicas).await?, json)
            }
            BusAction::Apply { nats, access } => {
                let (config, nats) = nats.load(&access, environment)?;
                apply(&config, &nats, console).await
            }
            BusAction::Permissions(args) => args.execute(environment, console),
        }
    }
}

async fn apply(
    config: &Config,
    nats: &NatsConfig,
    console: &mut Console<'_>,
) -> Result<Exit, CliError> {
    let wanted = wanted(config, nats);
    if wanted.is_empty() {
        return Err(BusError::NoStreams.into());
    }
    let client = connect(nats, ConnectOptions::new()).await.map_err(BusError::from)?;
    let context = async_nats::jetstream::new(client);
    let mut good = true;
    for wanted in &wanted {
        let mut report = streams::look(&context, wanted).await.map_err(BusError::from)?;
        if !report.is_good() {
            let before = streams::apply(&context, wanted).await.map_err(BusError::from)?;
            let done = if before.info.is_some() { "changed" } else { "made" };
            console.line(&format!("{}: {done}", before.name))?;
            report = streams::look(&context, wanted).await.map_err(BusError::from)?;
        }
        good &= report.is_good();
        bus_status::stream(console, &report)?;
    }
    console.out.flush()?;
    Ok(if good { Exit::Ok } else { Exit::NotReached })
}

fn wanted(config: &Config, nats: &NatsConfig) -> Vec<StreamConfig> {
    let plan = Plan::new(&nats.streams);
    let names = plan.names(config.sources.iter().map(|source| &source.replica));
    names.iter().map(|name| plan.wanted(name)).collect()
}
