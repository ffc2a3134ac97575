//! `kvbridge replay`: seqs of a replica read back from a bus, to look at or to publish elsewhere.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

use kvbridge_schemas::{Epoch, Replica, Seq};

use super::{
    AccessArgs, CliError, Console, Environment, Exit, NatsArgs, examples,
    nats_args::{file_error, replica},
    pretty, signal,
};
use crate::{
    bus::nats::browse::{Browser, Item, Wanted},
    shared_log::{Missing, Why},
};

/// Messages between two words on how far it is.
const PROGRESS_EVERY: u64 = 20_000;

/// First token of every subject of ours.
const OURS: &str = "kv";

/// Read seqs of a replica back from a bus
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::REPLAY)]
pub struct ReplayArgs {
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// The replica, by its key
    #[arg(long, value_name = "KEY", value_parser = replica)]
    replica: Replica,
    /// The first seq
    #[arg(long, value_name = "SEQ")]
    from: u64,
    /// The last seq
    #[arg(long, value_name = "SEQ")]
    to: u64,
    /// Of this life [default: the newest on the bus]
    #[arg(long, value_name = "EPOCH")]
    epoch: Option<u64>,
    /// Write envelopes there, one JSON object a line [default: print them]
    #[arg(long, value_name = "FILE", conflicts_with = "republish")]
    out: Option<PathBuf>,
    /// Publish them again, to PREFIX.KEY
    #[arg(long, value_name = "PREFIX")]
    republish: Option<String>,
    /// Really publish
    #[arg(long, requires = "republish")]
    yes: bool,
    /// Show token ids
    #[arg(long)]
    tokens: bool,
}

/// Why a replay was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The range is empty.
    #[error("--from {from} is above --to {to}")]
    Empty {
        /// The first seq.
        from: u64,
        /// The last one.
        to: u64,
    },
    /// Readers of the live path would take it for news.
    #[error(
        "--republish {prefix}: what begins with kv. is the live path, where nothing is replayed to"
    )]
    LivePrefix {
        /// What was asked for.
        prefix: String,
    },
    /// Not something that can be published to.
    #[error("--republish {prefix:?}: expected words of A-Z, a-z, 0-9, - and _ with points between")]
    Prefix {
        /// What was asked for.
        prefix: String,
    },
    /// Nobody confirmed.
    #[error("--republish {prefix} sends up to {count} messages to whoever reads there: add --yes")]
    NotConfirmed {
        /// Where to.
        prefix: String,
        /// How many there can be.
        count: u64,
    },
}

impl ReplayError {
    pub(super) fn exit(&self) -> Exit {
        Exit::BadInput
    }
}

/// What became of a stretch.
#[derive(Default)]
struct Told {
    found: u64,
    missing: u64,
}

/// Where envelopes go.
enum Target {
    Console,
    File(PathBuf, BufWriter<File>),
    Bus(String),
}

impl ReplayArgs {
    pub(super) async fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut stop = signal::Stop::new()?;
        let target = self.target()?;
        let browser = self.nats.open(&self.access, environment).await?;
        tokio::select! {
            exit = stop.wait() => Ok(exit),
            exit = self.replay(&browser, target, console) => exit,
        }
    }

    fn target(&self) -> Result<Target, CliError> {
        let (from, to) = (self.from, self.to);
        if from > to {
            return Err(ReplayError::Empty { from, to }.into());
        }
        if let Some(prefix) = &self.republish {
            check(prefix)?;
            if !self.yes {
                let (prefix, count) = (prefix.clone(), (to - from).saturating_add(1));
                return Err(ReplayError::NotConfirmed { prefix, count }.into());
            }
            return Ok(Target::Bus(format!("{prefix}.{}", self.replica.key())));
        }
        let Some(path) = &self.out else { return Ok(Target::Console) };
        let file = File::create(path).map_err(|error| file_error(path, error))?;
        Ok(Target::File(path.clone(), BufWriter::new(file)))
    }

    async fn replay(
        &self,
        browser: &Browser,
        mut target: Target,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let wanted = Wanted {
            replica: self.replica.clone(),
            epoch: self.epoch.map(Epoch),
            from: Seq(self.from),
            to: Seq(self.to),
        };
        let mut replaying = browser.replay(wanted).await?;
        let (epoch, mut told, mut said) = (replaying.epoch, Told::default(), 0);
        while let Some(item) = replaying.next().await? {
            match item {
                Item::Missing(missing) => {
                    told.missing += missing.to.0 - missing.from.0 + 1;
                    console.message(&missed(&missing));
                }
                Item::Message(message) => {
                    let (seen, envelope) = *message;
                    told.found += 1;
                    match &mut target {
                        Target::Bus(subject) => browser.republish(subject, &seen).await?,
                        Target::Console => {
                            let for_person = console.out_is_terminal;
                            console.line(&pretty::envelope(&envelope, for_person, self.tokens))?;
                        }
                        Target::File(path, file) => {
                            let line = pretty::envelope(&envelope, false, self.tokens);
                            let written = writeln!(file, "{line}");
                            written.map_err(|error| file_error(path, error))?;
                        }
                    }
                }
            }
            if replaying.read_count >= said + PROGRESS_EVERY {
                said = replaying.read_count;
                console.message(&format!("{said} messages read, {} in the range", told.found));
            }
        }
        finish(browser, &mut target).await?;
        console.out.flush()?;
        console.message(&format!(
            "epoch {epoch}: {} messages, {} seqs missing",
            told.found, told.missing
        ));
        Ok(if told.missing == 0 { Exit::Ok } else { Exit::NotReached })
    }
}

async fn finish(browser: &Browser, target: &mut Target) -> Result<(), CliError> {
    match target {
        Target::Console => Ok(()),
        Target::File(path, file) => {
            let flushed: io::Result<()> = file.flush();
            flushed.map_err(|error| file_error(path, error).into())
        }
        Target::Bus(_) => Ok(browser.flush().await?),
    }
}

/// A prefix that others' messages can be sent under.
fn check(prefix: &str) -> Result<(), ReplayError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut words = prefix.split('.');
    if !words.clone().all(|word| !word.is_empty() && word.bytes().all(good)) {
        return Err(ReplayError::Prefix { prefix: prefix.to_owned() });
    }
    if words.next() == Some(OURS) {
        return Err(ReplayError::LivePrefix { prefix: prefix.to_owned() });
    }
    Ok(())
}

fn missed(missing: &Missing) -> String {
    let Missing { from, to, why } = missing;
    let why = match why {
        Why::NotKept => "kept no more: the retention of the stream has passed".to_owned(),
        Why::Reset { cause, trust } => {
            format!("a reset stands for them ({cause}, trust {trust} after it)")
        }
        Why::Unreadable(word) => format!("the message cannot be read ({word})"),
        Why::Hole => "not on the stream".to_owned(),
        Why::End => "the log of this life ends before them".to_owned(),
    };
    if from == to {
        return format!("seq {from} is missing: {why}");
    }
    format!("seqs {from} to {to} are missing: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replayed_into_the_live_path() {
        for prefix in ["kv.v1.hint", "kv", "kv.v1.in.0", "kv.v2"] {
            let refused = check(prefix).unwrap_err();
            assert!(matches!(refused, ReplayError::LivePrefix { .. }), "{prefix}: {refused}");
        }
        for prefix in ["", ".", "a..b", "a.*", "a.>", "$JS.API", "a b", "kv*.x"] {
            let refused = check(prefix).unwrap_err();
            assert!(matches!(refused, ReplayError::Prefix { .. }), "{prefix}: {refused}");
        }
        assert!(check("replayed.kv").is_ok());
    }
}
