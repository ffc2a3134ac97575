//! A batch, walked to its end: its own fields, and every event handed on by itself.
//!
//! - A batch is an array `[ts, events]` or `[ts, events, rank]`, or a map; what is beyond is
//!   skipped.
//! - An event is a positional array or a map, each by itself.

use kvbridge_schemas::{
    BlockHash, Event,
    msgpack::{Cursor, Int, Kind, Unreadable},
};

use crate::{
    decode::{Dialect, Read},
    fault::{BodyError, Fault, LostKind, Reason},
    limits::Limits,
};

const TS: &str = "ts";
const EVENTS: &str = "events";

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
pub enum Form {
    /// By position.
    Array,
    /// By key.
    Map,
}

/// An event whose header and tag were read. Of an array the tag is taken; a map is left at its
/// first pair.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// How it is written.
    pub form: Form,
    /// Elements of the array, the tag included, or pairs of the map.
    pub count: usize,
    /// Its type.
    pub tag: &'a str,
}

/// Where an event stands in its batch.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: u32,
    /// How many events to make room for, this one included: never more memory than bytes are left.
    pub(crate) room: usize,
}

/// Reads one payload. A dialect's fields are read through it, so that every limit holds.
#[derive(Debug)]
pub struct Reader<'a, 'l> {
    /// Where it stands.
    pub cursor: Cursor<'a>,
    /// What the payload may cost.
    pub limits: &'l Limits,
    /// Hashes and extra keys the batch may still have.
    items_left: usize,
    head: Head,
}

/// Walks a payload and hands every event to `on_event`, with its place.
///
/// An event that cannot be read is handed over as a [`Fault`] and stepped over. An error means that
/// the body as a whole is lost: what was handed over before must be dropped.
pub(crate) fn read_batch<'a, D: Dialect>(
    payload: &'a [u8],
    limits: &Limits,
    mut on_event: impl FnMut(Place, Result<Read<'a>, Fault>),
) -> Result<Head, BodyError> {
    let mut reader = Reader {
        cursor: Cursor::new(payload),
        limits,
        items_left: limits.items_per_batch,
        head: Head::default(),
    };
    match reader.cursor.kind() {
        Err(_) => return Err(BodyError::Empty),
        Ok(Kind::Array) => reader.batch_array::<D>(&mut on_event)?,
        Ok(Kind::Map) => reader.batch_map::<D>(&mut on_event)?,
        Ok(_) => return Err(BodyError::NotABatch),
    }
    match reader.cursor.remaining() {
        0 => Ok(reader.head),
        bytes => Err(BodyError::TrailingBytes { bytes }),
    }
}

type OnEvent<'f, 'a> = &'f mut dyn FnMut(Place, Result<Read<'a>, Fault>);

