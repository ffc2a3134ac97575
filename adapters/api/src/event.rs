//! What a source says, and what it can be asked.

use std::fmt;

use kvbridge_schemas::{Cursor, Digest, Epoch, Seq, TierTrust, Trust};

use crate::Batch;

/// Number of one replay or snapshot request. An answer with an older one changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One thing a source says, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// The live stream is attached. Nothing sent before this moment was seen.
    Attached,
    /// The live stream broke; comes before the first frame of any new connection.
    Detached,
    /// Batches were dropped here because our own queue was full, or are missing here for a reason
    /// that only the source can see.
    Overflowed,
    /// The all-ones seq on the live stream.
    EndMarker,
    /// One live batch, in transport order.
    Live(Batch),
    /// Part of an answer to a request.
    Answer {
        /// Which request.
        attempt: Attempt,
        /// Which part.
        part: AnswerPart,
    },
    /// The engine's start time (or a member's) changed, or the source knows in another way that
    /// its process is a new one: positive evidence of a new life.
    Restarted,
    /// Until the next [`Attached`](SourceEvent::Attached): the engine lets blocks go, or leaves
    /// stores out, without a word. What the source does about that may leave out blocks that are
    /// there, and never keeps one that is gone.
    Unannounced,
    /// Another reader of a destructive source takes events away from this one.
    Competing,
    /// What a snapshot was taken for ([`SnapshotSupport::plain`](crate::SnapshotSupport::plain)) is
    /// not so: the engine has more tiers than it said, or pages of several adapters under one hash.
    Disproved,
    /// What the bridges behind a log say of it. A source that follows a log says it before it
    /// attaches, and again whenever it changes; others never do.
    Upstream(Upstream),
}

/// What may be believed of a log, by the word of those who write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// None of them has spoken for too long.
    Silent,
    /// The best that one of them says now.
    Vouched {
        /// The log has everything of this life below this seq.
        cursor: Cursor,
        /// How far its own view may be believed.
        trust: Trust,
        /// How far that view is, in the same life: no less than the log.
        view: Seq,
    },
}

/// Part of an answer to a replay or snapshot request.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerPart {
    /// One batch out of the journal.
    Batch(Batch),
    /// A source that numbers its whole log can tell from these numbers what is missing: whoever
    /// stands here misses nothing that lies before the rest of this answer. Only for a log that
    /// names lives; it stands in for the batch below, where that is kept no longer.
    Continues(Cursor),
    /// The journal lacks batches from here on that another bridge has: its copies follow, up to
    /// where the journal goes on. Whoever answers so has compared bytes on both sides.
    FromTwin(Seq),
    /// The replay's end marker. It proves nothing by itself.
    End,
    /// The journal no longer holds the start (only a source that can know it says so).
    Truncated,
    /// The request ended without an end marker: the peer went, or said no.
    Failed,
    /// Too much is under way there for a replay. It says nothing of the log: ask again, later.
    Busy,
    /// What the snapshot is of.
    SnapshotIntro(SnapshotIntro),
    /// So many more records are in the shadow view: what
    /// [`Delivery::Records`](crate::Delivery::Records) becomes once they are.
    SnapshotRecords(u64),
    /// No more records follow.
    SnapshotEnd,
    /// No snapshot now.
    SnapshotRefused(SnapshotRefusal),
}

/// The head of a snapshot, as far as deciding needs it. Records go to a shadow view past the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotIntro {
    /// The life it is of, when the source names lives.
    pub epoch: Option<Epoch>,
    /// The engine's own evidence of that life, in the words of its batches.
    pub incarnation: Option<String>,
    /// It reflects all batches below.
    pub resume_seq: Seq,
    /// Digest of batch `resume_seq - 1`, when known.
    pub last_digest: Option<Digest>,
    /// How many records will come.
    pub record_count: u64,
    /// Seq of the marker batch in the live stream that proves the cut, when the source has
    /// barriers.
    pub barrier: Option<Seq>,
    /// The most it may be believed.
    pub trust: TierTrust,
}

/// Why a source gave no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotRefusal {
    /// Another capture is running.
    Busy,
    /// The source cannot give one at all, now or later.
    Unavailable,
    /// Its parts contradict each other: another one may be whole.
    Inconsistent,
    /// It holds more than this process keeps of one replica.
    TooLarge,
}

/// What a source can be asked. The answer comes through the event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRequest {
    /// Everything from `start_seq` (inclusive) on; the protocol knows no end.
    Replay {
        /// Number of the request.
        attempt: Attempt,
        /// First seq wanted.
        start_seq: Seq,
    },
    /// The whole state.
    Snapshot {
        /// Number of the request.
        attempt: Attempt,
        /// Name of a stored snapshot; absent = a fresh one.
        object: Option<String>,
    },
    /// The answer is no longer wanted: stop reading it.
    Cancel,
}
