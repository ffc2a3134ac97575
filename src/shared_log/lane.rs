//! What one replica's log holds, and what must be written next so that it has no hole.
//!
//! No I/O, no clock. The driver says what its view did; out come messages in order.
//!
//! | the view | the log |
//! |---|---|
//! | applies the seq that comes next | the batch |
//! | applies a seq above it | a reset over exactly the missing seqs, then the batch |
//! | applies a seq that the log has | nothing; equal bytes prove that the log is of the same life |
//! | was cleared, and nothing proved the log since | a reset, also when no seq is missing |
//!
//! In the last case the reset takes the place of the next seq: readers must drop what they hold,
//! and a reset only counts where it covers the seq that they expect. One batch less is a block
//! missed at `lower_bound`; blocks kept that nobody can prove would be ghosts.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use kvbridge_schemas::{
    Cursor, Digest, Engine, EngineKind, Envelope, Epoch, Event, HashInfo, HashScheme, Replica,
    Reset, Seq, Trust, TrustChange, subject,
};

/// Digests of a replica's published batches that are kept to recognise them. Too small: a whole
/// replay cannot be told from another life and costs readers a reset. Too large: 24 bytes each.
pub const DIGESTS_KEPT: usize = 1024;

/// Where a log that is kept ends, for a bridge that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTail {
    /// What it expects next.
    pub cursor: Cursor,
    /// Its newest batches, oldest first, up to [`DIGESTS_KEPT`].
    pub digests: Vec<(Seq, Digest)>,
}

/// One message for a bus.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// What it says.
    pub envelope: Arc<Envelope>,
    /// Its id: of the batch for data, in the bridge's own space for a reset.
    pub id: String,
}

/// Why a reset is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The bridge came when the engine had begun.
    JoinedLate,
    /// Batches were lost between engine and bridge.
    PermanentHole,
    /// What the log holds cannot be proven any more.
    Unproven,
    /// The bridge's spool was full.
    SpoolOverflow,
    /// A batch does not fit into a message of this server.
    TooLarge,
}

impl ResetCause {
    /// The word in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            ResetCause::JoinedLate => "joined_late",
            ResetCause::PermanentHole => "permanent_hole",
            ResetCause::Unproven => "unproven",
            ResetCause::SpoolOverflow => "spool_overflow",
            ResetCause::TooLarge => "too_large",
        }
    }
}

/// The log of one replica, as its writer knows it.
#[derive(Debug)]
pub struct Lane {
    replica: Replica,
    engine: EngineKind,
    bridge: Arc<str>,
    /// What the log expects next; `None` while it is empty.
    log: Option<Cursor>,
    /// The view was cleared within this life, and nothing proved the log since.
    doubted: bool,
    /// Seqs below the log's end that are not on it; bounded by a publisher's window.
    missing: BTreeSet<Seq>,
    /// Messages were left out because there was no room.
    left_out: bool,
    /// The newest batches on the log.
    digests: VecDeque<(Seq, Digest)>,
    /// Messages in its own id space so far.
    own_count: u64,
}

impl Lane {
    /// An empty log.
    pub fn new(replica: Replica, engine: EngineKind, bridge: Arc<str>) -> Lane {
        Lane {
            replica,
            engine,
            bridge,
            log: None,
            doubted: false,
            missing: BTreeSet::new(),
            left_out: false,
            digests: VecDeque::new(),
            own_count: 0,
        }
    }

    /// The log is somebody's already: goes on where it ends. What this bridge handed over itself is
    /// on its way there, whether it was seen or not. What lies beyond was compared with what the
    /// view applied since, so it lifts a doubt.
    pub fn go_on(&mut self, log: Cursor, missing: impl IntoIterator<Item = Seq>) {
        if self.log.is_some_and(|own| own.epoch == log.epoch && own.next_seq >= log.next_seq) {
            return;
        }
        self.begin(log.epoch);
        self.log = Some(log);
        self.missing.extend(missing);
    }

    /// What the log expects next.
    pub fn log(&self) -> Option<Cursor> {
        self.log
    }

    /// The first seq below the log's end that is not on it.
    pub fn first_missing(&self) -> Option<Seq> {
        self.missing.first().copied()
    }

