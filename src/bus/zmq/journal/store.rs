//! The file of a journal: opened, closed, and moved aside when it cannot be used.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use redb::{Database, ReadableTable};
use tracing::{error, warn};

use super::{FORMAT, JournalError, MESSAGES, META, ORDER};
use crate::{clock::Clock, config::limits::ZMQ_JOURNAL_CACHE_BYTES};

/// An open file. It is written to when it is closed, by whichever thread lets go of it last, and
/// the store asserts then too what it believes of a damaged one: in the middle of another panic
/// that would end the process.
pub(super) struct Store(Option<Database>);

impl std::ops::Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("taken only when it is dropped")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let db = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(db))).is_err() {
            warn!("the store gave up closing the journal");
        }
    }
}

/// The store asserts what it believes of its own file, so a damaged one may panic.
pub(super) fn guarded<T>(
    work: impl FnOnce() -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    // What is half done is a transaction that is not committed.
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or(Err(JournalError::Damaged { what: "the store gave up reading it" }))
}

/// Opens the file, or puts a new one in its place if it cannot be used.
pub(super) fn open_or_replace(path: &Path) -> Result<Store, JournalError> {
    match guarded(|| create(path)) {
        Err(error) if error.is_damage() => {
            move_aside(path, &error)?;
            guarded(|| create(path))
        }
        opened => opened,
    }
}

pub(super) fn create(path: &Path) -> Result<Store, JournalError> {
    let opened = Database::builder().set_cache_size(ZMQ_JOURNAL_CACHE_BYTES).create(path);
    let opened = opened.map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => JournalError::InUse { path: path.to_owned() },
        error => JournalError::Store(error.into()),
    })?;
    let db = Store(Some(opened));
    let transaction = db.begin_write()?;
    {
        transaction.open_table(MESSAGES)?;
        transaction.open_table(ORDER)?;
        let mut meta = transaction.open_table(META)?;
        let format = meta.get("format")?.map(|found| found.value());
        match format {
            Some(FORMAT) => (),
            Some(_) => return Err(JournalError::Damaged { what: "another version wrote it" }),
            None => drop(meta.insert("format", FORMAT)?),
        }
    }
    transaction.commit()?;
    Ok(db)
}

pub(super) fn move_aside(path: &Path, reason: &JournalError) -> Result<(), JournalError> {
    let aside = path.with_extension(format!("damaged-{}", Clock::unix_ms()));
    std::fs::rename(path, &aside)
        .map_err(|source| JournalError::File { path: path.to_owned(), source })?;
    error!(
        error = %reason, moved_to = %aside.display(),
        "the journal cannot be used and was moved aside: readers need snapshots"
    );
    Ok(())
}
