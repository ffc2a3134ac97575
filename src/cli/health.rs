//! `kvbridge health`: whether a kvbridge is ready, for healthchecks of images without a client.

use std::time::Duration;

use super::{
    CliError, Console, Exit,
    bridge::{self, TlsArgs},
    examples,
};

/// Whoever checks health asks again every few seconds: an answer that takes longer is none.
const TIMEOUT: &str = "2s";

/// Ask a running kvbridge whether it is ready
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::HEALTH)]
pub struct HealthArgs {
    /// What to ask; any answer but 200 is a failure
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090/readyz")]
    url: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// Longest time for an answer
    #[arg(long, value_name = "SPAN", default_value = TIMEOUT, value_parser = humantime::parse_duration)]
    timeout: Duration,
}

impl HealthArgs {
    pub(super) async fn execute(self, console: &mut Console<'_>) -> Result<Exit, CliError> {
        let failed = |source| self.tls.no_answer(&self.url, source);
        let client = bridge::client(&self.tls, &self.url)?;
        let response = client.get(&self.url).timeout(self.timeout).send().await.map_err(failed)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(bridge::refusal(response, self.url).await.into());
        }
        if let Some(text) = bridge::text(response).await.filter(|text| !text.is_empty()) {
            console.line(&text)?;
        }
        Ok(Exit::Ok)
    }
}
