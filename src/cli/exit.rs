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
}

impl Exit {
    /// The code for the shell.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::BadInput => 2,
            Exit::NotReached => 3,
            Exit::Interrupted => 130,
        }
    }
}
