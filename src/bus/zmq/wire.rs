//! Requests and answers of a bridge's ROUTER as frames. No I/O; `docs/specs/bus_zmq.md` is the
//! contract.
//!
//! Foreign bytes come in on both sides, so everything is checked before it is used, and nothing is
//! allocated by a length that a peer chose.

use bytes::Bytes;
use kvbridge_adapters_zmq::{
    FrameError, Multipart,
    frame::{check_sizes, number, owned},
};
use kvbridge_schemas::{Epoch, ReplicaKey, Seq};

use crate::config::limits::{BUS_REPLICAS_MAX, ZMQ_CHUNK_MESSAGES_MAX};

/// First frame after the delimiter: protocol and major version.
const PROTOCOL: &[u8] = b"kvbus1";

/// Longest replica key in a request or a list; a subject of a bus is not longer either.
const KEY_BYTES_MAX: usize = 1024;

/// Shows that a peer has read the answer before. Zero in its first request.
pub type Ticket = u64;

/// What a reader asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Which replicas there are.
    List,
    /// Messages from a seq on.
    Replay {
        /// Whose.
        key: ReplicaKey,
        /// The life that the seq is of; 0 = not known.
        epoch: Epoch,
        /// The first seq wanted.
        first: Seq,
        /// The place behind which an answer goes on; 0 = at the first seq.
        after: u64,
    },
    /// A fresh snapshot.
    Snapshot {
        /// Whose.
        key: ReplicaKey,
    },
    /// The next records of a snapshot.
    Records {
        /// Which snapshot.
        id: u64,
    },
}

/// What a bridge answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All replicas.
    List {
        /// Port of the live messages, on the same host.
        live_port: u16,
        /// Key and engine of each.
        replicas: Vec<(ReplicaKey, String)>,
    },
    /// Some messages of the newest life.
    Replay(ReplayAnswer),
    /// A snapshot was taken.
    Snapshot {
        /// Its number, to ask for its records.
        id: u64,
        /// Its header, as bytes of the codec.
        header: Bytes,
    },
    /// Records of it.
    Records {
        /// No more follow.
        last: bool,
        /// A list of records, as bytes of the codec; empty bytes = none.
        records: Bytes,
    },
    /// No.
    Refused(Refusal),
}

/// Part of a replay.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReplayAnswer {
    /// The newest life in the journal; 0 = the journal has nothing of this replica.
    pub epoch: Epoch,
    /// The journal's own first seq of that life: whether a start was lost is told by it alone.
    pub first: Seq,
    /// The seq behind its last message.
    pub next: Seq,
    /// The place to go on behind; 0 = nothing more is kept.
    pub after: u64,
    /// Messages from the seq asked for on, in order.
    pub messages: Vec<(Seq, Bytes)>,
}

impl std::fmt::Debug for ReplayAnswer {
    // A message holds token ids, which are customers' prompts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ReplayAnswer { epoch, first, next, messages, .. } = self;
        write!(f, "Replay({epoch}, {first}..{next}, {} messages)", messages.len())
    }
}

/// Why a bridge says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too much is under way; ask again.
    Busy,
    /// The bridge does not trust its own view now; ask again.
    Untrusted,
    /// No such replica here.
    UnknownReplica,
    /// No such snapshot any more.
    UnknownSnapshot,
    /// The journal cannot be read.
    Unreadable,
}

impl Refusal {
    const ALL: [Refusal; 5] = [
        Refusal::Busy,
        Refusal::Untrusted,
        Refusal::UnknownReplica,
        Refusal::UnknownSnapshot,
        Refusal::Unreadable,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::Busy => "busy",
            Refusal::Untrusted => "untrusted",
            Refusal::UnknownReplica => "unknown_replica",
            Refusal::UnknownSnapshot => "unknown_snapshot",
            Refusal::Unreadable => "unreadable",
        }
    }
}

/// A request as frames.
pub fn write_query(ticket: Ticket, query: &Query) -> Multipart {
    let mut frames = head(ticket);
    match query {
        Query::List => frames.push(Bytes::from_static(b"list")),
        Query::Replay { key, epoch, first, after } => {
            frames.push(Bytes::from_static(b"replay"));
            frames.push(text(key.as_str()));
            frames.extend([be(epoch.0), be(first.0), be(*after)]);
        }
        Query::Snapshot { key } => {
            frames.push(Bytes::from_static(b"snapshot"));
            frames.push(text(key.as_str()));
        }
        Query::Records { id } => {
            frames.push(Bytes::from_static(b"records"));
            frames.push(be(*id));
        }
    }
    frames
}