impl<'a> Reader<'a, '_> {
    fn batch_array<D: Dialect>(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let count = self.cursor.array().map_err(unwalkable)?;
        if count < 2 {
            return Err(BodyError::NotABatch);
        }
        self.ts()?;
        self.events::<D>(on_event)?;
        if count > 2 {
            self.rank(D::RANK)?;
        }
        for _ in 3..count {
            self.cursor.skip().map_err(unwalkable)?;
        }
        Ok(())
    }

    fn batch_map<D: Dialect>(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let pairs = self.cursor.map().map_err(unwalkable)?;
        let mut has_events = false;
        for _ in 0..pairs {
            let key = self.key().map_err(BodyError::Unwalkable)?;
            match key.and_then(|key| std::str::from_utf8(key).ok()) {
                Some(TS) => self.ts()?,
                Some(EVENTS) if has_events => return Err(in_field(EVENTS, Reason::Duplicate)),
                Some(EVENTS) => {
                    has_events = true;
                    self.events::<D>(on_event)?;
                }
                Some(key) if key == D::RANK => self.rank(D::RANK)?,
                _ => self.cursor.skip().map_err(unwalkable)?,
            }
        }
        if has_events { Ok(()) } else { Err(BodyError::NoEvents) }
    }

    fn ts(&mut self) -> Result<(), BodyError> {
        let kind = self.cursor.kind().map_err(unwalkable)?;
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

    fn rank(&mut self, name: &'static str) -> Result<(), BodyError> {
        self.head.rank = match self.cursor.nil() {
            true => None,
            // A rank that cannot be read is refused: two ranks in one view would be ghosts.
            false => Some(self.cursor.u32().map_err(|reason| in_field(name, reason))?),
        };
        Ok(())
    }

    fn events<D: Dialect>(&mut self, on_event: OnEvent<'_, 'a>) -> Result<(), BodyError> {
        let count = self.cursor.array().map_err(|reason| in_field(EVENTS, reason))?;
        let max = self.limits.events_per_batch;
        if count > max {
            return Err(BodyError::TooManyEvents { count, max });
        }
        for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let start = self.cursor;
            let room = affordable::<Event>(count - index as usize, start.remaining());
            let read = self.event::<D>();
            if read.is_err() {
                // Only this event is lost: step over it from its start, whatever was wrong inside.
                self.cursor = start;
                self.cursor.skip().map_err(unwalkable)?;
            }
            on_event(Place { index, room }, read);
        }
        Ok(())
    }

    fn event<D: Dialect>(&mut self) -> Result<Read<'a>, Fault> {
        let (form, count) = match self.cursor.kind().map_err(untagged)? {
            Kind::Array => (Form::Array, self.cursor.array().map_err(untagged)?),
            Kind::Map => (Form::Map, self.cursor.map().map_err(untagged)?),
            _ => return Err(untagged(Reason::NotAnEvent)),
        };
        self.head.form.get_or_insert(form);
        let tag = self.tag(form, count).map_err(untagged)?;
        D::read(self, Opened { form, count, tag })
    }

    /// The event's tag. An array's first element is taken, a map is left at its first pair.
    fn tag(&mut self, form: Form, count: usize) -> Result<&'a str, Reason> {
        let max = self.limits.text_bytes;
        match form {
            Form::Array if count == 0 => Err(Reason::NoTag),
            Form::Array if self.cursor.kind()? != Kind::Text => Err(Reason::NoTag),
            Form::Array => Ok(self.cursor.text(max)?),
            Form::Map => {
                // Always the first key so far, but maps have no order.
                let mut look = Reader { cursor: self.cursor, ..*self };
                for _ in 0..count {
                    if look.key()? == Some(b"type") {
                        return Ok(look.cursor.text(max)?);
                    }
                    look.cursor.skip()?;
                }
                Err(Reason::NoTag)
            }
        }
    }

    /// A map's key; `None` for a key that is no text, which is stepped over.
    pub fn key(&mut self) -> Result<Option<&'a [u8]>, Reason> {
        if self.cursor.kind()? == Kind::Text {
            return Ok(Some(self.cursor.text_bytes()?));
        }
        self.cursor.skip()?;
        Ok(None)
    }

    /// A text or nil.
    pub fn text(&mut self) -> Result<Option<&'a str>, Reason> {
        if self.cursor.nil() {
            Ok(None)
        } else {
            Ok(Some(self.cursor.text(self.limits.text_bytes)?))
        }
    }

    /// The id of a customer's session. No hash depends on it: one that is too long is left out,
    /// because a refused event would let any tenant lower the replica's trust.
    pub fn session(&mut self) -> Result<Option<&'a str>, Reason> {
        match self.text() {
            Err(Reason::TooLong) => Ok(None),
            other => other,
        }
    }

    /// An integer of either sign or bytes.
    #[inline]
    pub fn hash(&mut self) -> Result<BlockHash, Reason> {
        if self.cursor.kind()? == Kind::Bytes {
            let bytes = self.cursor.bytes()?;
            return BlockHash::from_bytes(bytes).map_err(|_| Reason::OutOfRange);
        }
        Ok(BlockHash::from_u64(match self.cursor.int()? {
            Int::Unsigned(value) => value,
            Int::Negative(value) => value.cast_unsigned(),
        }))
    }

    /// A list of hashes.
    pub fn hashes<T>(
        &mut self,
        out: &mut Vec<T>,
        wrap: impl Fn(BlockHash) -> T,
    ) -> Result<(), Reason> {
        let count = self.cursor.array()?;
        self.spend(count, self.limits.hashes_per_event)?;
        out.reserve_exact(affordable::<T>(count, self.cursor.remaining()));
        for _ in 0..count {
            out.push(wrap(self.hash()?));
        }
        Ok(())
    }

    /// The header of a list of token ids: how many follow.
    pub fn token_count(&mut self) -> Result<usize, Reason> {
        let count = self.cursor.array()?;
        if count > self.limits.tokens_per_event { Err(Reason::TooMany) } else { Ok(count) }
    }

    /// A list of token ids.
    pub fn tokens(&mut self, out: &mut Vec<u32>) -> Result<(), Reason> {
        let count = self.token_count()?;
        out.reserve_exact(affordable::<u32>(count, self.cursor.remaining()));
        Ok(self.cursor.u32s(count, out)?)
    }

    /// Takes `count` items from the event's and the batch's allowance.
    pub fn spend(&mut self, count: usize, max: usize) -> Result<(), Reason> {
        if count > max {
            return Err(Reason::TooMany);
        }
        self.items_left = self.items_left.checked_sub(count).ok_or(Reason::TooMany)?;
        Ok(())
    }
}

/// How many elements to make room for: never more memory than bytes are left to read, but one.
pub fn affordable<T>(count: usize, remaining: usize) -> usize {
    count.min((remaining / size_of::<T>().max(1)).max(1))
}

/// An unreadable field of the batch. Bytes that end early are the payload's fault, not the field's.
fn in_field(field: &'static str, reason: impl Into<Reason>) -> BodyError {
    match reason.into() {
        reason @ (Reason::Truncated | Reason::Reserved) => BodyError::Unwalkable(reason),
        reason => BodyError::Field { field, reason },
    }
}

fn unwalkable(bytes: Unreadable) -> BodyError {
    BodyError::Unwalkable(bytes.into())
}

fn untagged(reason: impl Into<Reason>) -> Fault {
    Fault { kind: LostKind::UnknownTag, field: None, reason: reason.into() }
}
