//! What a reader that opens a stream is told first: what it lacks behind the number that it has, or
//! all that there is.

use super::{Line, Moment, Numbered, Past};

impl Line {
    /// What was published behind `last`, which a reader has applied; `None` = it cannot go on from
    /// there: the journal has not all of it, or that number is none of this line's.
    pub fn since(&self, last: u64) -> Option<Vec<Numbered>> {
        let next = last.checked_add(1).filter(|next| *next <= self.next_seq)?;
        if last < self.resumable_from {
            return None;
        }
        if next == self.next_seq {
            // What a line has not published nobody has, and its beginning is known to nobody.
            return self.has_published(last).then(Vec::new);
        }
        self.journal.from(next)
    }

    /// That everything is gone and all that readers have, in batches whose numbers end at the
    /// newest.
    ///
    /// Several of them have numbers that live batches had too. A reader that breaks off among them
    /// asks as one that had those live batches does: neither is answered any more.
    pub fn present_stream(&mut self, at: Moment) -> Past {
        let payloads = self.whole_stream(at);
        let count = u64::try_from(payloads.len()).unwrap_or(u64::MAX);
        let first = self.next_seq.saturating_sub(count);
        if count > 1 {
            self.resumable_from = self.next_seq.saturating_sub(1);
        }
        let numbered = (first..self.next_seq).zip(payloads);
        Box::new(numbered.map(|(seq, payload)| Numbered { seq, payload }))
    }

    fn has_published(&self, seq: u64) -> bool {
        self.journal.newest() == Some(seq)
    }

    fn whole_stream(&self, at: Moment) -> Vec<super::Payload> {
        match self.settings.profile.encoding {
            super::Encoding::Msgpack => self.whole_batches(at),
            #[cfg(feature = "sink-smg")]
            super::Encoding::Protobuf => super::smg::snapshot(&self.whole(), at.unix_ms),
        }
    }
}
