//! PURE. What a bridge's journal has no more although its reader had read it or waited for it, by
//! the numbers of an answer. A journal has no name: one that was begun anew under a new life looks
//! like that life, and nothing else.

use kvbridge_schemas::{Cursor, Epoch, Seq};

/// What an answer to a replay says of the newest life in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    /// The life; 0 = the journal has nothing of this replica.
    pub(super) epoch: Epoch,
    /// The journal's own first seq of it.
    pub(super) first: Seq,
    /// The seq behind its last message.
    pub(super) next: Seq,
}

/// What happened to a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broke {
    /// It is an earlier state of itself, or has lost what it had.
    Reset,
    /// Messages went before they were read.
    RetentionPassed,
}

/// How far a log was read without a hole.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    read: Cursor,
    /// The same when the journal was last asked: its answer may be older than what came live since.
    asked: Cursor,
}

impl Breaks {
    /// A message that covers these seqs was handed over, or a view up to `next`, of all below.
    pub(super) fn delivered(&mut self, epoch: Epoch, seq: Seq, next: Seq) {
        let follows = epoch == self.read.epoch && seq <= self.read.next_seq;
        if epoch > self.read.epoch || follows {
            self.read = self.read.max(Cursor { epoch, next_seq: next });
        }
    }

    /// The journal is asked now.
    pub(super) fn asks(&mut self) {
        self.asked = self.read;
    }

    /// What its answer shows, told once.
    pub(super) fn told(&mut self, ends: Ends) -> Option<Broke> {
        let end = Cursor { epoch: ends.epoch, next_seq: ends.next };
        if end < self.asked {
            (self.read, self.asked) = (end, end);
            return Some(Broke::Reset);
        }
        let read_of_it = self.read.epoch == ends.epoch && ends.epoch > Epoch(0);
        if read_of_it && ends.first > self.read.next_seq {
            self.read.next_seq = ends.first;
            return Some(Broke::RetentionPassed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(epoch: u64, first: u64, next: u64) -> Ends {
        Ends { epoch: Epoch(epoch), first: Seq(first), next: Seq(next) }
    }

    /// One that has read life 5 up to 10, and asks.
    fn read_to_10() -> Breaks {
        let mut breaks = Breaks::default();
        for seq in 0..10 {
            breaks.delivered(Epoch(5), Seq(seq), Seq(seq + 1));
        }
        breaks.asks();
        breaks
    }

    #[test]
    fn what_went_before_it_was_read_is_told_once() {
        let mut breaks = read_to_10();
        assert_eq!(breaks.told(ends(5, 3, 12)), None);
        assert_eq!(breaks.told(ends(5, 10, 12)), None, "nothing between is missing");
        assert_eq!(breaks.told(ends(5, 11, 12)), Some(Broke::RetentionPassed));
        assert_eq!(breaks.told(ends(5, 11, 12)), None);
        // What runs ahead of a hole was read, and the hole was not.
        let mut breaks = read_to_10();
        breaks.delivered(Epoch(5), Seq(20), Seq(21));
        assert_eq!(breaks.told(ends(5, 15, 21)), Some(Broke::RetentionPassed));
        // A reset in the place of what is lost is a message like any.
        let mut breaks = read_to_10();
        breaks.delivered(Epoch(5), Seq(10), Seq(15));
        assert_eq!(breaks.told(ends(5, 15, 21)), None);
    }

    #[test]
    fn a_journal_behind_its_reader_was_reset() {
        for there in [ends(0, 0, 0), ends(4, 0, 99), ends(5, 0, 9)] {
            let mut breaks = read_to_10();
            assert_eq!(breaks.told(there), Some(Broke::Reset), "{there:?}");
            assert_eq!(breaks.told(there), None, "{there:?}");
        }
        // Another life is no loss of this one's log.
        assert_eq!(read_to_10().told(ends(6, 40, 41)), None);
        // The answer was made before what came live meanwhile.
        let mut breaks = read_to_10();
        breaks.delivered(Epoch(5), Seq(10), Seq(11));
        assert_eq!(breaks.told(ends(5, 0, 10)), None);
    }

    #[test]
    fn who_has_read_nothing_misses_nothing() {
        for there in [ends(0, 0, 0), ends(7, 90, 99)] {
            let mut breaks = Breaks::default();
            breaks.asks();
            assert_eq!(breaks.told(there), None);
        }
        // A view stands for what came before it.
        let mut breaks = Breaks::default();
        breaks.delivered(Epoch(7), Seq(0), Seq(50));
        breaks.asks();
        assert_eq!(breaks.told(ends(7, 50, 60)), None);
        assert_eq!(breaks.told(ends(7, 51, 60)), Some(Broke::RetentionPassed));
    }
}
