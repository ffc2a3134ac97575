//! Multipart messages as bytes: what a live message and a replay reply look like. Pure, no socket.
//!
//! Foreign bytes come in, so nothing here panics, slices or allocates by a length that a peer
//! chose.

use std::fmt;

use bytes::Bytes;

/// The largest single frame that is passed on.
///
/// A real batch was at most some hundred KiB; 24 frames of 64 MiB were received without trouble, at
/// 138 MB of resident memory. The library has no limit of its own and has read the frame when we
/// see its size, so this bounds what is queued and decoded, not what is received.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The library reads in chunks up to this size; a larger frame has a buffer nearly of its own.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A seq frame of released engines.
const SEQ_BYTES: usize = 8;
/// A seq frame of the draft protocol: seq, then a 16-byte publisher id.
const SEQ_AND_PUBLISHER_BYTES: usize = 24;

/// The frame that carries the seq: 8 bytes big-endian, or those and a 16-byte publisher id.
///
/// Kept inline: a slice of the receive buffer would keep that buffer alive for 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SeqFrame {
    bytes: [u8; SEQ_AND_PUBLISHER_BYTES],
    long: bool,
}

impl SeqFrame {
    /// The frame of a plain seq.
    pub fn of(seq: u64) -> SeqFrame {
        let mut bytes = [0; SEQ_AND_PUBLISHER_BYTES];
        for (to, from) in bytes.iter_mut().zip(seq.to_be_bytes()) {
            *to = from;
        }
        SeqFrame { bytes, long: false }
    }

    /// Reads a frame of one of the two known lengths.
    pub fn read(frame: &[u8]) -> Result<SeqFrame, FrameError> {
        if frame.len() != SEQ_BYTES && frame.len() != SEQ_AND_PUBLISHER_BYTES {
            return Err(FrameError::SeqLength { came: frame.len() });
        }
        let mut bytes = [0; SEQ_AND_PUBLISHER_BYTES];
        for (to, from) in bytes.iter_mut().zip(frame) {
            *to = *from;
        }
        Ok(SeqFrame { bytes, long: frame.len() == SEQ_AND_PUBLISHER_BYTES })
    }

    /// The bytes as they came.
    pub fn as_bytes(&self) -> &[u8] {
        let len = if self.long { SEQ_AND_PUBLISHER_BYTES } else { SEQ_BYTES };
        self.bytes.get(..len).unwrap_or_default()
    }

    /// The seq.
    pub fn seq(&self) -> u64 {
        self.bytes.iter().take(SEQ_BYTES).fold(0, |seq, byte| (seq << 8) | u64::from(*byte))
    }

    /// Whether the seq is all ones: the end marker's.
    pub fn is_all_ones(&self) -> bool {
        self.seq() == u64::MAX
    }
}

impl fmt::Debug for SeqFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeqFrame({}{})", self.seq(), if self.long { " + publisher" } else { "" })
    }
}

/// What a live message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveForm {
    /// `[topic, seq, payload]`: every engine.
    #[default]
    Plain,
    /// `[topic, seq, epoch, payload]`: a bridge's bus.
    WithEpoch,
}

/// One live message.
#[derive(Clone, PartialEq, Eq)]
pub struct LiveFrame {
    /// What the subscription matched by prefix; may be empty.
    pub topic: Bytes,
    /// The seq.
    pub seq_frame: SeqFrame,
    /// The life, where messages name it.
    pub epoch: Option<u64>,
    /// The sender's bytes, unread.
    pub payload: Bytes,
}

impl LiveFrame {
    /// Bytes it counts for in a queue.
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.seq_frame.as_bytes().len() + self.payload.len()
    }
}

impl fmt::Debug for LiveFrame {
    // A payload holds token ids, which are customers' prompts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveFrame({:?}, {} bytes)", self.seq_frame, self.payload.len())
    }
}

/// One reply to a replay request, as a DEALER gets it.
#[derive(Clone, PartialEq, Eq)]
pub enum ReplayFrame {
    /// One batch of the journal.
    Batch {
        /// The topic; empty in the older framing.
        topic: Bytes,
        /// The seq.
        seq_frame: SeqFrame,
        /// The engine's bytes, unread.
        payload: Bytes,
    },
    /// The end marker: seq all ones and an empty payload.
    End,
}

impl fmt::Debug for ReplayFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayFrame::Batch { topic: _, seq_frame, payload } => {
                write!(f, "Batch({seq_frame:?}, {} bytes)", payload.len())
            }
            ReplayFrame::End => f.write_str("End"),
        }
    }
}

