//! `kvbridge check-config`: says all that is wrong with the configuration, opens nothing.

use super::{CliError, ConfigArgs, ConfigError, Console, Environment, Exit, examples};
use crate::{config::Flags, http::Security};

/// Check the configuration without opening anything
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::CHECK)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

impl CheckArgs {
    pub(super) fn execute(
        &self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let loaded = self.config.load(environment, Flags::default());
        // Files that guard the API are part of the configuration; they are read, not used.
        let proven = loaded.and_then(|config| match Security::read(&config.http) {
            Ok(_) => Ok(config),
            Err(problems) => Err(problems.into()),
        });
        match proven {
            Ok(config) => {
                let mut line = format!("ok: {} replicas", config.sources.len());
                if !config.engines.is_empty() {
                    line.push_str(&format!(", {} entries to ask", config.engines.len()));
                }
                console.line(&line)?;
                Ok(Exit::Ok)
            }
            Err(ConfigError::Wrong(problems)) => {
                for problem in &problems.0 {
                    console.line(&problem.to_string())?;
                }
                console.message(&format!("{} problems", problems.0.len()));
                Ok(Exit::BadInput)
            }
            Err(error) => Err(error.into()),
        }
    }
}
