//! What a reader asks a bridge and how it reads the answers: exchanges of
//! [`ExchangeClient`](kvbridge_adapters_zmq::ExchangeClient). No socket.

use bytes::Bytes;
use kvbridge_adapters_api::AnswerPart;
use kvbridge_adapters_zmq::{Exchange, FrameError, Multipart, Next, Turn};
use kvbridge_schemas::{Cursor, Epoch, ReplicaKey, Seq, SnapshotHeader, SnapshotRecord, codec};

use super::{
    breaks::Ends,
    wire::{Answer, Query, Refusal, ReplayAnswer, read_answer, write_query},
};

/// Part of the answer to a reader of one replica's log.
#[derive(Debug)]
pub(super) enum Part {
    /// What the journal has, ahead of each part of a replay.
    Ends(Ends),
    /// One message of the journal, as it was published.
    Message { epoch: Epoch, seq: Seq, payload: Bytes },
    /// The journal no longer holds the start, by its own first seq.
    Truncated,
    /// Whoever stands here misses nothing: the log ends here.
    Continues(Cursor),
    /// What the snapshot is of.
    Intro(Box<SnapshotHeader>),
    /// Some of its records.
    Records(Vec<SnapshotRecord>),
    /// No more records follow.
    SnapshotEnd,
    /// The bridge says no to a replay. Nothing was said of the log: the answer has no end.
    NoReplay(Refusal),
    /// The bridge gives no snapshot.
    Refused(Refusal),
}

/// What a replay is that a bridge refuses. A word of the journal's trouble brings us no nearer; one
/// of other readers says nothing.
pub(super) fn no_replay(refusal: Refusal) -> AnswerPart {
    match refusal {
        Refusal::Busy => AnswerPart::Busy,
        Refusal::Untrusted
        | Refusal::UnknownReplica
        | Refusal::UnknownSnapshot
        | Refusal::Unreadable => AnswerPart::Failed,
    }
}

fn done(part: Part) -> Turn<Part> {
    Turn { parts: vec![(part, 0)], next: Next::Done }
}

const OTHER: FrameError = FrameError::Unlike { expected: "the answer to what was asked" };

/// Everything from a seq on.
pub(super) struct ReplayOf {
    pub(super) key: ReplicaKey,
    /// The life that the seq is of; 0 = not known.
    pub(super) epoch: Epoch,
    pub(super) first: Seq,
    /// The place behind which the answer goes on.
    pub(super) after: u64,
}

impl ReplayOf {
    fn query(&self) -> Query {
        let (key, epoch, first) = (self.key.clone(), self.epoch, self.first);
        Query::Replay { key, epoch, first, after: self.after }
    }
}

impl Exchange for ReplayOf {
    type Part = Part;

    fn ask(&mut self) -> Multipart {
        write_query(0, &self.query())
    }

    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Part>, FrameError> {
        let (ticket, answer) = read_answer(frames, frame_bytes_max)?;
        let answer = match answer {
            Answer::Replay(answer) => answer,
            Answer::Refused(refusal) => return Ok(done(Part::NoReplay(refusal))),
            _ => return Err(OTHER),
        };
        let ReplayAnswer { epoch, first, next: next_seq, after, messages } = answer;
        let asked_of_it = self.epoch == epoch || self.epoch == Epoch(0);
        let end = Cursor { epoch, next_seq };
        let ends = Part::Ends(Ends { epoch, first, next: next_seq });
        if messages.is_empty() && asked_of_it && self.first < first {
            // A reader asks from some batches below where it stands: one that stands at the end
            // misses nothing, although those are kept no longer.
            let parts = vec![(ends, 0), (Part::Continues(end), 0), (Part::Truncated, 0)];
            return Ok(Turn { parts, next: Next::Done });
        }
        let last = messages.last().map(|(seq, _)| *seq);
        let next = match (after, last) {
            (0, _) => Next::Done,
            // The place moves on, so the exchange ends.
            (after, Some(last)) if after > self.after => {
                (self.epoch, self.first, self.after) = (epoch, last, after);
                Next::Ask(write_query(ticket, &self.query()))
            }
            _ => return Err(FrameError::Unlike { expected: "an answer that goes on" }),
        };
        let parts = messages.into_iter().map(|(seq, payload)| {
            let bytes = payload.len();
            (Part::Message { epoch, seq, payload }, bytes)
        });
        let mut parts: Vec<_> = std::iter::once((ends, 0)).chain(parts).collect();
        if after == 0 && epoch > Epoch(0) {
            parts.push((Part::Continues(end), 0));
        }
        Ok(Turn { parts, next })
    }
}

/// A fresh snapshot.
pub(super) struct SnapshotOf {
    pub(super) key: ReplicaKey,
    /// Its number, once it was taken.
    pub(super) id: Option<u64>,
}

impl Exchange for SnapshotOf {
    type Part = Part;

    fn ask(&mut self) -> Multipart {
        write_query(0, &Query::Snapshot { key: self.key.clone() })
    }

    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Part>, FrameError> {
        let (ticket, answer) = read_answer(frames, frame_bytes_max)?;
        match (answer, self.id) {
            (Answer::Snapshot { id, header }, None) => {
                let header: SnapshotHeader = codec::decode_msgpack(&header)
                    .map_err(|_| FrameError::Unlike { expected: "a snapshot header" })?;
                if header.replica.key() != self.key {
                    return Err(FrameError::Unlike { expected: "a snapshot of this replica" });
                }
                self.id = Some(id);
                let next = Next::Ask(write_query(ticket, &Query::Records { id }));
                Ok(Turn { parts: vec![(Part::Intro(Box::new(header)), 0)], next })
            }
            (Answer::Records { last: true, .. }, Some(_)) => Ok(done(Part::SnapshotEnd)),
            (Answer::Records { last: false, records }, Some(id)) => {
                let bytes = records.len();
                let records: Vec<SnapshotRecord> = codec::decode_msgpack(&records)
                    .map_err(|_| FrameError::Unlike { expected: "snapshot records" })?;
                if records.is_empty() {
                    return Err(FrameError::Unlike { expected: "an answer that goes on" });
                }
                let next = Next::Ask(write_query(ticket, &Query::Records { id }));
                Ok(Turn { parts: vec![(Part::Records(records), bytes)], next })
            }
            (Answer::Refused(refusal), _) => Ok(done(Part::Refused(refusal))),
            _ => Err(OTHER),
        }
    }
}

