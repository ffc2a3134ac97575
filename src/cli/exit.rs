//! Exit codes, the same for every subcommand.

/// How a run of the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went well. A reader that closed the pipe is no failure.
    Ok,
    /// Something failed at run time.
    Failed,
    /// The input or the configuration is wrong.
    BadInput,
    /// A condition that was waited for did not come.
    NotReached,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// A look that went well found something to warn of.
    FoundWarnings,
    /// A look that went well found errors.
    FoundErrors,
}

impl Exit {
    /// The code for the shell.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed | Exit::FoundWarnings => 1,
            Exit::BadInput | Exit::FoundErrors => 2,
            Exit::NotReached => 3,
            Exit::Interrupted => 130,
        }
    }
}
