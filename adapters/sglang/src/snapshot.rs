//! The answer to `snapshot-v1`, a draft: hashes with their parents, and a marker in the live stream
//! that proves the cut.
//!
//! A header, chunks, an end; or an error in words. The ROUTER drops what a slow reader does not
//! take, without a word, so the header's count is the only proof that all of it came. Nothing says
//! in which tier a block is, how many pages share its hash, or what its tokens are: it is of use
//! for an engine that is known to have one tier and one page for each hash, and for no other.

use kvbridge_adapters_api::{SnapshotIntro, SnapshotRefusal};
use kvbridge_adapters_msgpack::{Cursor, Int, Kind, Reason};
use kvbridge_schemas::{BlockHash, Parent, Seq, SnapshotRecord, Tier, TierTrust, Trust};

/// What is asked, behind the delimiter.
pub const SNAPSHOT_REQUEST: &[u8] = b"snapshot-v1";

/// Records in one answer, as the engine's own client bounds them: a cache of 160 million tokens in
/// pages of 16. More is not kept of one replica either.
pub const SNAPSHOT_RECORDS_MAX: u64 = 10_000_000;

/// Records in one chunk: the engine sends half as many.
pub const CHUNK_RECORDS_MAX: usize = 8_192;

/// Hashes in one record: the engine sends one.
pub const RECORD_HASHES_MAX: usize = 65_536;

/// Hashes in one chunk. Too small: an engine with long records is refused. Too large: one message
/// of 64 MiB could ask for gigabytes, because a byte on the wire can become a record.
pub const CHUNK_HASHES_MAX: usize = 262_144;

const VERSION: u64 = 1;
const HEADER_FIELDS: usize = 7;

/// What one message brought.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotMessage {
    /// The header: nothing to fold.
    Header,
    /// Some records.
    Records(Vec<SnapshotRecord>),
    /// All of it came.
    Whole(SnapshotIntro),
}

/// Why there is no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SnapshotFault {
    /// Another capture is running.
    #[error("the engine is busy with another snapshot")]
    Busy,
    /// Its publisher did not come to it in time.
    #[error("the engine did not capture in time")]
    TimedOut,
    /// It could not.
    #[error("the engine failed to capture")]
    CaptureFailed,
    /// It does not know the request.
    #[error("the engine does not know snapshot-v1")]
    NotServed,
    /// It said no in words we do not know.
    #[error("the engine refused in unknown words")]
    Refused,
    /// A message of a kind that the protocol does not have.
    #[error("a message of an unknown kind")]
    UnknownKind,
    /// Another version than 1.
    #[error("snapshot of version {came}, expected {VERSION}")]
    Version {
        /// Which.
        came: u64,
    },
    /// The header could not be read.
    #[error("the header cannot be read: {0}")]
    Header(Reason),
    /// A header names a cut that its barrier does not prove.
    #[error("the snapshot resumes elsewhere than behind its barrier")]
    Cut,
    /// Records before the header, a second header, or an end without one.
    #[error("messages in the wrong order")]
    Order,
    /// A chunk could not be read.
    #[error("a chunk cannot be read: {0}")]
    Chunk(Reason),
    /// More records than are kept of one replica.
    #[error("the snapshot has more than {SNAPSHOT_RECORDS_MAX} records")]
    TooLarge,
    /// More records came than the header said.
    #[error("more records than the header says")]
    TooMany,
}

impl SnapshotFault {
    /// What the core hears; `None` = the answer broke off.
    pub fn refusal(self) -> Option<SnapshotRefusal> {
        match self {
            SnapshotFault::Busy | SnapshotFault::TimedOut => Some(SnapshotRefusal::Busy),
            SnapshotFault::NotServed | SnapshotFault::Version { .. } => {
                Some(SnapshotRefusal::Unavailable)
            }
            SnapshotFault::TooLarge => Some(SnapshotRefusal::TooLarge),
            SnapshotFault::CaptureFailed | SnapshotFault::Refused => None,
            SnapshotFault::UnknownKind
            | SnapshotFault::Header(_)
            | SnapshotFault::Cut
            | SnapshotFault::Order
            | SnapshotFault::Chunk(_)
            | SnapshotFault::TooMany => Some(SnapshotRefusal::Inconsistent),
        }
    }
}

/// Whether nothing follows a message of that kind.
pub fn ends_snapshot(kind: &[u8]) -> bool {
    kind != b"header" && kind != b"chunk"
}

/// One answer, read message by message. After a fault it is not to be used.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    header: Option<Header>,
    /// Records as the engine counts them, which may hold several blocks each.
    record_count: u64,
    block_count: u64,
}

#[derive(Debug)]
struct Header {
    life: String,
    barrier: u64,
    record_count: u64,
}

impl SnapshotReader {
    /// Reads one message, `[kind, payload]` behind the delimiter.
    pub fn read(&mut self, kind: &[u8], payload: &[u8]) -> Result<SnapshotMessage, SnapshotFault> {
        match kind {
            b"header" if self.header.is_some() => Err(SnapshotFault::Order),
            b"header" => {
                self.header = Some(header(payload)?);
                Ok(SnapshotMessage::Header)
            }
            b"chunk" => self.chunk(payload).map(SnapshotMessage::Records),
            b"end" => self.whole().map(SnapshotMessage::Whole),
            b"error" => Err(refused(payload)),
            _ => Err(SnapshotFault::UnknownKind),
        }
    }

