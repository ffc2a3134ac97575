//! `kvbridge completions SHELL`: what a shell needs to complete the command line.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Console, Exit, examples};

/// Print the completions of a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn execute(&self, console: &mut Console<'_>) -> io::Result<Exit> {
        // The generator panics where its writer fails, and a reader may go at any time.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "kvbridge", &mut script);
        console.out.write_all(&script)?;
        Ok(Exit::Ok)
    }
}