    /// What is missing below the end of the log will not be had any more: that is said of exactly
    /// these seqs, so that whoever is past them loses nothing.
    pub fn missing_is_lost(&mut self, out: &mut Vec<Outgoing>) {
        let (Some(log), false) = (self.log, self.left_out) else { return };
        while let Some(seq) = self.missing.pop_first() {
            let mut span = 1;
            while self.missing.remove(&seq.plus(u64::from(span))) {
                span += 1;
            }
            let covered = Covered { epoch: log.epoch, seq, span };
            let (cause, trust) = (ResetCause::PermanentHole, Trust::LowerBound);
            let lost = reset_envelope(&self.replica, &self.engine, covered, cause, trust);
            let id = self.own_id(covered);
            out.push(Outgoing { envelope: Arc::new(lost), id });
        }
    }

    /// What this bridge believes from here on.
    pub fn says(&mut self, change: TrustChange, out: &mut Vec<Outgoing>) {
        let (Some(log), false) = (self.log, self.left_out) else { return };
        let covered = Covered { epoch: log.epoch, seq: log.next_seq, span: 0 };
        let trust = change.trust;
        let said = Event::Trust(change);
        let envelope = own_envelope(&self.replica, &self.engine, covered, trust, said);
        let id = self.own_id(covered);
        out.push(Outgoing { envelope: Arc::new(envelope), id });
    }

    /// Goes on with a log that an earlier process of this bridge wrote. What it holds of this life
    /// was applied by that process; a view that is restored under the same epoch is behind it or
    /// ahead of it, and never of another life.
    pub fn resume(&mut self, tail: LogTail) {
        self.log = Some(tail.cursor);
        self.digests = tail.digests.into();
    }

    /// The view was dropped; its life goes on.
    pub fn cleared(&mut self) {
        self.doubted = self.log.is_some();
    }

    /// There was no room for these: they are as good as lost, and the log ends before them.
    pub fn left_out(&mut self, messages: impl IntoIterator<Item = Outgoing>) {
        let mut messages = messages.into_iter().peekable();
        let Some(first) = messages.peek() else { return };
        let (epoch, next_seq) = (first.envelope.epoch, first.envelope.seq);
        self.log = Some(Cursor { epoch, next_seq });
        self.digests.retain(|(seq, _)| *seq < next_seq);
        self.left_out = true;
        // Readers were not told to drop what they hold.
        self.doubted |= messages.any(|message| {
            message.envelope.events.iter().any(|event| matches!(event, Event::Reset(_)))
        });
    }

    /// Whether the log is behind by something that was left out.
    pub fn is_behind(&self) -> bool {
        self.left_out
    }

    /// A batch was applied.
    pub fn applied(&mut self, envelope: Arc<Envelope>, out: &mut Vec<Outgoing>) {
        let next = match self.log {
            Some(log) if log.epoch == envelope.epoch => log.next_seq,
            // Ids of a closed life would not be new ones.
            Some(log) if log.epoch > envelope.epoch => return,
            Some(_) | None => self.begin(envelope.epoch),
        };
        let end = envelope.seq.plus(u64::from(envelope.span));
        if self.missing.remove(&envelope.seq) {
            return out.push(self.data(envelope));
        }
        if end <= next {
            return self.seen_again(envelope.seq, envelope.digest);
        }
        if envelope.seq > next {
            let cause = self.cause_of_hole(next);
            self.reset(
                Hole { epoch: envelope.epoch, next, end: envelope.seq },
                cause,
                envelope.trust,
                out,
            );
        } else if self.doubted || envelope.seq < next {
            let hole = Hole { epoch: envelope.epoch, next, end };
            return self.reset(hole, ResetCause::Unproven, envelope.trust, out);
        }
        if self.digests.len() >= DIGESTS_KEPT {
            self.digests.pop_front();
        }
        self.digests.push_back((envelope.seq, envelope.digest));
        self.log = Some(Cursor { epoch: envelope.epoch, next_seq: end });
        out.push(self.data(envelope));
    }

    fn data(&self, envelope: Arc<Envelope>) -> Outgoing {
        let id = subject::message_id(&self.replica.key(), envelope.epoch, envelope.seq);
        Outgoing { envelope, id }
    }

    /// In this bridge's own space, so that no batch of a twin is taken for its duplicate.
    fn own_id(&mut self, covered: Covered) -> String {
        self.own_count += 1;
        let data = subject::message_id(&self.replica.key(), covered.epoch, covered.seq);
        format!("{data}/{}/{}", self.bridge, self.own_count)
    }

