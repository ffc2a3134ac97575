//! The program: the only place that reads arguments and environment, and the only one with
//! `anyhow`.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::Context;
use clap::Parser;
use kvbridge::{
    adapters::Adapters,
    cli::{self, Cli, Console, Environment, Exit},
};

// An index of millions of blocks frees pages all the time. The allocator of the C library gives
// some of them back to the kernel there and then, while readers wait for the lock.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match run(cli) {
        Ok(exit) => exit.code().into(),
        Err(error) => {
            let exit = error.downcast_ref().map_or(Exit::Failed, cli::CliError::exit);
            if exit != Exit::Ok && writeln!(io::stderr(), "kvbridge: {error:#}").is_err() {
                return Exit::Failed.code().into();
            }
            exit.code().into()
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let environment = Environment {
        adapters: Adapters::new(),
        variables: std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
            .collect(),
        directory: std::env::current_dir().context("cannot tell the working directory")?,
    };
    let out_is_terminal = io::stdout().is_terminal();
    let mut out = BufWriter::new(io::stdout());
    let mut messages = io::stderr();
    let mut console = Console { out: &mut out, messages: &mut messages, out_is_terminal };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let exit = runtime.block_on(cli::execute(cli, &environment, &mut console))?;
    // What still blocks (a standing read) must not hold up the end.
    runtime.shutdown_background();
    out.flush().map_err(cli::CliError::from)?;
    Ok(exit)
}

/// Help goes to the output and is a success; a usage error is bad input.
fn usage(error: &clap::Error) -> ExitCode {
    let exit = if error.use_stderr() { Exit::BadInput } else { Exit::Ok };
    match error.print() {
        Ok(()) => exit.code().into(),
        Err(_) => Exit::Failed.code().into(),
    }
}
