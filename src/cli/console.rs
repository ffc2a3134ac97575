//! Where a subcommand writes: its output and its messages, each a writer that tests can replace.

use std::io::{self, Write};

/// Output and messages.
pub struct Console<'a> {
    /// What the user asked for.
    pub out: &'a mut (dyn Write + Send),
    /// What goes wrong or is worth knowing beside it.
    pub messages: &'a mut (dyn Write + Send),
    /// A person reads `out`.
    pub out_is_terminal: bool,
}

impl Console<'_> {
    /// Writes one line of output.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Writes one message. A message that cannot be written has nobody to be told to.
    pub fn message(&mut self, text: &str) {
        if writeln!(self.messages, "{text}").is_err() {
            tracing::debug!("messages are closed");
        }
    }
}
