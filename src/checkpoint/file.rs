//! The format, read and written in a stream: neither side holds more than one chunk beside the
//! view.
//!
//! ```text
//! "kvbckpt" version:u8
//! length:u32 header       (msgpack, schemas::SnapshotHeader)   digest:16 of the header
//! length:u32 records      (msgpack, a list of SnapshotRecord), any number of times
//! 0:u32                   digest:16 of everything before
//! ```
//!
//! Numbers are big-endian, digests XXH3-128. The header has a digest of its own, so that its epoch
//! can be believed although the records behind it were damaged.

use std::io::{self, Read, Write};

use kvbridge_schemas::{
    Digest, SnapshotHeader, SnapshotRecord,
    codec::{self, PAYLOAD_BYTES_MAX},
    digest,
};
use xxhash_rust::xxh3::Xxh3;

use super::Fault;
use crate::view::{View, ViewSettings};

/// Version of the layout.
pub const FORMAT: u8 = 1;

const MAGIC: &[u8; 7] = b"kvbckpt";

/// Records in one chunk. Fewer: a length and a call for every few bytes. More: memory for one chunk
/// on each side.
const CHUNK_RECORDS: usize = 1024;

/// Writes a view. Returns how many bytes it took.
pub fn write(to: impl Write, header: &SnapshotHeader, view: &View) -> io::Result<u64> {
    let mut to = Summed { inner: to, sum: Xxh3::new(), bytes: 0 };
    to.write_all(MAGIC)?;
    to.write_all(&[FORMAT])?;
    let header = codec::encode_msgpack(header);
    frame(&mut to, &header)?;
    to.write_all(&digest(&header).0)?;
    let mut records = view.records();
    loop {
        let chunk: Vec<SnapshotRecord> = records.by_ref().take(CHUNK_RECORDS).collect();
        if chunk.is_empty() {
            break;
        }
        frame(&mut to, &codec::encode_msgpack(&chunk))?;
    }
    to.write_all(&0_u32.to_be_bytes())?;
    let sum = to.sum.digest128().to_be_bytes();
    to.write_all(&sum)?;
    Ok(to.bytes)
}

fn frame(to: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(payload)
}

/// Reads the header, and the view if that is whole too.
pub fn read(
    from: impl Read,
    settings: ViewSettings,
) -> Result<(SnapshotHeader, Result<View, Fault>), Fault> {
    let (header, mut records) = open(from)?;
    let view = records.view(settings);
    Ok((header, view))
}

/// Reads the header; the records follow chunk by chunk.
pub fn open<R: Read>(from: R) -> Result<(SnapshotHeader, Records<R>), Fault> {
    let mut from = Summed { inner: from, sum: Xxh3::new(), bytes: 0 };
    let mut magic = [0; 8];
    from.fill(&mut magic)?;
    match magic.split_last() {
        Some((&FORMAT, name)) if name == MAGIC => (),
        Some((found, name)) if name == MAGIC => {
            return Err(Fault::Version { found: u64::from(*found) });
        }
        Some(_) | None => return Err(Fault::Foreign),
    }
    let payload = from.frame()?;
    let mut sum = [0; 16];
    from.fill(&mut sum)?;
    if digest(&payload) != Digest(sum) {
        return Err(Fault::Corrupted { what: "the digest of its header" });
    }
    let header: SnapshotHeader = codec::decode_msgpack(&payload)?;
    let records = Records { from, left: header.block_count };
    Ok((header, records))
}

/// The records behind a header.
pub struct Records<R> {
    from: Summed<R>,
    left: u64,
}

impl<R: Read> Records<R> {
    /// The next chunk; `None` behind the last one, when all of it was whole.
    pub fn chunk(&mut self) -> Result<Option<Vec<SnapshotRecord>>, Fault> {
        let length = self.from.length()?;
        if length > 0 {
            let chunk: Vec<SnapshotRecord> = codec::decode_msgpack(&self.from.payload(length)?)?;
            let count = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.left = self.left.checked_sub(count).ok_or(WRONG_COUNT)?;
            return Ok(Some(chunk));
        }
        let expected = self.from.sum.digest128().to_be_bytes();
        let mut sum = [0; 16];
        self.from.fill(&mut sum)?;
        if sum != expected {
            return Err(Fault::Corrupted { what: "the digest of its records" });
        }
        if self.left > 0 {
            return Err(WRONG_COUNT);
        }
        if self.from.inner.read(&mut [0])? > 0 {
            return Err(Fault::Corrupted { what: "something behind its end" });
        }
        Ok(None)
    }

    fn view(&mut self, settings: ViewSettings) -> Result<View, Fault> {
        let mut view = View::new(settings);
        while let Some(chunk) = self.chunk()? {
            for record in chunk {
                view.install_record(record)?;
            }
        }
        Ok(view)
    }
}

const WRONG_COUNT: Fault = Fault::Corrupted { what: "the count of its records" };

/// A stream whose bytes are summed on their way.
struct Summed<T> {
    inner: T,
    sum: Xxh3,
    bytes: u64,
}

impl<T> Summed<T> {
    fn count(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.count(bytes.get(..taken).unwrap_or(bytes));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Summed<T> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        self.inner.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated,
            _ => Fault::Unreadable(error),
        })?;
        self.count(bytes);
        Ok(())
    }

    fn length(&mut self) -> Result<usize, Fault> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > PAYLOAD_BYTES_MAX {
            return Err(Fault::Corrupted { what: "a length" });
        }
        Ok(length)
    }

    fn frame(&mut self) -> Result<Vec<u8>, Fault> {
        let length = self.length()?;
        self.payload(length)
    }

    /// Takes memory only for what is there: a length is the file's claim.
    fn payload(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        let mut payload = Vec::new();
        let limit = u64::try_from(length).unwrap_or(u64::MAX);
        self.inner.by_ref().take(limit).read_to_end(&mut payload)?;
        if payload.len() < length {
            return Err(Fault::Truncated);
        }
        self.count(&payload);
        Ok(payload)
    }
}