/// Which replicas a bridge has.
pub(super) struct ListOf;

/// What a bridge has.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) live_port: u16,
    pub(super) replicas: Vec<(ReplicaKey, String)>,
}

impl Exchange for ListOf {
    type Part = Listed;

    fn ask(&mut self) -> Multipart {
        write_query(0, &Query::List)
    }

    fn hear(
        &mut self,
        frames: Multipart,
        frame_bytes_max: usize,
    ) -> Result<Turn<Listed>, FrameError> {
        match read_answer(frames, frame_bytes_max)?.1 {
            Answer::List { live_port, replicas } => {
                let listed = Listed { live_port, replicas };
                Ok(Turn { parts: vec![(listed, 0)], next: Next::Done })
            }
            Answer::Refused(_) => Ok(Turn { parts: Vec::new(), next: Next::Done }),
            _ => Err(OTHER),
        }
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::Replica;

    use super::{super::wire::write_answer, *};

    fn key() -> ReplicaKey {
        Replica { model: "m".into(), instance: "i".into(), rank: 0 }.key()
    }

    fn replay(epoch: u64, first: u64) -> ReplayOf {
        ReplayOf { key: key(), epoch: Epoch(epoch), first: Seq(first), after: 0 }
    }

    fn hear(of: &mut ReplayOf, answer: ReplayAnswer) -> Result<(usize, String), FrameError> {
        let turn = of.hear(write_answer(9, &Answer::Replay(answer)), 1024)?;
        let next = match turn.next {
            Next::Done => "done".to_owned(),
            Next::Read => "read".to_owned(),
            Next::Ask(frames) => format!("{:?}", super::super::wire::read_query(frames)?.1),
        };
        let truncated = turn.parts.iter().any(|(part, _)| matches!(part, Part::Truncated));
        Ok((turn.parts.len(), if truncated { "truncated".to_owned() } else { next }))
    }

    fn answer(epoch: u64, first: u64, after: u64, seqs: &[u64]) -> ReplayAnswer {
        let messages = seqs.iter().map(|seq| (Seq(*seq), Bytes::from_static(b"m"))).collect();
        ReplayAnswer { epoch: Epoch(epoch), first: Seq(first), next: Seq(99), after, messages }
    }

    #[test]
    fn a_lost_start_is_told_by_the_journals_first_seq_alone() {
        assert_eq!(hear(&mut replay(7, 3), answer(7, 5, 0, &[])).unwrap().1, "truncated");
        // The life is another one: its messages say so.
        assert_eq!(hear(&mut replay(7, 3), answer(8, 5, 0, &[5])).unwrap(), (3, "done".into()));
        // A reset that covers the seq begins below it, and is in the answer.
        assert_eq!(hear(&mut replay(7, 3), answer(7, 0, 0, &[0])).unwrap(), (3, "done".into()));
        assert_eq!(hear(&mut replay(7, 3), answer(0, 0, 0, &[])).unwrap(), (1, "done".into()));
    }

    #[test]
    fn a_lost_start_is_told_with_the_end_of_the_log() {
        for first in [96, 97, 98] {
            let lost = Answer::Replay(answer(7, 99, 0, &[]));
            let turn = replay(7, first).hear(write_answer(9, &lost), 1024).unwrap();
            let end = Cursor { epoch: Epoch(7), next_seq: Seq(99) };
            let said = matches!(&turn.parts[..],
                [(Part::Ends(_), _), (Part::Continues(at), _), (Part::Truncated, _)] if *at == end);
            assert!(said, "{turn:?}");
        }
    }

    #[test]
    fn a_refused_replay_is_no_empty_journal() {
        for (refusal, part) in
            [(Refusal::Busy, AnswerPart::Busy), (Refusal::Unreadable, AnswerPart::Failed)]
        {
            let refused = write_answer(9, &Answer::Refused(refusal));
            let turn = replay(7, 3).hear(refused, 1024).unwrap();
            assert!(matches!(turn.parts[..], [(Part::NoReplay(came), _)] if came == refusal));
            assert_eq!(no_replay(refusal), part);
        }
    }

    #[test]
    fn a_long_answer_is_asked_for_part_by_part_and_moves_on() {
        let mut of = replay(7, 3);
        let (count, next) = hear(&mut of, answer(7, 0, 12, &[3, 4])).unwrap();
        assert_eq!(count, 3);
        assert!(next.contains("first: Seq(4), after: 12"), "{next}");
        assert!(hear(&mut of, answer(7, 0, 12, &[5])).is_err());
        assert!(hear(&mut of, answer(7, 0, 13, &[])).is_err());
    }

    #[test]
    fn records_need_a_snapshot_first() {
        let mut of = SnapshotOf { key: key(), id: None };
        let records = Answer::Records { last: true, records: Bytes::new() };
        assert!(of.hear(write_answer(1, &records), 1024).is_err());
        let refused = of.hear(write_answer(1, &Answer::Refused(Refusal::Untrusted)), 1024).unwrap();
        assert!(matches!(refused.parts[..], [(Part::Refused(Refusal::Untrusted), _)]));
    }
}
