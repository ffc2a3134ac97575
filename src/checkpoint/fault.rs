//! Why a file is of no use, each with the word that counts it.

use std::io;

use kvbridge_schemas::codec::CodecError;

use crate::{recovery::CheckpointFault, view::InstallError};

/// Why a checkpoint was not used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It could not be read.
    #[error("checkpoint cannot be read")]
    Unreadable(#[from] io::Error),
    /// It is no checkpoint.
    #[error("file is no checkpoint")]
    Foreign,
    /// Another version wrote it.
    #[error("checkpoint has version {found}, expected {}", super::FORMAT)]
    Version {
        /// Its version.
        found: u64,
    },
    /// It ends too early.
    #[error("checkpoint ends too early")]
    Truncated,
    /// Its bytes are not those that were written.
    #[error("checkpoint is damaged: {what}")]
    Corrupted {
        /// Where it shows.
        what: &'static str,
    },
    /// A message inside it cannot be read.
    #[error("checkpoint holds a message that cannot be read")]
    Codec(#[source] CodecError),
    /// Its records are not a view.
    #[error("checkpoint holds records that are no view")]
    Records(#[from] InstallError),
    /// It is of another replica.
    #[error("checkpoint is of another replica")]
    OtherReplica,
    /// It was folded with other settings, or its source has changed.
    #[error("checkpoint was written under other settings")]
    OtherSettings,
    /// Its parts contradict each other.
    #[error(transparent)]
    Unusable(#[from] CheckpointFault),
}

impl Fault {
    /// Every word, for the documentation of the counter.
    pub const WORDS: [&str; 8] = [
        "unreadable",
        "foreign",
        "version",
        "truncated",
        "corrupted",
        "other_replica",
        "other_settings",
        "inconsistent",
    ];

    /// The word in metrics and the log.
    pub fn word(&self) -> &'static str {
        match self {
            Fault::Unreadable(_) => "unreadable",
            Fault::Foreign => "foreign",
            Fault::Version { .. } => "version",
            Fault::Truncated => "truncated",
            Fault::Corrupted { .. } | Fault::Codec(_) | Fault::Records(_) => "corrupted",
            Fault::OtherReplica => "other_replica",
            Fault::OtherSettings => "other_settings",
            Fault::Unusable(_) => "inconsistent",
        }
    }
}

impl From<CodecError> for Fault {
    fn from(error: CodecError) -> Fault {
        match error {
            CodecError::Version { found } => Fault::Version { found },
            other => Fault::Codec(other),
        }
    }
}
