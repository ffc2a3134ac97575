//! `kvbridge tail --nats`: envelopes as they lie on a bus.

use std::time::Duration;

use kvbridge_schemas::{Replica, Seq};

use super::{CliError, Console, Exit, NatsArgs, nats_args::replica, pretty};
use crate::bus::nats::browse::{Begin, Browser};

/// What of a bus is shown.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "NATS")]
pub struct TailBusArgs {
    #[command(flatten)]
    pub(super) nats: NatsArgs,
    /// Only this replica, by its key
    #[arg(long, value_name = "KEY", value_parser = replica)]
    replica: Option<Replica>,
    /// Begin with what was stored in the last, e.g., 10m [default: what is stored from now on]
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// Begin with that seq of the replica's newest life, or with the oldest that is left of it
    #[arg(long, value_name = "SEQ", requires = "replica", conflicts_with = "since")]
    from_seq: Option<u64>,
}

impl TailBusArgs {
    /// Whether the command line speaks of a bus.
    pub(super) fn is_given(&self) -> bool {
        self.nats.is_given()
            || self.replica.is_some()
            || self.since.is_some()
            || self.from_seq.is_some()
    }

    pub(super) async fn tail(
        &self,
        browser: &Browser,
        mut left: u64,
        tokens: bool,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let begin = match (self.from_seq, self.since) {
            (Some(seq), _) => Begin::Seq(Seq(seq)),
            (None, Some(span)) => Begin::Since(span),
            (None, None) => Begin::Now,
        };
        let mut following = browser.follow(self.replica.clone(), begin).await?;
        if !following.has_streams() {
            console.message("no stream yet: waiting for one");
        }
        while left > 0 {
            let seen = following.next().await?;
            match seen.envelope() {
                Ok(envelope) => {
                    console.line(&pretty::envelope(&envelope, console.out_is_terminal, tokens))?;
                    console.out.flush()?;
                    left -= 1;
                }
                Err(why) => {
                    let place = format!("{} of {}", seen.at.0, seen.stream);
                    console.message(&format!("message {place} not read: {}", why.as_str()));
                }
            }
        }
        Ok(Exit::Ok)
    }
}