    fn chunk(&mut self, payload: &[u8]) -> Result<Vec<SnapshotRecord>, SnapshotFault> {
        let said = self.header.as_ref().ok_or(SnapshotFault::Order)?.record_count;
        let mut cursor = Cursor::new(payload);
        let mut records = Vec::new();
        let count = cursor.array().map_err(|fault| SnapshotFault::Chunk(fault.into()))?;
        self.record_count += u64::try_from(count).unwrap_or(u64::MAX);
        if count > CHUNK_RECORDS_MAX {
            return Err(SnapshotFault::Chunk(Reason::TooMany));
        }
        if self.record_count > said {
            return Err(SnapshotFault::TooMany);
        }
        for _ in 0..count {
            record(&mut cursor, &mut records).map_err(SnapshotFault::Chunk)?;
        }
        if cursor.remaining() > 0 {
            return Err(SnapshotFault::Chunk(Reason::TooLong));
        }
        self.block_count += u64::try_from(records.len()).unwrap_or(u64::MAX);
        if self.block_count > SNAPSHOT_RECORDS_MAX {
            return Err(SnapshotFault::TooLarge);
        }
        Ok(records)
    }

    /// The core counts blocks; records that are missing must be missing there too.
    fn whole(&mut self) -> Result<SnapshotIntro, SnapshotFault> {
        let header = self.header.take().ok_or(SnapshotFault::Order)?;
        let missing = header.record_count.saturating_sub(self.record_count);
        Ok(SnapshotIntro {
            epoch: None,
            incarnation: Some(header.life),
            resume_seq: Seq(header.barrier.saturating_add(1)),
            last_digest: None,
            record_count: self.block_count.saturating_add(missing),
            barrier: Some(Seq(header.barrier)),
            trust: TierTrust::all(Trust::Exact),
        })
    }
}

/// `[parent, [hash, …]]`: a chain.
fn record(cursor: &mut Cursor<'_>, records: &mut Vec<SnapshotRecord>) -> Result<(), Reason> {
    if cursor.array()? != 2 {
        return Err(Reason::WrongType);
    }
    let mut parent = if cursor.nil() { Parent::Root } else { Parent::Block(block_hash(cursor)?) };
    let count = cursor.array()?;
    if count > RECORD_HASHES_MAX || records.len() + count > CHUNK_HASHES_MAX {
        return Err(Reason::TooMany);
    }
    for _ in 0..count {
        let hash = block_hash(cursor)?;
        let before = std::mem::replace(&mut parent, Parent::Block(hash.clone()));
        records.push(bare(hash, before));
    }
    Ok(())
}

/// A page of an engine that is as plain as its snapshot takes for granted.
fn bare(hash: BlockHash, parent: Parent) -> SnapshotRecord {
    SnapshotRecord {
        hash,
        parent,
        content: None,
        block_size: 0,
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    }
}

/// `[version, epoch, replica_rank, resume_seq, barrier_seq, barrier_id, record_count]`. The name of
/// the barrier is not needed: its seq is used once in the life that is named.
fn header(payload: &[u8]) -> Result<Header, SnapshotFault> {
    let mut cursor = Cursor::new(payload);
    let fields = cursor.array().map_err(|fault| SnapshotFault::Header(fault.into()))?;
    let version = unsigned(&mut cursor).map_err(SnapshotFault::Header)?;
    if version != VERSION {
        return Err(SnapshotFault::Version { came: version });
    }
    let (life, resume, barrier, record_count) =
        header_fields(&mut cursor, fields).map_err(SnapshotFault::Header)?;
    if resume != barrier.checked_add(1).ok_or(SnapshotFault::Cut)? {
        return Err(SnapshotFault::Cut);
    }
    if record_count > SNAPSHOT_RECORDS_MAX {
        return Err(SnapshotFault::TooLarge);
    }
    Ok(Header { life, barrier, record_count })
}

fn header_fields(
    cursor: &mut Cursor<'_>,
    fields: usize,
) -> Result<(String, u64, u64, u64), Reason> {
    if fields < HEADER_FIELDS {
        return Err(Reason::Missing);
    }
    let life = crate::wire::topic::life(cursor.text_bytes()?).ok_or(Reason::WrongType)?;
    cursor.skip()?;
    let (resume, barrier) = (unsigned(cursor)?, unsigned(cursor)?);
    cursor.skip()?;
    let record_count = unsigned(cursor)?;
    for _ in HEADER_FIELDS..fields {
        cursor.skip()?;
    }
    if cursor.remaining() > 0 {
        return Err(Reason::TooLong);
    }
    Ok((life.to_owned(), resume, barrier, record_count))
}

fn unsigned(cursor: &mut Cursor<'_>) -> Result<u64, Reason> {
    match cursor.int()? {
        Int::Unsigned(value) => Ok(value),
        Int::Negative(_) => Err(Reason::OutOfRange),
    }
}

/// An integer of either sign, or bytes, as in events.
fn block_hash(cursor: &mut Cursor<'_>) -> Result<BlockHash, Reason> {
    if cursor.kind()? == Kind::Bytes {
        return BlockHash::from_bytes(cursor.bytes()?).map_err(|_| Reason::OutOfRange);
    }
    Ok(BlockHash::from_u64(match cursor.int()? {
        Int::Unsigned(value) => value,
        Int::Negative(value) => value.cast_unsigned(),
    }))
}

/// The engine's own words, which are all that tells its errors apart.
fn refused(text: &[u8]) -> SnapshotFault {
    match text {
        b"snapshot provider busy" => SnapshotFault::Busy,
        b"snapshot capture timeout" => SnapshotFault::TimedOut,
        b"snapshot capture failed" => SnapshotFault::CaptureFailed,
        b"invalid snapshot-v1 request" => SnapshotFault::NotServed,
        _ => SnapshotFault::Refused,
    }
}