    /// The view may be used again and stands here: says now what the next batch would say later.
    pub fn settled(&mut self, cursor: Cursor, trust: Trust, out: &mut Vec<Outgoing>) {
        if trust == Trust::None || !(self.doubted || self.left_out) {
            return;
        }
        let next = match self.log {
            Some(log) if log.epoch == cursor.epoch => log.next_seq,
            Some(log) if log.epoch > cursor.epoch => return self.left_out = false,
            Some(_) | None if self.left_out && cursor.next_seq > Seq(0) => self.begin(cursor.epoch),
            // The first batch of that life says all there is to say.
            Some(_) | None => return self.left_out = false,
        };
        if cursor.next_seq > next {
            let cause = self.cause_of_hole(next);
            self.reset(Hole { epoch: cursor.epoch, next, end: cursor.next_seq }, cause, trust, out);
        } else if self.doubted {
            let hole = Hole { epoch: cursor.epoch, next, end: next.plus(1) };
            self.reset(hole, ResetCause::Unproven, trust, out);
        }
        self.left_out = false;
    }

    fn begin(&mut self, epoch: Epoch) -> Seq {
        self.doubted = false;
        self.missing.clear();
        self.digests.clear();
        self.log = Some(Cursor { epoch, next_seq: Seq(0) });
        Seq(0)
    }

    /// The log has this seq: is it the same batch?
    fn seen_again(&mut self, seq: Seq, digest: Digest) {
        let kept = self.digests.iter().rev().find(|(kept, _)| *kept == seq);
        match kept {
            Some((_, kept)) if *kept == digest => self.doubted = false,
            Some(_) => self.doubted = true,
            None => (),
        }
    }

    fn cause_of_hole(&self, next: Seq) -> ResetCause {
        if self.left_out {
            ResetCause::SpoolOverflow
        } else if next == Seq(0) {
            ResetCause::JoinedLate
        } else {
            ResetCause::PermanentHole
        }
    }

    /// Covers a hole, and from the first seq on that the log lacks below: the view begins anew, so
    /// nobody here will write that one, and who stands there would have to find out for himself. A
    /// span has 32 bits; of a longer hole its last part, which readers meet.
    fn reset(&mut self, hole: Hole, cause: ResetCause, trust: Trust, out: &mut Vec<Outgoing>) {
        let Hole { epoch, next, end } = hole;
        let next = self.missing.pop_first().map_or(next, |missing| missing.min(next));
        self.missing.retain(|missing| *missing >= end);
        let span = u32::try_from(end.0.saturating_sub(next.0)).unwrap_or(u32::MAX);
        let seq = end.minus(u64::from(span));
        let covered = Covered { epoch, seq, span };
        let envelope = reset_envelope(&self.replica, &self.engine, covered, cause, trust);
        let id = self.own_id(covered);
        self.doubted = false;
        self.left_out = false;
        self.log = Some(Cursor { epoch, next_seq: end });
        out.push(Outgoing { envelope: Arc::new(envelope), id });
    }
}

/// Seqs that the log lacks: `next..end`.
#[derive(Clone, Copy, Debug)]
struct Hole {
    epoch: Epoch,
    next: Seq,
    end: Seq,
}

/// The seqs that a reset takes the place of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    pub(crate) span: u32,
}

pub(crate) fn reset_envelope(
    replica: &Replica,
    engine: &EngineKind,
    covered: Covered,
    cause: ResetCause,
    trust: Trust,
) -> Envelope {
    let reset = Event::Reset(Reset {
        cause: cause.as_str().to_owned(),
        // What follows is contiguous with an empty view, whatever stood before.
        trust: Trust::LowerBound,
        snapshot: None,
    });
    own_envelope(replica, engine, covered, trust, reset)
}

/// What a bridge says itself.
fn own_envelope(
    replica: &Replica,
    engine: &EngineKind,
    covered: Covered,
    trust: Trust,
    event: Event,
) -> Envelope {
    Envelope {
        replica: replica.clone(),
        epoch: covered.epoch,
        incarnation: None,
        seq: covered.seq,
        span: covered.span,
        // No bytes of the engine stand behind it.
        digest: Digest([0; 16]),
        trust,
        ts: 0,
        engine: Engine { kind: engine.clone(), format: "kvbridge.said".to_owned() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        events: vec![event],
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
