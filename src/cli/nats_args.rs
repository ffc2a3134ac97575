//! Which NATS server, who we are there, and what is on it: flags over `[bus]`.

use std::path::{Path, PathBuf};

use kvbridge_schemas::{Replica, ReplicaKey};

use super::{
    BridgeError, CliError, ConfigArgs, Environment, TlsArgs,
    bridge::{one_line, path_text},
    bus::BusError,
};
use crate::{
    bus::nats::browse::{BrowseError, Browser},
    config::{BusConfig, BusFile, Config, Flags, NatsConfig},
};

/// A NATS server. What is not said here is taken from `bus` of the configuration.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "NATS")]
pub struct NatsArgs {
    /// Servers of a NATS bus, nats://host:port, with commas between [default: bus.url]
    #[arg(long, value_name = "URL")]
    pub(super) nats: Option<String>,
    /// User name; with --password-file
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// A file with its password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// A file with the seed of an nkey
    #[arg(long, value_name = "FILE")]
    nkey_file: Option<PathBuf>,
    /// A credentials file (JWT and seed)
    #[arg(long, value_name = "FILE")]
    creds: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How a server is reached, NATS or a kvbridge.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AccessArgs {
    /// A file with the token that the server wants
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

impl NatsArgs {
    /// Whether the command line speaks of a NATS server.
    pub(super) fn is_given(&self) -> bool {
        self.nats.is_some() || self.config.config.is_some()
    }

    /// The server of the command line and the configuration.
    pub(super) fn load(
        &self,
        access: &AccessArgs,
        environment: &Environment,
    ) -> Result<(Config, NatsConfig), CliError> {
        let server = self.server(access)?;
        let flags = Flags { server, ..Flags::default() };
        let config = self.config.load(environment, flags)?;
        match &config.bus {
            BusConfig::Nats(nats) => {
                let nats = NatsConfig::clone(nats);
                Ok((config, nats))
            }
            BusConfig::Embedded | BusConfig::Zmq(_) => Err(BusError::NotNats.into()),
        }
    }

    /// A connection to it.
    pub(super) async fn open(
        &self,
        access: &AccessArgs,
        environment: &Environment,
    ) -> Result<Browser, CliError> {
        let (_, nats) = self.load(access, environment)?;
        Ok(Browser::open(&nats).await?)
    }

    fn server(&self, access: &AccessArgs) -> Result<BusFile, BridgeError> {
        let line = |path: &Option<PathBuf>| path.as_deref().map(one_line).transpose();
        let text = |path: &Option<PathBuf>| path.as_deref().map(path_text).transpose();
        Ok(BusFile {
            url: self.nats.clone(),
            token: line(&access.token_file)?,
            user: self.user.clone(),
            password: line(&self.password_file)?,
            nkey: line(&self.nkey_file)?,
            creds: text(&self.creds)?,
            tls_ca: text(&access.tls.ca)?,
            tls_cert: text(&access.tls.cert)?,
            tls_key: text(&access.tls.key)?,
            ..BusFile::default()
        })
    }
}

/// Reads a replica's key off the command line.
pub(super) fn replica(text: &str) -> Result<Replica, String> {
    ReplicaKey::parse(text).map_err(|error| {
        format!("{error}; expected a key such as llama.10=2E0=2E0=2E7=3A8000.0, see bus status")
    })
}

impl From<BrowseError> for CliError {
    fn from(error: BrowseError) -> CliError {
        CliError::Bus(error.into())
    }
}

/// Where a file stands that a command writes or reads, for its errors.
pub(super) fn file_error(path: &Path, error: impl std::fmt::Display) -> BridgeError {
    BridgeError::File { path: path.to_owned(), message: error.to_string() }
}