/// Reads a request.
pub fn read_query(frames: Multipart) -> Result<(Ticket, Query), FrameError> {
    check_sizes(&frames, KEY_BYTES_MAX)?;
    let (ticket, verb, rest) = split(&frames)?;
    let query = match (verb, rest) {
        (b"list", []) => Query::List,
        (b"replay", [key, epoch, first, after]) => Query::Replay {
            key: read_key(key)?,
            epoch: Epoch(number(epoch)?),
            first: Seq(number(first)?),
            after: number(after)?,
        },
        (b"snapshot", [key]) => Query::Snapshot { key: read_key(key)? },
        (b"records", [id]) => Query::Records { id: number(id)? },
        _ => return Err(FrameError::Unlike { expected: "a known question with its arguments" }),
    };
    Ok((ticket, query))
}

/// An answer as frames.
pub fn write_answer(ticket: Ticket, answer: &Answer) -> Multipart {
    let mut frames = head(ticket);
    match answer {
        Answer::List { live_port, replicas } => {
            frames.push(Bytes::from_static(b"list"));
            frames.push(be(u64::from(*live_port)));
            for (key, engine) in replicas {
                frames.extend([text(key.as_str()), text(engine)]);
            }
        }
        Answer::Replay(ReplayAnswer { epoch, first, next, after, messages }) => {
            frames.push(Bytes::from_static(b"replay"));
            frames.extend([be(epoch.0), be(first.0), be(next.0), be(*after)]);
            for (seq, message) in messages {
                frames.extend([be(seq.0), Bytes::clone(message)]);
            }
        }
        Answer::Snapshot { id, header } => {
            frames.push(Bytes::from_static(b"snapshot"));
            frames.extend([be(*id), Bytes::clone(header)]);
        }
        Answer::Records { last, records } => {
            frames.push(Bytes::from_static(b"records"));
            frames.extend([be(u64::from(*last)), Bytes::clone(records)]);
        }
        Answer::Refused(refusal) => {
            frames.push(Bytes::from_static(b"refused"));
            frames.push(Bytes::from_static(refusal.as_str().as_bytes()));
        }
    }
    frames
}

/// Reads an answer.
pub fn read_answer(
    frames: Multipart,
    frame_bytes_max: usize,
) -> Result<(Ticket, Answer), FrameError> {
    check_sizes(&frames, frame_bytes_max)?;
    let (ticket, verb, rest) = split(&frames)?;
    let answer = match (verb, rest) {
        (b"list", [live_port, rest @ ..]) => Answer::List {
            live_port: u16::try_from(number(live_port)?)
                .map_err(|_| FrameError::Unlike { expected: "a port" })?,
            replicas: pairs(rest, BUS_REPLICAS_MAX, |key, engine| {
                Ok((read_key(key)?, read_text(engine)?.to_owned()))
            })?,
        },
        (b"replay", [epoch, first, next, after, rest @ ..]) => Answer::Replay(ReplayAnswer {
            epoch: Epoch(number(epoch)?),
            first: Seq(number(first)?),
            next: Seq(number(next)?),
            after: number(after)?,
            messages: pairs(rest, ZMQ_CHUNK_MESSAGES_MAX, |seq, message| {
                Ok((Seq(number(seq)?), owned(Bytes::clone(message))))
            })?,
        }),
        (b"snapshot", [id, header]) => {
            Answer::Snapshot { id: number(id)?, header: owned(Bytes::clone(header)) }
        }
        (b"records", [last, records]) => {
            Answer::Records { last: number(last)? != 0, records: owned(Bytes::clone(records)) }
        }
        (b"refused", [word]) => Answer::Refused(read_refusal(word)?),
        _ => return Err(FrameError::Unlike { expected: "a known answer with its parts" }),
    };
    Ok((ticket, answer))
}

fn head(ticket: Ticket) -> Multipart {
    vec![Bytes::new(), Bytes::from_static(PROTOCOL), be(ticket)]
}

fn split(frames: &[Bytes]) -> Result<(Ticket, &[u8], &[Bytes]), FrameError> {
    let [delimiter, protocol, ticket, verb, rest @ ..] = frames else {
        return Err(FrameError::Unlike { expected: "delimiter, protocol, ticket and a word" });
    };
    if !delimiter.is_empty() {
        return Err(FrameError::Delimiter { came: delimiter.len() });
    }
    if protocol != PROTOCOL {
        return Err(FrameError::Unlike { expected: "the protocol kvbus1" });
    }
    Ok((number(ticket)?, verb, rest))
}

