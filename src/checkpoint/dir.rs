//! The folder of one process: a lock, and one file per replica that is replaced as a whole.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use kvbridge_schemas::{Cursor, Epoch, Replica, ReplicaKey, Seq, SnapshotHeader, Trust};

use super::{Fault, file};
use crate::{
    pipeline::ViewCut,
    recovery::Checkpoint,
    view::{View, ViewSettings},
};

/// No replica's file ends so.
const SOURCES_FILE: &str = "sources.json";

/// Longest file name made of a key; file systems take 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// The folder, ours alone while this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Held for its lock, which ends with the process however that ends.
    _lock: File,
}

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process uses it.
    #[error("state.dir {} is in use by another process", path.display())]
    InUse {
        /// Which folder.
        path: PathBuf,
    },
    /// It cannot be made or written.
    #[error("state.dir {} cannot be used", path.display())]
    Unusable {
        /// Which folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What a file must be of.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose cache.
    pub replica: &'a Replica,
    /// Everything that the fold depends on beside the events.
    pub fold: &'a str,
    /// How events fold.
    pub view: ViewSettings,
}

/// What was kept of a replica.
#[derive(Debug, Default)]
pub struct Kept {
    /// Later lives are named above it.
    pub floor: Epoch,
    /// The view and what it rests on.
    pub view: Option<(Checkpoint, View)>,
    /// Why there is none, although there is a file.
    pub fault: Option<Fault>,
}

impl StateDir {
    /// Makes the folder if need be and takes it for this process.
    pub fn open(path: &Path) -> Result<StateDir, StateError> {
        let unusable = |source| StateError::Unusable { path: path.to_owned(), source };
        // Views hold customers' salts: nobody else may read them.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let lock = private().open(path.join("lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(StateDir { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Where a replica is kept.
    pub fn file(&self, key: &ReplicaKey) -> PathBuf {
        let key = key.as_str();
        let name = if key.len() <= NAME_BYTES_MAX {
            format!("{key}.ckpt")
        } else {
            // Keys are ASCII. The hash tells apart what the cut makes equal.
            let hash = xxhash_rust::xxh3::xxh3_64(key.as_bytes());
            format!("{}-{hash:016x}.ckpt", key.get(..NAME_BYTES_MAX).unwrap_or_default())
        };
        self.path.join(name)
    }

    /// Writes beside the old file, then takes its place: whatever happens, one of them is whole.
    pub fn save(&self, cut: &ViewCut) -> io::Result<u64> {
        let path = self.file(&cut.header.replica.key());
        self.replace(&path, |to| file::write(to, &cut.header, &cut.view))
    }

    /// Leaves nothing of a replica but how far its epochs were.
    pub fn spend(&self, replica: &Replica, (floor, view): (Epoch, ViewSettings)) -> io::Result<()> {
        let header = SnapshotHeader {
            replica: replica.clone(),
            epoch: floor,
            resume_seq: Seq(0),
            bus_seq: None,
            last_digest: None,
            trust: Trust::None,
            block_count: 0,
            state: None,
        };
        self.save(&ViewCut { header, view: View::new(view) }).map(|_| ())
    }

    fn replace<T>(
        &self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
    ) -> io::Result<T> {
        let new = path.with_extension("new");
        let mut to = BufWriter::new(private().truncate(true).open(&new)?);
        let written = write(&mut to)?;
        to.flush()?;
        to.get_ref().sync_all()?;
        fs::rename(&new, path)?;
        File::open(&self.path)?.sync_all()?;
        Ok(written)
    }

    /// Where sources are kept that were added while the program ran.
    pub fn sources_file(&self) -> PathBuf {
        self.path.join(SOURCES_FILE)
    }

    /// Keeps them, as a view is kept: the old list or the new one, whole.
    pub fn save_sources(&self, sources: &[u8]) -> io::Result<()> {
        self.replace(&self.sources_file(), |to| to.write_all(sources))
    }

    /// What was kept of them; none where nothing was.
    pub fn load_sources(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.sources_file()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What was kept of a replica. Never fails: what cannot be used is said and left alone.
    pub fn load(&self, wanted: Wanted<'_>) -> Kept {
        let from = match File::open(self.file(&wanted.replica.key())) {
            Ok(from) => BufReader::new(from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Kept::default(),
            Err(error) => return Kept { fault: Some(error.into()), ..Kept::default() },
        };
        let (header, view) = match file::read(from, wanted.view) {
            Ok(read) => read,
            Err(fault) => return Kept { fault: Some(fault), ..Kept::default() },
        };
        if header.replica != *wanted.replica {
            return Kept { fault: Some(Fault::OtherReplica), ..Kept::default() };
        }
        let floor = header.epoch;
        let Some(state) = header.state else { return Kept { floor, ..Kept::default() } };
        if state.settings != wanted.fold {
            return Kept { floor, view: None, fault: Some(Fault::OtherSettings) };
        }
        let cursor = Cursor { epoch: header.epoch, next_seq: header.resume_seq };
        match view {
            Ok(view) => {
                let checkpoint = Checkpoint { cursor, trust: header.trust, state };
                Kept { floor, view: Some((checkpoint, view)), fault: None }
            }
            Err(fault) => Kept { floor, view: None, fault: Some(fault) },
        }
    }
}

/// A file that only its owner can read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options
}
