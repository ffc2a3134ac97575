//! Sets the log up: text lines on the error stream, filtered.

use tracing_subscriber::EnvFilter;

/// Name of the variable that holds the filter when no flag does.
pub const LOG_VARIABLE: &str = "KVBRIDGE_LOG";

/// For `run`: transitions that a shift handover would mention.
pub const LOG_DEFAULT: &str = "info";

/// Subcommands whose output is read beside the log: only what goes wrong.
pub const LOG_DEFAULT_TOOLS: &str = "warn";

/// For `demo`, which tells what the log would in words of its own.
pub const LOG_OFF: &str = "off";

/// Why the log could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error("log filter {filter:?}: {reason}")]
    Filter {
        /// What came.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in this process logs already.
    #[error("the log is already set up")]
    Started,
}

/// Starts logging for the whole process.
pub fn start_log(filter: &str) -> Result<(), LogError> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| LogError::Filter {
        filter: filter.to_owned(),
        reason: error.to_string(),
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        // Colours need a feature that is off, and asking for them without it panics.
        .with_ansi(false)
        .try_init()
        .map_err(|_| LogError::Started)
}