/// Why a message is not what the protocol says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FrameError {
    /// A live message is not topic, seq, payload.
    #[error("expected 3 frames (topic, seq, payload), {came} came")]
    LiveFrameCount {
        /// How many came.
        came: usize,
    },
    /// A live message of a bus is not topic, seq, epoch, payload.
    #[error("expected 4 frames (topic, seq, epoch, payload), {came} came")]
    BusFrameCount {
        /// How many came.
        came: usize,
    },
    /// A number is not 8 bytes.
    #[error("expected a number of 8 bytes, {came} came")]
    NumberLength {
        /// Its length.
        came: usize,
    },
    /// A request or an answer does not read as its protocol says.
    #[error("expected {expected}")]
    Unlike {
        /// What should have been there.
        expected: &'static str,
    },
    /// A reply is not in one of the two framings.
    #[error("expected a delimiter and 2 or 3 frames, {came} frames came")]
    ReplyFrameCount {
        /// How many came, with the delimiter.
        came: usize,
    },
    /// A reply does not start with the empty delimiter.
    #[error("expected an empty delimiter, {came} bytes came")]
    Delimiter {
        /// Length of the first frame.
        came: usize,
    },
    /// The seq frame has another length.
    #[error("expected a seq of 8 or 24 bytes, {came} came")]
    SeqLength {
        /// Its length.
        came: usize,
    },
    /// The end marker's seq with a payload: neither a batch nor an end.
    #[error("the end marker carries a payload of {came} bytes")]
    EndWithPayload {
        /// Length of the payload.
        came: usize,
    },
    /// A frame is larger than we pass on.
    #[error("a frame of {came} bytes is over the limit of {max}")]
    TooLarge {
        /// Its size.
        came: usize,
        /// The limit.
        max: usize,
    },
}

/// Reads a live message of that form.
pub fn parse_live(
    frames: Vec<Bytes>,
    form: LiveForm,
    frame_bytes_max: usize,
) -> Result<LiveFrame, FrameError> {
    check_sizes(&frames, frame_bytes_max)?;
    let came = frames.len();
    let (topic, seq, epoch, payload) = match form {
        LiveForm::Plain => {
            let parts = <[Bytes; 3]>::try_from(frames);
            let [topic, seq, payload] = parts.map_err(|_| FrameError::LiveFrameCount { came })?;
            (topic, seq, None, payload)
        }
        LiveForm::WithEpoch => {
            let parts = <[Bytes; 4]>::try_from(frames);
            let [topic, seq, epoch, payload] =
                parts.map_err(|_| FrameError::BusFrameCount { came })?;
            (topic, seq, Some(number(&epoch)?), payload)
        }
    };
    let seq_frame = SeqFrame::read(&seq)?;
    Ok(LiveFrame { topic: owned(topic), seq_frame, epoch, payload: owned(payload) })
}

/// Reads a number of 8 bytes, big-endian.
pub fn number(frame: &[u8]) -> Result<u64, FrameError> {
    let bytes = <[u8; 8]>::try_from(frame);
    bytes.map(u64::from_be_bytes).map_err(|_| FrameError::NumberLength { came: frame.len() })
}

/// Reads a reply: the delimiter, then `[seq, payload]` (older engines) or `[topic, seq, payload]`.
///
/// Told apart by shape and never by version: tags and packages of one version disagree in the
/// field.
pub fn parse_replay(frames: Vec<Bytes>, frame_bytes_max: usize) -> Result<ReplayFrame, FrameError> {
    check_sizes(&frames, frame_bytes_max)?;
    let came = frames.len();
    let mut frames = frames.into_iter();
    let delimiter = frames.next().ok_or(FrameError::ReplyFrameCount { came })?;
    if !delimiter.is_empty() {
        return Err(FrameError::Delimiter { came: delimiter.len() });
    }
    let (payload, seq) = match (frames.next_back(), frames.next_back(), frames.len()) {
        (Some(payload), Some(seq), 0 | 1) => (payload, seq),
        _ => return Err(FrameError::ReplyFrameCount { came }),
    };
    let topic = frames.next().map(owned).unwrap_or_default();
    let seq_frame = SeqFrame::read(&seq)?;
    match (seq_frame.is_all_ones(), payload.is_empty()) {
        (true, true) => Ok(ReplayFrame::End),
        (true, false) => Err(FrameError::EndWithPayload { came: payload.len() }),
        (false, _) => Ok(ReplayFrame::Batch { topic, seq_frame, payload: owned(payload) }),
    }
}

/// Cuts a small frame loose from the receive buffer it is a slice of.
///
/// Queues are bounded by the bytes of what they hold. 10 000 waiting payloads of 5 kB that had come
/// one by one held 157 MB as slices: each kept a whole read buffer alive.
pub fn owned(frame: Bytes) -> Bytes {
    if frame.len() < READ_BUFFER_BYTES { Bytes::copy_from_slice(&frame) } else { frame }
}

/// Refuses frames that are larger than we pass on.
pub fn check_sizes(frames: &[Bytes], max: usize) -> Result<(), FrameError> {
    match frames.iter().map(Bytes::len).max() {
        Some(came) if came > max => Err(FrameError::TooLarge { came, max }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
