//! Which of several stored snapshots of a replica readers are sent to.
//!
//! Bridges side by side store snapshots at their own pace: one of them may have come late, be
//! slower, or still be in a life that is over. So a pointer only ever moves to a greater one; the
//! store compares and sets, this decides.

use std::fmt;

use kvbridge_schemas::{BusSeq, Cursor, EngineKind, Epoch, Replica, ReplicaKey, Seq, Trust};

use super::{LogEnds, Start};

/// Version of the text.
const VERSION: &str = "1";

/// Longest name of an object: four parts, of which the key is the longest.
const OBJECT_BYTES_MAX: usize = 1024;

/// What is said of one stored snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The life it is of.
    pub epoch: Epoch,
    /// What its view may be believed.
    pub trust: Trust,
    /// It reflects all batches below.
    pub resume_seq: Seq,
    /// Whatever follows `resume_seq` lies behind this place on the bus.
    pub bus_seq: BusSeq,
    /// When the stream of that place was made, unix ns: in another stream the place means nothing.
    pub created: u64,
    /// Whose events were folded: what a removal takes away depends on it.
    pub engine: EngineKind,
    /// Name of the object.
    pub object: String,
}

/// Why a text is not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerFault {
    /// Of another version.
    #[error("pointer of another version, expected {VERSION}")]
    Version,
    /// Not made of these parts.
    #[error("not a pointer to a snapshot")]
    Malformed,
}

impl Pointer {
    /// The name of an object: immutable, and no two bridges or cuts share one.
    pub fn object_name(key: &ReplicaKey, epoch: Epoch, resume_seq: Seq, bridge: &str) -> String {
        format!("{key}/{epoch}/{resume_seq}/{bridge}")
    }

    /// Whose snapshot an object is of, by its name.
    pub fn replica_of(object: &str) -> Option<Replica> {
        if object.len() > OBJECT_BYTES_MAX || object.split('/').count() != 4 {
            return None;
        }
        ReplicaKey::parse(object.split('/').next()?).ok()
    }

    /// Whether readers are better sent here than to `other`. Of the same cut, the one whose place
    /// on the bus is further: it stays usable longer. `reset` is where the log's newest reset ends:
    /// whoever goes on from a view before it meets the reset, whatever that view was believed.
    pub fn supersedes(&self, other: &Pointer, reset: Option<Cursor>) -> bool {
        let worth = |pointer: &Pointer| {
            let behind = pointer.is_behind(reset);
            (pointer.epoch, behind, pointer.trust, pointer.resume_seq)
        };
        if worth(self) != worth(other) {
            // A stream that was made anew leaves no place to the older pointer at all; its cut may
            // still be the better one, and then nothing on the new stream leads away from it.
            return worth(self) > worth(other);
        }
        (self.created, self.bus_seq) > (other.created, other.bus_seq)
    }

    /// Whether everything that came behind it is still on the log, of whose newest life it is.
    pub fn leads_on(&self, ends: LogEnds, life: Option<Epoch>) -> bool {
        self.created == ends.created
            && self.bus_seq.0.saturating_add(1) >= ends.first.0
            && life.is_none_or(|life| self.epoch >= life)
    }

    /// Whether it is the cut that a reader took last. To take it again leads to the same view: the
    /// most trusted cut may lie before a batch that nobody could read, and then every reader that
    /// is sent there believes nothing, while a bridge that came later has a lower bound to give.
    pub fn is_cut(&self, taken: Option<Cursor>) -> bool {
        taken == Some(self.cut())
    }

    /// Whether it is of a cut behind that reset.
    pub fn is_behind(&self, reset: Option<Cursor>) -> bool {
        reset.is_none_or(|reset| self.cut() >= reset)
    }

    fn cut(&self) -> Cursor {
        Cursor { epoch: self.epoch, next_seq: self.resume_seq }
    }

    /// Where the log goes on behind it. A log may be out of order by `slack` messages.
    pub fn start(&self, slack: u64) -> Start {
        let at = self.bus_seq.0.saturating_add(1);
        let from = BusSeq(at.saturating_sub(slack));
        Start { from, proven_from: BusSeq(at), cursor: self.cut() }
    }

    /// Reads the text of [`Pointer`]'s `Display` back.
    pub fn parse(text: &str) -> Result<Pointer, PointerFault> {
        let mut parts = text.split(' ');
        if parts.next() != Some(VERSION) {
            return Err(PointerFault::Version);
        }
        let mut read = || -> Option<Pointer> {
            let epoch = Epoch(parts.next()?.parse().ok()?);
            let trust = Trust::from_name(parts.next()?);
            let resume_seq = Seq(parts.next()?.parse().ok()?);
            let bus_seq = BusSeq(parts.next()?.parse().ok()?);
            let created = parts.next()?.parse().ok()?;
            let engine = EngineKind::from_name(parts.next()?);
            let object = parts.next()?.to_owned();
            let whole = parts.next().is_none() && Pointer::replica_of(&object).is_some();
            let pointer = Pointer { epoch, trust, resume_seq, bus_seq, created, engine, object };
            whole.then_some(pointer)
        };
        read().ok_or(PointerFault::Malformed)
    }
}

/// What a reader says when it asks for a fresh view: where the newest reset that it met ends.
pub fn wish_of(reset: Option<Cursor>) -> String {
    reset
        .map_or_else(String::new, |Cursor { epoch, next_seq }| format!("behind {epoch} {next_seq}"))
}

