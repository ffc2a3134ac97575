//! What our side of a NATS bus costs beside a bare async-nats client, against a real nats-server
//! on this machine.
//!
//! - publish: the bus's own writer (encode, spool, window, go-back-N) beside a client that only
//!   sends bytes made before, with the same headers and the same window; all acks included.
//! - replay: a log from its start: the bus's reader up to the events of its source, and the whole
//!   consumer up to an index that is exact, beside an ordered consumer that only takes the
//!   messages, and one that also decodes the envelopes.
//!
//! The cases take turns in every round; figures are medians over rounds with the lowest and the
//! highest round. Wall time holds the server's work too, on the same cores; `cpu` is this process
//! alone.
//!
//! usage: bench-bus [--rounds N] [--publish ENVELOPES] [--replay ENVELOPES] [--only publish|replay]

mod messages;
mod publish;
mod replay;
mod rows;
mod server;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use kvbridge::{
    bus::NatsBus,
    config::{self, BusConfig, BusFile, Flags, NatsConfig},
    pipeline::Tasks,
};

use self::rows::Rows;

struct Args {
    rounds: usize,
    publish: u64,
    replay: u64,
    only: Option<String>,
}

fn args() -> anyhow::Result<Args> {
    let mut args = Args { rounds: 7, publish: 8_000, replay: 15_625, only: None };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--rounds" => args.rounds = value.parse()?,
            "--publish" => args.publish = value.parse()?,
            "--replay" => args.replay = value.parse()?,
            "--only" => args.only = Some(value),
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(args)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = args()?;
    let wanted = |part| args.only.as_deref().is_none_or(|only| only == part);
    let server = server::start().await?;
    let config = nats(&server.url)?;
    let mut tasks = Tasks::new();
    let replicas = messages::replicas(args.rounds);
    let bus = NatsBus::start(&config, replicas.values(), &mut tasks)?;
    let mut rows = Rows::new();
    if wanted("publish") {
        publish::measure(&bus, &server.url, (args.rounds, args.publish), &mut rows).await?;
    }
    if wanted("replay") {
        let at = (args.rounds, args.replay);
        replay::measure(&bus, &config, &server.url, at, &mut tasks, &mut rows).await?;
    }
    println!("{rows}");
    drop(server);
    Ok(())
}

/// The configuration of a bridge that names no more than its server.
fn nats(url: &str) -> anyhow::Result<NatsConfig> {
    let server = BusFile { url: Some(url.to_owned()), ..BusFile::default() };
    match config::load(None, &[], Flags { server, ..Flags::default() })?.bus {
        BusConfig::Nats(nats) => Ok(*nats),
        _ => bail!("not a configuration of nats"),
    }
}

/// Replicas by what they are for.
type Replicas = BTreeMap<String, kvbridge::schemas::Replica>;
