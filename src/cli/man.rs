//! `kvbridge man FOLDER`: a manual page for the program and for each of its commands.

use std::{io, path::PathBuf};

use clap::CommandFactory;

use super::{Cli, Console, Exit};

/// Write manual pages into a folder
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Where, e.g. /usr/local/share/man/man1
    folder: PathBuf,
}

impl ManArgs {
    pub(super) fn execute(&self, console: &mut Console<'_>) -> io::Result<Exit> {
        std::fs::create_dir_all(&self.folder)?;
        clap_mangen::generate_to(Cli::command(), &self.folder)?;
        console.message(&format!("manual pages in {}", self.folder.display()));
        Ok(Exit::Ok)
    }
}
