//! `kvbridge check-config`: says all that is wrong with the configuration, opens nothing.

use super::{CliError, ConfigArgs, ConfigError, Console, Environment, Exit, examples};
use crate::config::Flags;

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
        match self.config.load(environment, Flags::default()) {
            Ok(config) => {
                console.line(&format!("ok: {} replicas", config.sources.len()))?;
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
