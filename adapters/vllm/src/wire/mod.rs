//! vLLM's own words: the shape of its messages from 0.9.0 to 0.33.0, and of the drafts beyond.
//!
//! Releases are told apart by shape and never by a version number, because none is on the wire:
//!
//! - a batch is an array `[ts, events]` (0.9.0) or `[ts, events, rank]` (0.9.1 on); a draft
//!   appends a publisher id, one commit between releases sent a map. All are read, what is beyond
//!   is skipped;
//! - an event is a positional array (to 0.23) or a map (0.24 on), each event by itself;
//! - what no release sends (keys, elements, tags) is skipped.
//!
//! This module is the only place that knows the names of the fields.

use kvbridge_schemas::{BlockHash, Event, ExtraKey, StoredBlock};

use crate::{
    fault::{BodyError, LostKind, Reason},
    limits::Limits,
    msgpack::{Cursor, Int, Kind},
};

mod event;
mod field;

const TS: &str = "ts";
const EVENTS: &str = "events";
const RANK: &str = "data_parallel_rank";

/// What a batch says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Head {
    /// Seconds since 1970.
    pub(crate) ts: f64,
    pub(crate) rank: Option<u32>,
    /// The form of the first event.
    pub(crate) form: Option<Form>,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// To 0.23.
    Array,
    /// From 0.24.
    Map,
}

/// One event as it was sent.
pub(crate) enum RawEvent<'a> {
    Stored(RawStored<'a>),
    Removed(RawRemoved<'a>),
    Cleared,
    /// A tag of no release to 0.33.0.
    Unknown(&'a str),
}

/// The fields of a store. No content yet.
#[derive(Default)]
pub(crate) struct RawStored<'a> {
    pub(crate) blocks: Vec<StoredBlock>,
    pub(crate) parent: Option<BlockHash>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) block_size: u32,
    pub(crate) lora_id: Option<i64>,
    pub(crate) lora_name: Option<&'a str>,
    pub(crate) extra: Vec<Vec<ExtraKey>>,
    /// 0.17 and 0.18 send media ids as bare texts, and 0.19 has their layout: a bare text in an
    /// event of this layout may be a media id.
    pub(crate) bare_media: bool,
    pub(crate) session: Option<&'a str>,
    pub(crate) place: RawPlace<'a>,
}

/// The fields of a removal.
#[derive(Default)]
pub(crate) struct RawRemoved<'a> {
    pub(crate) hashes: Vec<BlockHash>,
    pub(crate) place: RawPlace<'a>,
}

/// Where blocks are.
#[derive(Default)]
pub(crate) struct RawPlace<'a> {
    pub(crate) medium: Option<&'a str>,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<&'a str>,
    pub(crate) window: Option<u32>,
    pub(crate) locality: Option<&'a str>,
    pub(crate) ownership: Option<&'a str>,
}

/// Why one event was not read.
pub(crate) struct Fault {
    pub(crate) kind: LostKind,
    pub(crate) field: Option<&'static str>,
    pub(crate) reason: Reason,
}

/// Where an event stands in its batch.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: u32,
    /// How many events to make room for, this one included: never more memory than bytes are left.
    pub(crate) room: usize,
}

/// Walks a payload and hands every event to `on_event`, with its place.
///
/// An event that cannot be read is handed over as a [`Fault`] and stepped over. An error means that
/// the body as a whole is lost: what was handed over before must be dropped.
pub(crate) fn read_batch<'a>(
    payload: &'a [u8],
    limits: &Limits,
    mut on_event: impl FnMut(Place, Result<RawEvent<'a>, Fault>),
) -> Result<Head, BodyError> {
    let mut reader = Reader {
        cursor: Cursor::new(payload),
        limits,
        items_left: limits.items_per_batch,
        head: Head::default(),
    };
    match reader.cursor.kind() {
        Err(_) => return Err(BodyError::Empty),
        Ok(Kind::Array) => reader.batch_array(&mut on_event)?,
        Ok(Kind::Map) => reader.batch_map(&mut on_event)?,
        Ok(_) => return Err(BodyError::NotABatch),
    }
    match reader.cursor.remaining() {
        0 => Ok(reader.head),
        bytes => Err(BodyError::TrailingBytes { bytes }),
    }
}

