//! Where on the bus a replica's newest batches lie, so that a replay begins close to its gap.
//!
//! Reading one replica out of a stream costs what lies between start and end, whoever it belongs
//! to. A message carries both numbers; the newest are remembered.

use std::collections::BTreeMap;

use kvbridge_schemas::{BusSeq, Cursor, Epoch, Seq};

/// Places of one life's newest messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    epoch: Epoch,
    places: BTreeMap<Seq, BusSeq>,
    limit: usize,
}

/// Where to read from, and what may be said of whoever reads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first bus seq to read.
    pub from: BusSeq,
    /// While the log still holds everything from here on, nothing is missing.
    pub proven_from: BusSeq,
    /// Whoever stands here misses nothing that lies before `from`.
    pub cursor: Cursor,
}

impl Positions {
    /// Remembers nothing yet, and at most so many.
    pub fn new(limit: usize) -> Positions {
        Positions { epoch: Epoch(0), places: BTreeMap::new(), limit: limit.max(1) }
    }

    /// A message of that epoch and seq lies there.
    pub fn note(&mut self, epoch: Epoch, seq: Seq, at: BusSeq) {
        if epoch < self.epoch {
            return;
        }
        if epoch > self.epoch {
            self.epoch = epoch;
            self.places.clear();
        }
        let place = self.places.entry(seq).or_insert(at);
        // A reset may share its seq with the batch it covers: both are read.
        *place = (*place).min(at);
        if self.places.len() > self.limit {
            self.places.pop_first();
        }
    }

    /// Nothing is known any more: the log was left, or is another one.
    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// The life of what is remembered.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where reading must begin so that nothing from `seq` on is missed, of what the log still
    /// holds (`first` on). A log may be out of order, so it is the least of all places from there
    /// on. If the place of `seq` itself is gone, it is that of the oldest one which is not.
    pub fn start(&self, seq: Seq, first: BusSeq) -> Option<Start> {
        // The one before may cover the seq: a reset has a span.
        let covering = self.places.range(..=seq).next_back().map(|(at, _)| *at).unwrap_or(seq);
        let mut from: Option<Start> = None;
        for (seq, at) in self.places.range(covering..).rev() {
            if *at < first {
                break;
            }
            let least = from.map_or(*at, |start| start.from.min(*at));
            let cursor = Cursor { epoch: self.epoch, next_seq: *seq };
            from = Some(Start { from: least, proven_from: least, cursor });
        }
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(places: &[(u64, u64)]) -> Positions {
        let mut positions = Positions::new(8);
        for (seq, at) in places {
            positions.note(Epoch(1), Seq(*seq), BusSeq(*at));
        }
        positions
    }

    fn start(positions: &Positions, seq: u64, first: u64) -> Option<(u64, u64)> {
        let start = positions.start(Seq(seq), BusSeq(first))?;
        Some((start.from.0, start.cursor.next_seq.0))
    }

    #[test]
    fn begins_with_the_least_place_of_all_that_is_wanted() {
        let positions = noted(&[(4, 100), (5, 130), (6, 110), (7, 120)]);
        assert_eq!(start(&positions, 4, 1), Some((100, 4)));
        assert_eq!(start(&positions, 5, 1), Some((110, 5)));
        assert_eq!(start(&positions, 7, 1), Some((120, 7)));
        assert_eq!(start(&positions, 9, 1), Some((120, 7)), "a reset may cover it");
    }

    #[test]
    fn what_is_gone_moves_the_start_to_the_oldest_that_is_not() {
        let positions = noted(&[(4, 100), (5, 110), (6, 120)]);
        assert_eq!(start(&positions, 2, 1), Some((100, 4)));
        assert_eq!(start(&positions, 4, 101), Some((110, 5)));
        assert_eq!(start(&positions, 4, 121), None);
        assert_eq!(start(&Positions::new(8), 4, 1), None);
    }

    #[test]
    fn keeps_the_newest_of_the_newest_life() {
        let mut positions = noted(&[(0, 10), (1, 20)]);
        for seq in 2..12 {
            positions.note(Epoch(1), Seq(seq), BusSeq(seq * 10));
        }
        assert_eq!(start(&positions, 0, 1), Some((40, 4)));
        positions.note(Epoch(0), Seq(11), BusSeq(1));
        assert_eq!(start(&positions, 11, 1), Some((110, 11)));
        positions.note(Epoch(2), Seq(0), BusSeq(200));
        assert_eq!(start(&positions, 0, 1), Some((200, 0)));
    }
}
