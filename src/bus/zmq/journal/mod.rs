//! The journal of a ZeroMQ bus: messages on disk, oldest dropped first, read again by seq.
//!
//! Written and synced before a message is published, so what a reader ever saw a replay can give
//! again, also after the bridge was killed. Why this store: `docs/adr/0013-journal-in-redb.md`.
//!
//! A file that cannot be used is moved aside and a new one begun: the messages in it cost readers a
//! snapshot, a bridge that cannot start costs them everything.

mod error;
mod store;

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use kvbridge_schemas::{Cursor, Digest, EngineKind, Envelope, Epoch, ReplicaKey, Seq, codec};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

pub use self::error::JournalError;
use self::store::{Store, create, guarded, move_aside, open_or_replace};
use super::wire::ReplayAnswer;
use crate::{
    config::limits::{ZMQ_CHUNK_BYTES_MAX, ZMQ_CHUNK_MESSAGES_MAX},
    shared_log::{DIGESTS_KEPT, LogTail},
};

/// (replica, epoch, seq, place) → (span, [`sum`] of all of it, bytes). The place tells apart what
/// covers no seq.
const MESSAGES: TableDefinition<'_, At<'static>, (u32, u64, &'static [u8])> =
    TableDefinition::new("messages");

/// Where each place's message is: the order in which they came. The oldest is dropped first.
const ORDER: TableDefinition<'_, u64, At<'static>> = TableDefinition::new("order");

/// Numbers beside them, by name.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The key of a message.
type At<'a> = (&'a str, u64, u64, u64);

/// The table of messages, for writing.
type Messages<'a> = redb::Table<'a, At<'static>, (u32, u64, &'static [u8])>;

/// Version of the tables above. The first one's sums were of the bytes alone.
const FORMAT: u64 = 2;

/// What a message costs beside its bytes and its key: two rows of the tables.
const OVERHEAD_BYTES: usize = 96;

/// One message.
#[derive(Clone)]
pub struct Message {
    /// Whose.
    pub key: ReplicaKey,
    /// Of which life.
    pub epoch: Epoch,
    /// Its seq.
    pub seq: Seq,
    /// Seqs that it covers.
    pub span: u32,
    /// The envelope's bytes.
    pub payload: Bytes,
}

/// What is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose messages.
    pub key: &'a ReplicaKey,
    /// The life that the seq is of; 0 = not known.
    pub epoch: Epoch,
    /// The first seq.
    pub first: Seq,
    /// The place behind which to go on; 0 = at the first seq.
    pub after: u64,
}

/// The journal. Reads and writes may come from different threads.
pub struct Journal {
    /// Absent only while a damaged file is being replaced, or until that succeeds.
    db: RwLock<Option<Arc<Store>>>,
    path: PathBuf,
    bytes_max: u64,
}

impl Journal {
    /// Opens the journal in a folder, or begins one. Blocks.
    pub fn open(dir: &Path, bytes_max: u64) -> Result<Journal, JournalError> {
        std::fs::create_dir_all(dir)
            .map_err(|source| JournalError::File { path: dir.to_owned(), source })?;
        let path = dir.join("journal.redb");
        let db = open_or_replace(&path)?;
        Ok(Journal { db: RwLock::new(Some(Arc::new(db))), path, bytes_max })
    }

    /// Writes messages in order and syncs them, dropping the oldest beyond the bound. The newest
    /// message of an active replica is kept whatever its age: an idle replica's readers ask for it.
    pub fn append(
        &self,
        messages: &[Message],
        is_active: &dyn Fn(&str) -> bool,
    ) -> Result<(), JournalError> {
        let db = match self.db() {
            Ok(db) => db,
            // Its replacement failed, for want of room perhaps: whoever asks again is patient.
            Err(_) => self.begin_anew()?,
        };
        let written = guarded(|| write(&db, messages, self.bytes_max, is_active));
        if let Err(error) = &written
            && error.is_damage()
        {
            drop(db);
            self.start_over(error)?;
        }
        written
    }

    /// Where a replica's log ends, and whose it is.
    pub fn tail(&self, key: &ReplicaKey) -> Result<Option<(LogTail, EngineKind)>, JournalError> {
        let db = self.db()?;
        guarded(|| tail(&db, key))
    }

