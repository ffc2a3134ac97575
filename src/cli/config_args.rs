//! `--config` and its fallbacks: finds the file, reads it, and hands all layers to `config::load`.

use std::{io, path::PathBuf};

use crate::{
    cli::Environment,
    config::{self, Config, FileText, Flags, Problems},
};

/// Name of the variable that names the file.
pub const CONFIG_VARIABLE: &str = "KVBRIDGE_CONFIG";

/// The file read when neither flag nor variable names one; it may be absent.
pub const CONFIG_DEFAULT: &str = "kvbridge.toml";

/// Where the configuration comes from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file [default: $KVBRIDGE_CONFIG, else ./kvbridge.toml if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that was named cannot be read.
    #[error("cannot read configuration {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can be read and is wrong.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

impl ConfigArgs {
    /// Reads and proves.
    pub fn load(&self, environment: &Environment, mut flags: Flags) -> Result<Config, ConfigError> {
        flags.adapters.clone_from(&environment.adapters);
        let file = self.file(environment)?;
        Ok(config::load(file.as_ref(), &environment.variables, flags)?)
    }

    /// What was read, without secrets; asked for once [`load`](ConfigArgs::load) has proven it.
    pub fn shown(&self, environment: &Environment) -> Result<toml::Table, ConfigError> {
        let file = self.file(environment)?;
        Ok(config::shown(file.as_ref(), &environment.variables))
    }

    fn file(&self, environment: &Environment) -> Result<Option<FileText>, ConfigError> {
        let named =
            self.config.clone().or_else(|| environment.get(CONFIG_VARIABLE).map(Into::into));
        let (path, optional) = match named {
            Some(path) => (path, false),
            None => (environment.directory.join(CONFIG_DEFAULT), true),
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(FileText { name: path.display().to_string(), text })),
            Err(error) if optional && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ConfigError::Unreadable { path, source }),
        }
    }
}
