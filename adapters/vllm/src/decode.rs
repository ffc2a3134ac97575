//! One message: its seq frame and its payload, as a batch.

use std::fmt::Write as _;

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{Digest, Event, HashInfo, HashScheme, Seq, digest};

use crate::{
    fault::{BodyError, EventFault, FrameError, LostKind, Reason},
    limits::Limits,
    normalize,
    wire::{self, Form},
};

/// Format of a batch whose events are positional arrays (to 0.23), or that has none.
pub const FORMAT_ARRAY: &str = "vllm.array";
/// Format of a batch whose events are maps (from 0.24).
pub const FORMAT_MAP: &str = "vllm.map";

/// The seq of an end marker: −1, read as unsigned.
const END_MARKER_SEQ: u64 = u64::MAX;

/// Longest unknown tag that is kept by name.
const TAG_BYTES_MAX: usize = 64;

/// Decodes the messages of one publisher. It holds settings only, no state of the stream.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    limits: Limits,
    ignore_tags: Vec<String>,
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

impl Decoder {
    /// A decoder with these limits. Events of the types in `ignore_tags` cost nothing; it reaches
    /// only types that this crate does not know, so a clear cannot be ignored by it.
    pub fn new(limits: Limits, ignore_tags: Vec<String>) -> Decoder {
        Decoder { limits, ignore_tags }
    }

    /// Decodes one message, live or replayed: a payload that cannot be read is a batch with a loss.
    pub fn decode(&self, seq_frame: &[u8], payload: &[u8]) -> Result<Decoded, FrameError> {
        let (seq, incarnation) = read_seq_frame(seq_frame)?;
        if seq.0 == END_MARKER_SEQ {
            return Ok(Decoded::EndMarker);
        }
        let mut decoded = match self.body(payload) {
            Ok(decoded) => decoded,
            Err(error) => lost_body(error),
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
        let head = wire::read_batch(payload, &self.limits, |wire::Place { index, room }, read| {
            let normalised = match read {
                Ok(raw) => normalize::event(raw),
                Err(wire::Fault { kind, field, reason }) => {
                    return faults.push(EventFault { index, kind, field, reason, tag: None });
                }
            };
            match normalised {
                Ok(event) => {
                    if events.is_empty() {
                        events.reserve_exact(room);
                    }
                    events.push(event);
                }
                Err(tag) if self.ignore_tags.iter().any(|ignored| ignored == tag) => (),
                Err(tag) => faults.push(unknown_tag(index, tag)),
            }
        })?;
        let mut batch = empty_batch();
        batch.ts = normalize::micros(head.ts);
        batch.rank = head.rank;
        batch.format = match head.form {
            Some(Form::Map) => FORMAT_MAP,
            Some(Form::Array) | None => FORMAT_ARRAY,
        };
        batch.hash.block_size = first_block_size(&events);
        batch.loss = faults.iter().map(|fault| fault.kind.loss()).max().unwrap_or_default();
        batch.events = events;
        Ok(DecodedBatch { batch, faults, body: None })
    }
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

fn lost_body(error: BodyError) -> DecodedBatch {
    let batch = Batch { loss: Loss::Body, ..empty_batch() };
    DecodedBatch { batch, faults: Vec::new(), body: Some(error) }
}

fn empty_batch() -> Batch {
    Batch {
        epoch: None,
        incarnation: None,
        seq: Seq(0),
        span: 1,
        digest: Digest::default(),
        ts: 0,
        format: FORMAT_ARRAY,
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
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