    /// Some messages of a replica's newest life, from a seq on; all that is kept of that life when
    /// the seq is of another one. None of them when the start is lost.
    pub fn read(&self, wanted: &Wanted<'_>) -> Result<ReplayAnswer, JournalError> {
        let db = self.db()?;
        guarded(|| read(&db, wanted))
    }

    fn db(&self) -> Result<Arc<Store>, JournalError> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner).clone();
        db.ok_or(JournalError::Damaged { what: "it is being replaced" })
    }

    /// Opens the journal after its replacement failed.
    fn begin_anew(&self) -> Result<Arc<Store>, JournalError> {
        let mut db = self.db.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(db.insert(Arc::new(open_or_replace(&self.path)?))))
    }

    /// Puts an empty journal in the place of a damaged one.
    fn start_over(&self, error: &JournalError) -> Result<(), JournalError> {
        let mut db = self.db.write().unwrap_or_else(PoisonError::into_inner);
        // Readers that still hold the old file read on in it; they fail as the writer did.
        *db = None;
        move_aside(&self.path, error)?;
        *db = Some(Arc::new(guarded(|| create(&self.path))?));
        Ok(())
    }
}

fn write(
    db: &Database,
    group: &[Message],
    bytes_max: u64,
    is_active: &dyn Fn(&str) -> bool,
) -> Result<(), JournalError> {
    let transaction = db.begin_write()?;
    {
        let mut messages = transaction.open_table(MESSAGES)?;
        let mut order = transaction.open_table(ORDER)?;
        let mut meta = transaction.open_table(META)?;
        let mut bytes = meta.get("bytes")?.map_or(0, |found| found.value());
        let mut place = order.last()?.map_or(1, |(place, _)| place.value().saturating_add(1));
        for message in group {
            let payload = message.payload.as_ref();
            let at = (message.key.as_str(), message.epoch.0, message.seq.0, place);
            messages.insert(at, (message.span, sum(at, message.span, payload), payload))?;
            order.insert(place, at)?;
            place += 1;
            bytes = bytes.saturating_add(weight(at.0, payload.len()));
        }
        // Those that were looked at and kept go to the end of the order, and are not looked at
        // twice.
        let mut kept_place = place;
        while bytes > bytes_max {
            let Some((looked_at, at)) =
                order.first()?.map(|(n, at)| (n.value(), owned(at.value())))
            else {
                break;
            };
            if looked_at >= place {
                break;
            }
            order.remove(looked_at)?;
            if is_active(&at.0) && is_newest(&messages, &at)? {
                order.insert(kept_place, at.as_ref())?;
                kept_place += 1;
            } else if let Some(old) = messages.remove(at.as_ref())? {
                bytes = bytes.saturating_sub(weight(&at.0, old.value().2.len()));
            }
        }
        meta.insert("bytes", bytes)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The key of a message, out of the page it was read from.
struct Owned(String, u64, u64, u64);

impl Owned {
    fn as_ref(&self) -> At<'_> {
        (&self.0, self.1, self.2, self.3)
    }
}

fn owned((key, epoch, seq, place): At<'_>) -> Owned {
    Owned(key.to_owned(), epoch, seq, place)
}

fn is_newest(messages: &Messages<'_>, of: &Owned) -> Result<bool, JournalError> {
    let newest = messages.range(all_of(&of.0))?.next_back().transpose()?;
    Ok(newest.is_some_and(|(at, _)| at.value() == of.as_ref()))
}

fn all_of(key: &str) -> RangeInclusive<At<'_>> {
    (key, 0, 0, 0)..=(key, u64::MAX, u64::MAX, u64::MAX)
}

fn weight(key: &str, payload: usize) -> u64 {
    u64::try_from(payload + 2 * key.len() + OVERHEAD_BYTES).unwrap_or(u64::MAX)
}

