//! One message: its seq frame and its payload, as a batch.

use std::{fmt::Write as _, marker::PhantomData};

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{Digest, Event, HashInfo, HashScheme, Seq, digest};

use crate::{
    fault::{BodyError, EventFault, Fault, FrameError, LostKind, Reason},
    limits::Limits,
    reader::{Form, Opened, Place, Reader, read_batch},
};

/// An engine's events: what their fields are called, and what they mean.
pub trait Dialect {
    /// Key of the batch's data-parallel rank.
    const RANK: &'static str;
    /// Format of a batch whose events are positional arrays, or that has none.
    const FORMAT_ARRAY: &'static str;
    /// Format of a batch whose events are maps.
    const FORMAT_MAP: &'static str;

    /// Reads an event to its end.
    fn read<'a>(reader: &mut Reader<'a, '_>, opened: Opened<'a>) -> Result<Read<'a>, Fault>;

    /// How it computes block hashes, as far as that is known.
    fn hash_scheme() -> HashScheme;
}

/// The seq of an end marker: −1, read as unsigned.
const END_MARKER_SEQ: u64 = u64::MAX;

/// Longest unknown tag that is kept by name.
const TAG_BYTES_MAX: usize = 64;

/// An event that could be read.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every event is known: a box only costs")]
pub enum Read<'a> {
    /// In our words.
    Event(Event),
    /// In our words, which need two: no one of ours says all of it.
    Two(Box<[Event; 2]>),
    /// A type that the dialect does not know, by its tag.
    Unknown(&'a str),
}

/// Decodes the messages of one publisher. It holds settings only, no state of the stream.
#[derive(Clone, Debug, Default)]
pub struct Decoder<D> {
    limits: Limits,
    ignore_tags: Vec<String>,
    dialect: PhantomData<fn() -> D>,
}

/// What a message was.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a batch: a box only costs")]
pub enum Decoded {
    /// The end of a replay: no batch.
    EndMarker,
    /// A batch, complete or with losses.
    Batch(DecodedBatch),
}

/// A batch and what could not be read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedBatch {
    /// The batch. Its `loss` sums up the two lists below.
    pub batch: Batch,
    /// The events that were not read; empty when the body as a whole was not.
    pub faults: Vec<EventFault>,
    /// Why the whole body was not read.
    pub body: Option<BodyError>,
}

impl<D: Dialect> Decoder<D> {
    /// A decoder with these limits. Events of the types in `ignore_tags` cost nothing; it reaches
    /// only types that this crate does not know, so a clear cannot be ignored by it.
    pub fn new(limits: Limits, ignore_tags: Vec<String>) -> Decoder<D> {
        Decoder { limits, ignore_tags, dialect: PhantomData }
    }

    /// Decodes one message, live or replayed: a payload that cannot be read is a batch with a loss.
    pub fn decode(&self, seq_frame: &[u8], payload: &[u8]) -> Result<Decoded, FrameError> {
        let (seq, incarnation) = read_seq_frame(seq_frame)?;
        if seq.0 == END_MARKER_SEQ {
            return Ok(Decoded::EndMarker);
        }
        let mut decoded = match self.body(payload) {
            Ok(decoded) => decoded,
            Err(error) => lost_body::<D>(error),
        };
        let batch = &mut decoded.batch;
        batch.seq = seq;
        batch.incarnation = incarnation;
        batch.digest = digest(payload);
        batch.bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Ok(Decoded::Batch(decoded))
    }

    /// Reads a payload alone. Seq, incarnation, digest and size are left at their zero.
    fn body(&self, payload: &[u8]) -> Result<DecodedBatch, BodyError> {
        let (bytes, max) = (payload.len(), self.limits.payload_bytes);
        if bytes > max {
            return Err(BodyError::TooLarge { bytes, max });
        }
        let mut events = Vec::new();
        let mut faults = Vec::new();
        let head =
            read_batch::<D>(payload, &self.limits, |Place { index, room }, read| match read {
                Ok(Read::Event(event)) => {
                    if events.is_empty() {
                        events.reserve_exact(room);
                    }
                    events.push(event);
                }
                Ok(Read::Two(both)) => events.extend(*both),
                Ok(Read::Unknown(tag)) if self.ignore_tags.iter().any(|known| known == tag) => (),
                Ok(Read::Unknown(tag)) => faults.push(unknown_tag(index, tag)),
                Err(Fault { kind, field, reason }) => {
                    faults.push(EventFault { index, kind, field, reason, tag: None });
                }
            })?;
        let mut batch = empty_batch::<D>();
        batch.ts = micros(head.ts);
        batch.rank = head.rank;
        batch.format = match head.form {
            Some(Form::Map) => D::FORMAT_MAP,
            Some(Form::Array) | None => D::FORMAT_ARRAY,
        };
        batch.hash.block_size = first_block_size(&events);
        batch.loss = faults.iter().map(|fault| fault.kind.loss()).max().unwrap_or_default();
        batch.events = events;
        Ok(DecodedBatch { batch, faults, body: None })
    }
}

/// Unix microseconds; what is no time after 1970 is 0, which means unknown.
fn micros(seconds: f64) -> u64 {
    let micros = (seconds * 1e6).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates: a negative time is 0"
    )]
    let whole = micros as u64;
    if micros.is_finite() { whole } else { 0 }
}

/// 8 bytes of seq, big-endian; a draft (vLLM #57789) appends 16 bytes that name the publisher's
/// life.
fn read_seq_frame(frame: &[u8]) -> Result<(Seq, Option<String>), FrameError> {
    let wrong = FrameError::SeqLength { bytes: frame.len() };
    let (seq, publisher) = frame.split_first_chunk::<8>().ok_or(wrong)?;
    let incarnation = match publisher.len() {
        0 => None,
        16 => Some(hex(publisher)),
        _ => return Err(wrong),
    };
    Ok((Seq(u64::from_be_bytes(*seq)), incarnation))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
    }
    text
}

fn unknown_tag(index: u32, tag: &str) -> EventFault {
    let is_name = tag.len() <= TAG_BYTES_MAX
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    EventFault {
        index,
        kind: LostKind::UnknownTag,
        field: None,
        reason: Reason::UnknownTag,
        tag: is_name.then(|| tag.to_owned()),
    }
}

fn lost_body<D: Dialect>(error: BodyError) -> DecodedBatch {
    let batch = Batch { loss: Loss::Body, ..empty_batch::<D>() };
    DecodedBatch { batch, faults: Vec::new(), body: Some(error) }
}

fn empty_batch<D: Dialect>() -> Batch {
    Batch {
        epoch: None,
        incarnation: None,
        seq: Seq(0),
        span: 1,
        digest: Digest::default(),
        ts: 0,
        format: D::FORMAT_ARRAY,
        hash: HashInfo { scheme: D::hash_scheme(), block_size: 0 },
        rank: None,
        events: Vec::new(),
        loss: Loss::Nothing,
        bytes: 0,
    }
}

/// Block sizes differ between the groups of a hybrid model; the envelope names the first.
fn first_block_size(events: &[Event]) -> u32 {
    let size = |event: &Event| match event {
        Event::Stored(stored) if stored.block_size > 0 => Some(stored.block_size),
        _ => None,
    };
    events.iter().find_map(size).unwrap_or(0)
}
