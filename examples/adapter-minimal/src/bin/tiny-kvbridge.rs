//! The whole command line of kvbridge with one more engine: `tiny-kvbridge run --config
//! kvbridge.toml`. Whoever wants no HTTP API, commands and alarms looks at `main.rs` beside it.

use std::{
    error::Error,
    io::{self, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use kvbridge::{
    adapters::Adapters,
    cli::{self, Cli, CliError, Console, Environment, Exit},
};

#[tokio::main]
async fn main() -> ExitCode {
    let exit = run(Cli::parse()).await.unwrap_or_else(|error| {
        let exit = error.downcast_ref().map_or(Exit::Failed, CliError::exit);
        eprintln!("tiny-kvbridge: {}", chain(error.as_ref()));
        exit
    });
    exit.code().into()
}

/// What went wrong, and what caused it.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

async fn run(cli: Cli) -> Result<Exit, Box<dyn Error>> {
    let mut adapters = Adapters::new();
    adapters.add(adapter_minimal::ENGINE, adapter_minimal::open)?;
    let text = |(name, text): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, text.into_string().ok()?))
    };
    let environment = Environment {
        variables: std::env::vars_os().filter_map(text).collect(),
        directory: std::env::current_dir()?,
        adapters,
    };
    let (mut out, mut messages) = (BufWriter::new(io::stdout()), io::stderr());
    let out_is_terminal = io::stdout().is_terminal();
    let mut console = Console { out: &mut out, messages: &mut messages, out_is_terminal };
    let exit = cli::execute(cli, &environment, &mut console).await?;
    out.flush()?;
    Ok(exit)
}