fn pairs<T>(
    frames: &[Bytes],
    max: usize,
    read: impl Fn(&Bytes, &Bytes) -> Result<T, FrameError>,
) -> Result<Vec<T>, FrameError> {
    if frames.len() > max.saturating_mul(2) {
        return Err(FrameError::Unlike { expected: "no more items than the limit" });
    }
    let chunks = frames.chunks(2).map(|pair| match pair {
        [first, second] => read(first, second),
        _ => Err(FrameError::Unlike { expected: "two frames for each item" }),
    });
    chunks.collect()
}

fn read_text(frame: &[u8]) -> Result<&str, FrameError> {
    let text = std::str::from_utf8(frame).ok().filter(|text| text.len() <= KEY_BYTES_MAX);
    text.ok_or(FrameError::Unlike { expected: "a short text" })
}

fn read_key(frame: &[u8]) -> Result<ReplicaKey, FrameError> {
    let replica = ReplicaKey::parse(read_text(frame)?);
    replica.map(|it| it.key()).map_err(|_| FrameError::Unlike { expected: "a replica key" })
}

fn read_refusal(word: &[u8]) -> Result<Refusal, FrameError> {
    let word = read_text(word)?;
    // A word of a later version: whatever it says, asking again is never wrong.
    Ok(Refusal::ALL.into_iter().find(|it| it.as_str() == word).unwrap_or(Refusal::Busy))
}

fn be(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::Replica;
    use proptest::prelude::*;

    use super::*;

    fn key() -> ReplicaKey {
        Replica { model: "m".into(), instance: "i:1".into(), rank: 0 }.key()
    }

    #[test]
    fn questions_come_back() {
        for query in [
            Query::List,
            Query::Replay { key: key(), epoch: Epoch(7), first: Seq(9), after: 2 },
            Query::Snapshot { key: key() },
            Query::Records { id: 3 },
        ] {
            assert_eq!(read_query(write_query(5, &query)), Ok((5, query)));
        }
    }

    #[test]
    fn answers_come_back() {
        let bytes = Bytes::from_static(b"body");
        for answer in [
            Answer::List { live_port: 5570, replicas: vec![(key(), "vllm".into())] },
            Answer::Replay(ReplayAnswer {
                epoch: Epoch(7),
                first: Seq(1),
                next: Seq(4),
                after: 0,
                messages: vec![(Seq(2), bytes.clone()), (Seq(3), bytes.clone())],
            }),
            Answer::Snapshot { id: 3, header: bytes.clone() },
            Answer::Records { last: true, records: bytes },
            Answer::Refused(Refusal::Untrusted),
        ] {
            assert_eq!(read_answer(write_answer(5, &answer), 1024), Ok((5, answer)));
        }
    }

    #[test]
    fn a_word_we_do_not_know_is_asked_again() {
        let mut frames = write_answer(1, &Answer::Refused(Refusal::Busy));
        *frames.last_mut().unwrap() = Bytes::from_static(b"tired");
        assert_eq!(read_answer(frames, 64), Ok((1, Answer::Refused(Refusal::Busy))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut other = write_query(1, &Query::List);
        other[1] = Bytes::from_static(b"kvbus2");
        assert_eq!(read_query(other).unwrap_err().to_string(), "expected the protocol kvbus1");
        let mut long = write_query(1, &Query::Snapshot { key: key() });
        long[4] = Bytes::from(vec![b'a'; KEY_BYTES_MAX + 1]);
        assert!(matches!(read_query(long), Err(FrameError::TooLarge { .. })));
        let mut odd = write_answer(1, &Answer::List { live_port: 1, replicas: Vec::new() });
        odd.push(Bytes::from_static(b"m.i.0"));
        assert!(read_answer(odd, 64).is_err());
    }

    proptest! {
        #[test]
        fn nothing_foreign_panics(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..8),
            verb in prop::sample::select(vec!["list", "replay", "snapshot", "records", "refused"]),
        ) {
            let foreign: Multipart = parts.into_iter().map(Bytes::from).collect();
            let mut framed = head(1);
            framed.push(text(verb));
            framed.extend(foreign.iter().cloned());
            for frames in [foreign, framed] {
                drop(read_query(frames.clone()));
                drop(read_answer(frames, 64));
            }
        }
    }
}
