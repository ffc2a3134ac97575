//! A stretch of one life, read back: which of its seqs came, which did not, and why not.
//!
//! The log is put in order before it comes here ([`Reorder`](super::Reorder)).

use kvbridge_schemas::{Envelope, Event, Seq, Trust};

/// Why seqs of a stretch are not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// They were stored, and are kept no more.
    NotKept,
    /// A bridge said that they will never come.
    Reset {
        /// Its word for why.
        cause: String,
        /// What it believed after it.
        trust: Trust,
    },
    /// A message is there and cannot be read.
    Unreadable(&'static str),
    /// Neither they nor a reset over them is there, between others that are.
    Hole,
    /// The log of this life ends before them: they are not published yet, or never will be.
    End,
}

impl Why {
    /// Why an envelope's own seqs are missing, if they are.
    pub fn of(envelope: &Envelope) -> Option<Why> {
        match envelope.events.first() {
            Some(Event::Reset(reset)) => {
                Some(Why::Reset { cause: reset.cause.clone(), trust: reset.trust })
            }
            _ => None,
        }
    }
}

/// Seqs that are not there, both inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first.
    pub from: Seq,
    /// The last.
    pub to: Seq,
    /// Why.
    pub why: Why,
}

/// What an envelope is to the stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// In it.
    Inside,
    /// Of seqs that came already or were not asked for.
    Outside,
    /// Behind its end: nothing more can come.
    Behind,
}

/// Seqs that are asked for, as far as they came.
#[derive(Debug)]
pub struct Stretch {
    next: Seq,
    to: Seq,
    begun: bool,
}

impl Stretch {
    /// From `from` to `to`, both inclusive.
    pub fn new(from: Seq, to: Seq) -> Stretch {
        Stretch { next: from, to, begun: false }
    }

    /// Whether all of it was told of.
    pub fn is_over(&self) -> bool {
        self.next > self.to
    }

    /// What comes next of this life; `lost` says why its seqs are missing although it came. What is
    /// missing before it or by it is added to `missing`.
    pub fn take(
        &mut self,
        (seq, span): (Seq, u32),
        lost: Option<Why>,
        missing: &mut Vec<Missing>,
    ) -> Part {
        let end = seq.plus(u64::from(span));
        if end < self.next || (end == self.next && span > 0) {
            return Part::Outside;
        }
        let before = if self.begun { Why::Hole } else { Why::NotKept };
        self.miss(seq, before, missing);
        if seq > self.to {
            return Part::Behind;
        }
        self.begun = true;
        if let Some(why) = lost {
            self.miss(end, why, missing);
        }
        self.next = self.next.max(end);
        Part::Inside
    }

    /// Nothing more is on the log.
    pub fn end(&mut self, missing: &mut Vec<Missing>) {
        self.miss(Seq(u64::MAX), Why::End, missing);
    }

    fn miss(&mut self, end: Seq, why: Why, missing: &mut Vec<Missing>) {
        let to = Seq(end.0.saturating_sub(1)).min(self.to);
        if self.next < end && self.next <= to {
            missing.push(Missing { from: self.next, to, why });
            self.next = to.plus(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which seqs came, and what was missing, as a line.
    fn told(from: u64, to: u64, log: &[(u64, u32, Option<&str>)]) -> String {
        let mut stretch = Stretch::new(Seq(from), Seq(to));
        let (mut missing, mut came) = (Vec::new(), Vec::new());
        for (seq, span, reset) in log {
            let lost = reset.map(|cause| {
                let cause = cause.to_owned();
                Why::Reset { cause, trust: Trust::LowerBound }
            });
            if stretch.take((Seq(*seq), *span), lost, &mut missing) == Part::Inside {
                came.push(seq.to_string());
            }
        }
        stretch.end(&mut missing);
        assert!(stretch.is_over());
        let missing = missing.iter().map(|missing| {
            let why = match &missing.why {
                Why::NotKept => "not kept",
                Why::Reset { cause, .. } => cause,
                Why::Unreadable(word) => word,
                Why::Hole => "hole",
                Why::End => "end",
            };
            format!("{}-{} {why}", missing.from, missing.to)
        });
        format!("{}; {}", came.join(" "), missing.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn what_is_there_comes_once_and_in_bounds() {
        let log = [(4, 1, None), (5, 1, None), (5, 1, None), (6, 1, None), (7, 1, None)];
        assert_eq!(told(5, 6, &log), "5 6; ");
        // Said between two batches: it has no seq of its own.
        assert_eq!(told(5, 6, &[(5, 1, None), (6, 0, None), (6, 1, None)]), "5 6 6; ");
    }

    #[test]
    fn what_is_missing_is_told_with_its_reason() {
        let gaps = [(3, 1, None), (5, 1, None)];
        assert_eq!(told(0, 9, &gaps), "3 5; 0-2 not kept, 4-4 hole, 6-9 end");
        let log = [(0, 1, None), (1, 5, Some("permanent_hole")), (6, 1, None)];
        assert_eq!(told(2, 6, &log), "1 6; 2-5 permanent_hole");
        assert_eq!(told(0, 3, &log), "0 1; 1-3 permanent_hole");
        assert_eq!(told(0, 3, &[]), "; 0-3 end");
        assert_eq!(told(0, 3, &[(9, 1, None)]), "; 0-3 not kept");
    }
}