fn tail(db: &Database, key: &ReplicaKey) -> Result<Option<(LogTail, EngineKind)>, JournalError> {
    let messages = db.begin_read()?.open_table(MESSAGES)?;
    let mut tail: Option<(LogTail, EngineKind)> = None;
    for found in messages.range(all_of(key.as_str()))?.rev().take(DIGESTS_KEPT) {
        let (at, value) = found?;
        let (_, epoch, seq, _) = at.value();
        let (span, payload) = checked(at.value(), value.value())?;
        if tail.as_ref().is_some_and(|(tail, _)| tail.cursor.epoch != Epoch(epoch)) {
            break;
        }
        let Ok(envelope) = codec::decode_msgpack::<Envelope>(payload) else {
            return Err(JournalError::Damaged { what: "a message is not an envelope" });
        };
        let next_seq = Seq(seq).plus(u64::from(span));
        let cursor = Cursor { epoch: Epoch(epoch), next_seq };
        let (tail, _) = tail.get_or_insert_with(|| {
            (LogTail { cursor, digests: Vec::new() }, envelope.engine.kind.clone())
        });
        // No bytes of an engine stand behind what a bridge says itself.
        if envelope.digest != Digest([0; 16]) {
            tail.digests.push((Seq(seq), envelope.digest));
        }
    }
    if let Some((tail, _)) = &mut tail {
        tail.digests.reverse();
    }
    Ok(tail)
}

fn read(db: &Database, wanted: &Wanted<'_>) -> Result<ReplayAnswer, JournalError> {
    let messages = db.begin_read()?.open_table(MESSAGES)?;
    let key = wanted.key.as_str();
    let mut answer = ReplayAnswer::default();
    let newest = messages.range(all_of(key))?.next_back().transpose()?;
    let Some((at, value)) = newest else { return Ok(answer) };
    let (_, epoch, newest_seq, _) = at.value();
    let (span, _) = checked(at.value(), value.value())?;
    answer.epoch = Epoch(epoch);
    answer.next = Seq(newest_seq).plus(u64::from(span));
    let from = |seq: u64, place: u64| (key, epoch, seq, place)..=(key, epoch, u64::MAX, u64::MAX);
    if let Some((oldest, value)) = messages.range(from(0, 0))?.next().transpose()? {
        checked(oldest.value(), value.value())?;
        answer.first = Seq(oldest.value().2);
    }
    let same_life = wanted.epoch == answer.epoch || wanted.epoch == Epoch(0);
    let first = if same_life { wanted.first } else { answer.first };
    if first < answer.first {
        return Ok(answer);
    }
    // A reset that begins below may cover the seq asked for.
    let below = (key, epoch, 0, 0)..(key, epoch, first.0, 0);
    let below = messages.range(below)?.next_back().transpose()?;
    let start = below.map_or(first.0, |(at, value)| {
        let (seq, span) = (at.value().2, value.value().0);
        if Seq(seq).plus(u64::from(span)) > first { seq } else { first.0 }
    });
    let rest = if same_life && wanted.after > 0 {
        from(first.0, wanted.after.saturating_add(1))
    } else {
        from(start, 0)
    };
    let mut bytes = 0;
    for found in messages.range(rest)? {
        let (at, value) = found?;
        let (_, _, seq, place) = at.value();
        let (_, payload) = checked(at.value(), value.value())?;
        bytes += payload.len();
        let full = answer.messages.len() >= ZMQ_CHUNK_MESSAGES_MAX || bytes > ZMQ_CHUNK_BYTES_MAX;
        // One message passes whatever its size, or it would never be given.
        if full && !answer.messages.is_empty() {
            return Ok(answer);
        }
        answer.after = place;
        answer.messages.push((Seq(seq), Bytes::copy_from_slice(payload)));
    }
    answer.after = 0;
    Ok(answer)
}

/// Of a message with its key and its span: whole bytes under another seq are as false as others.
fn sum((key, epoch, seq, place): At<'_>, span: u32, payload: &[u8]) -> u64 {
    let mut of = Xxh3Default::new();
    for number in [epoch, seq, place, u64::from(span)] {
        of.update(&number.to_le_bytes());
    }
    of.update(&xxh3_64(key.as_bytes()).to_le_bytes());
    of.update(payload);
    of.digest()
}

fn checked<'a>(
    at: At<'_>,
    (span, written, payload): (u32, u64, &'a [u8]),
) -> Result<(u32, &'a [u8]), JournalError> {
    if sum(at, span, payload) == written {
        return Ok((span, payload));
    }
    Err(JournalError::Damaged { what: "a message is not the one that was written" })
}

#[cfg(test)]
mod tests;