struct Reader<'a, 'l> {
    cursor: Cursor<'a>,
    limits: &'l Limits,
    /// Hashes and extra keys the batch may still have.
    items_left: usize,
    head: Head,
}

type OnEvent<'f, 'a> = &'f mut dyn FnMut(Place, Result<RawEvent<'a>, Fault>);

impl<'a> Reader<'a, '_> {
    fn batch_array(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let count = self.cursor.array().map_err(BodyError::Unwalkable)?;
        if count < 2 {
            return Err(BodyError::NotABatch);
        }
        self.ts()?;
        self.events(on_event)?;
        if count > 2 {
            self.rank()?;
        }
        for _ in 3..count {
            self.cursor.skip().map_err(BodyError::Unwalkable)?;
        }
        Ok(())
    }

    fn batch_map(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let pairs = self.cursor.map().map_err(BodyError::Unwalkable)?;
        let mut has_events = false;
        for _ in 0..pairs {
            let key = self.key().map_err(BodyError::Unwalkable)?;
            match key.and_then(|key| std::str::from_utf8(key).ok()) {
                Some(TS) => self.ts()?,
                Some(EVENTS) if has_events => return Err(in_field(EVENTS, Reason::Duplicate)),
                Some(EVENTS) => {
                    has_events = true;
                    self.events(on_event)?;
                }
                Some(RANK) => self.rank()?,
                _ => self.cursor.skip().map_err(BodyError::Unwalkable)?,
            }
        }
        if has_events { Ok(()) } else { Err(BodyError::NoEvents) }
    }

    fn ts(&mut self) -> Result<(), BodyError> {
        let kind = self.cursor.kind().map_err(BodyError::Unwalkable)?;
        let seconds = match kind {
            Kind::Nil => self.cursor.skip().map(|()| 0.0),
            Kind::Int => self.cursor.int().map(|seconds| match seconds {
                Int::Unsigned(seconds) => seconds as f64,
                Int::Negative(_) => 0.0,
            }),
            _ => self.cursor.float(),
        };
        self.head.ts = seconds.map_err(|reason| in_field(TS, reason))?;
        Ok(())
    }

    fn rank(&mut self) -> Result<(), BodyError> {
        self.head.rank = match self.cursor.nil() {
            true => None,
            // A rank that cannot be read is refused: two ranks in one view would be ghosts.
            false => Some(self.cursor.u32().map_err(|reason| in_field(RANK, reason))?),
        };
        Ok(())
    }

    fn events(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let count = self.cursor.array().map_err(|reason| in_field(EVENTS, reason))?;
        let max = self.limits.events_per_batch;
        if count > max {
            return Err(BodyError::TooManyEvents { count, max });
        }
        for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let start = self.cursor;
            let room = affordable::<Event>(count - index as usize, start.remaining());
            let read = self.event();
            if read.is_err() {
                // Only this event is lost: step over it from its start, whatever was wrong inside.
                self.cursor = start;
                self.cursor.skip().map_err(BodyError::Unwalkable)?;
            }
            on_event(Place { index, room }, read);
        }
        Ok(())
    }
}

/// How many elements to make room for: never more memory than bytes are left to read, but one.
fn affordable<T>(count: usize, remaining: usize) -> usize {
    count.min((remaining / size_of::<T>().max(1)).max(1))
}

/// An unreadable field of the batch. Bytes that end early are the payload's fault, not the field's.
fn in_field(field: &'static str, reason: Reason) -> BodyError {
    match reason {
        Reason::Truncated | Reason::Reserved => BodyError::Unwalkable(reason),
        reason => BodyError::Field { field, reason },
    }
}