/// Reads [`wish_of`] back. Whoever says nothing that can be read wishes for nothing special.
pub fn parse_wish(text: &[u8]) -> Option<Cursor> {
    let mut parts = std::str::from_utf8(text).ok()?.split(' ');
    let named = parts.next() == Some("behind");
    let epoch = Epoch(parts.next()?.parse().ok()?);
    let next_seq = Seq(parts.next()?.parse().ok()?);
    (named && parts.next().is_none()).then_some(Cursor { epoch, next_seq })
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pointer { epoch, trust, resume_seq, bus_seq: BusSeq(at), created, .. } = self;
        let (engine, object) = (self.engine.as_str(), &self.object);
        write!(f, "{VERSION} {epoch} {trust} {resume_seq} {at} {created} {engine} {object}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(epoch: u64, trust: Trust, resume_seq: u64, bus_seq: u64) -> Pointer {
        let key = Replica { model: "m".into(), instance: "h:1".into(), rank: 0 }.key();
        Pointer {
            epoch: Epoch(epoch),
            trust,
            resume_seq: Seq(resume_seq),
            bus_seq: BusSeq(bus_seq),
            created: 9,
            engine: EngineKind::Other("e".to_owned()),
            object: Pointer::object_name(&key, Epoch(epoch), Seq(resume_seq), "b"),
        }
    }

    /// Each one leads readers further than all before it, and none the other way.
    #[test]
    fn only_a_greater_one_supersedes() {
        let order = [
            pointer(1, Trust::LowerBound, 900, 90),
            pointer(1, Trust::Exact, 400, 50),
            pointer(1, Trust::Exact, 500, 40),
            pointer(1, Trust::Exact, 500, 60),
            Pointer { created: 10, ..pointer(1, Trust::Exact, 500, 1) },
            pointer(2, Trust::LowerBound, 3, 70),
        ];
        for (at, greater) in order.iter().enumerate() {
            for (other_at, other) in order.iter().enumerate() {
                let supersedes = greater.supersedes(other, None);
                assert_eq!(supersedes, at > other_at, "{greater} over {other}");
            }
        }
    }

    /// From the exact one readers would come to the reset and know less than the other tells.
    #[test]
    fn a_view_from_before_a_reset_is_the_worse_one() {
        let before = pointer(1, Trust::Exact, 500, 50);
        let behind = pointer(1, Trust::LowerBound, 900, 90);
        let exact_again = pointer(1, Trust::Exact, 950, 95);
        let reset = |epoch, seq| Some(Cursor { epoch: Epoch(epoch), next_seq: Seq(seq) });
        assert!(behind.supersedes(&before, reset(1, 900)));
        assert!(!before.supersedes(&behind, reset(1, 900)));
        assert!(exact_again.supersedes(&behind, reset(1, 900)));
        assert!(!behind.supersedes(&before, reset(1, 901)), "neither is behind this one");
        assert!(!behind.supersedes(&pointer(2, Trust::Exact, 1, 1), reset(1, 900)));
        assert!(behind.is_behind(reset(1, 900)) && !behind.is_behind(reset(2, 0)));
    }

    #[test]
    fn what_a_reader_wishes_for_comes_back() {
        let reset = Some(Cursor { epoch: Epoch(7), next_seq: Seq(9) });
        assert_eq!(parse_wish(wish_of(reset).as_bytes()), reset);
        for none in ["", "behind", "behind 7", "behind 7 x", "behind 7 9 1", "7 9"] {
            assert_eq!(parse_wish(none.as_bytes()), None, "{none}");
        }
        assert_eq!(wish_of(None), "");
        assert_eq!(parse_wish(b"\xff"), None);
    }

    #[test]
    fn what_was_taken_last_is_known_again() {
        let stored = pointer(2, Trust::Exact, 500, 40);
        let further = pointer(2, Trust::Exact, 500, 60);
        let taken = Some(stored.start(0).cursor);
        assert!(stored.is_cut(taken) && further.is_cut(taken), "the same view, stored again");
        assert!(!pointer(2, Trust::LowerBound, 501, 60).is_cut(taken));
        assert!(!stored.is_cut(None));
    }

    #[test]
    fn the_text_comes_back() {
        let pointer = pointer(7, Trust::Exact, 5, 6);
        assert_eq!(pointer.to_string(), "1 7 exact 5 6 9 e m.h=3A1.0/7/5/b");
        assert_eq!(Pointer::parse(&pointer.to_string()), Ok(pointer));
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for (text, fault) in [
            ("2 7 exact 5 6 9 e m.h.0/7/5/b", PointerFault::Version),
            ("", PointerFault::Version),
            ("1 7 exact 5 6 9 e", PointerFault::Malformed),
            ("1 7 exact 5 6 9 e m.h.0/7/5/b more", PointerFault::Malformed),
            ("1 7 exact 5 -6 9 e m.h.0/7/5/b", PointerFault::Malformed),
            ("1 7 exact 5 6 9 e m.h/7/5/b", PointerFault::Malformed),
            ("1 7 exact 5 6 9 e m.h.0/7/5", PointerFault::Malformed),
        ] {
            assert_eq!(Pointer::parse(text), Err(fault), "{text}");
        }
        assert_eq!(Pointer::replica_of(&format!("m.h.0/7/5/{}", "b".repeat(2_000))), None);
    }
}
