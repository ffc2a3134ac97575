//! The end of a log, put together from its newest messages.

use std::collections::BTreeMap;

use kvbridge_schemas::{Digest, Envelope, Epoch, Event, Seq};

use super::lives::{Life, Tail};

/// Messages of a subject, oldest first; keeps only what the newest life on them tells.
#[derive(Debug, Default)]
pub struct TailReader {
    epoch: Epoch,
    incarnation: Option<String>,
    batches: BTreeMap<Seq, Digest>,
    /// First seq → the seq behind it, of everything that covers seqs.
    covered: BTreeMap<Seq, Seq>,
}

impl TailReader {
    /// Takes the next message. One of a closed life may come late; it tells nothing.
    pub fn take(&mut self, envelope: &Envelope) {
        if envelope.epoch < self.epoch {
            return;
        }
        if envelope.epoch > self.epoch {
            *self = TailReader { epoch: envelope.epoch, ..TailReader::default() };
        }
        if envelope.span == 0 {
            return;
        }
        let end = envelope.seq.plus(u64::from(envelope.span));
        self.covered.entry(envelope.seq).and_modify(|to| *to = end.max(*to)).or_insert(end);
        if !matches!(envelope.events.first(), Some(Event::Reset(_))) {
            self.batches.insert(envelope.seq, envelope.digest);
            self.incarnation.clone_from(&envelope.incarnation);
        }
    }

    /// What was read, if anything was. Seqs further than `window` below the end are not missed:
    /// they were sent long before the end was.
    pub fn tail(self, window: u64) -> Option<Tail> {
        let mut next = *self.covered.keys().next()?;
        let end = self.covered.values().copied().max()?;
        let mut missing = Vec::new();
        for (seq, to) in self.covered {
            let from = next.max(end.minus(window));
            missing.extend((from.0..seq.0).map(Seq));
            next = next.max(to);
        }
        let life = Life { epoch: self.epoch, anchors: self.batches, incarnation: self.incarnation };
        Some(Tail { life, next_seq: end, missing })
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{
        Engine, EngineKind, HashInfo, HashScheme, Replica, Reset, Trust, TrustChange,
    };

    use super::*;

    fn message(epoch: u64, seq: u64, span: u32) -> Envelope {
        Envelope {
            replica: Replica { model: "m".into(), instance: "h:1".into(), rank: 0 },
            epoch: Epoch(epoch),
            incarnation: None,
            seq: Seq(seq),
            span,
            digest: Digest([7; 16]),
            trust: Trust::Exact,
            ts: 0,
            engine: Engine { kind: EngineKind::Vllm, format: "f".into() },
            hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
            events: Vec::new(),
        }
    }

    fn read(messages: &[Envelope]) -> Option<Tail> {
        let mut reader = TailReader::default();
        messages.iter().for_each(|message| reader.take(message));
        reader.tail(256)
    }

    #[test]
    fn nothing_was_read() {
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn the_newest_life_counts_and_a_straggler_does_not() {
        let tail = read(&[message(1, 8, 1), message(2, 0, 1), message(1, 9, 1), message(2, 1, 1)]);
        let tail = tail.unwrap();
        assert_eq!((tail.life.epoch, tail.next_seq), (Epoch(2), Seq(2)));
        assert_eq!(tail.life.anchors.len(), 2);
        assert!(tail.missing.is_empty());
    }

    #[test]
    fn holes_are_named_whatever_the_order() {
        let order = [3, 4, 8, 6, 9];
        let messages: Vec<_> = order.iter().map(|seq| message(1, *seq, 1)).collect();
        let tail = read(&messages).unwrap();
        assert_eq!((tail.missing, tail.next_seq), (vec![Seq(5), Seq(7)], Seq(10)));
    }

    #[test]
    fn a_reset_covers_and_is_nothing_to_compare_with() {
        let mut reset = message(1, 4, 3);
        let cause = "permanent_hole".to_owned();
        reset.events = vec![Event::Reset(Reset { cause, trust: Trust::None, snapshot: None })];
        let mut said = message(1, 7, 0);
        let (reason, bridge) = ("gap_open".to_owned(), "b".to_owned());
        said.events = vec![Event::Trust(TrustChange { trust: Trust::None, reason, bridge })];
        let tail = read(&[message(1, 3, 1), reset, said, message(1, 7, 1)]).unwrap();
        assert!(tail.missing.is_empty());
        let seqs: Vec<u64> = tail.life.anchors.keys().map(|seq| seq.0).collect();
        assert_eq!((seqs, tail.next_seq), (vec![3, 7], Seq(8)));
    }

    #[test]
    fn only_a_window_behind_the_end_can_be_missing() {
        let tail = read(&[message(1, 0, 1), message(1, 1_000, 1)]).unwrap();
        assert_eq!((tail.missing.len(), tail.missing[0]), (255, Seq(745)));
    }
}
