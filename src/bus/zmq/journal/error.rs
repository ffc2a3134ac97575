//! Why a journal cannot be used, and whether its file is to blame.

use std::{io, path::PathBuf};

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or the file cannot be used.
    #[error("journal {}: {source}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("journal {} is in use by another process", path.display())]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// The store says no.
    #[error("journal: {0}")]
    Store(#[from] redb::Error),
    /// The file does not hold what was written.
    #[error("the journal is damaged: {what}")]
    Damaged {
        /// How it shows.
        what: &'static str,
    },
}

impl JournalError {
    /// Whether the file itself is bad, and not the disk or the folder.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            JournalError::Damaged { .. } => true,
            JournalError::Store(redb::Error::Io(error)) => {
                matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
            }
            JournalError::Store(error) => matches!(
                error,
                redb::Error::Corrupted(_)
                    | redb::Error::UpgradeRequired(_)
                    | redb::Error::RepairAborted
                    | redb::Error::TableTypeMismatch { .. }
                    | redb::Error::TypeDefinitionChanged { .. }
            ),
            JournalError::File { .. } | JournalError::InUse { .. } => false,
        }
    }
}

macro_rules! store_errors {
    ($($of:ident),*) => {$(
        impl From<redb::$of> for JournalError {
            fn from(error: redb::$of) -> JournalError {
                JournalError::Store(error.into())
            }
        }
    )*};
}
store_errors!(TransactionError, TableError, StorageError, CommitError);
