//! What a request for the past is answered: the journal, or the present under numbers of the past.

use std::sync::Arc;

use super::{Line, Moment, Numbered, Numbers, Payload, batch::Facts};

/// Numbers that a line which begins anywhere fills with empty batches. Beyond them an answer begins
/// later than it was asked for, which readers of such a line take.
const FILLED_MAX: u64 = 10_000;

/// What a request is answered, made as it is sent: most of it may be empty batches.
pub type Past = Box<dyn Iterator<Item = Numbered> + Send>;

/// Out of what a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing of the range was published yet.
    Nothing,
    /// The batches as they were published.
    Journal,
    /// All that is shown.
    View,
}

impl Line {
    /// All batches from `start` to the newest, to be followed by the end marker.
    ///
    /// Where the journal no longer has them the first ones say that everything is gone and tell all
    /// that is shown now, and empty ones fill the rest of the range: a reader ends where the line
    /// is, with what the line shows.
    pub fn replay(&self, at: Moment, start: u64) -> (Origin, Past) {
        let Some(room) = self.next_seq.checked_sub(start).filter(|room| *room > 0) else {
            return (Origin::Nothing, Box::new(std::iter::empty()));
        };
        if let Some(batches) = self.journal.from(start) {
            return (Origin::Journal, Box::new(batches.into_iter()));
        }
        (Origin::View, self.present(at, start, room))
    }

    /// The present in a range of `room` numbers.
    fn present(&self, at: Moment, start: u64, room: u64) -> Past {
        let settings = &self.settings;
        let batches = |facts: &Facts| facts.batches(&settings.profile, settings.rank, at.unix_ms);
        let whole = self.whole();
        let mut payloads = batches(&whole);
        if room < u64::try_from(payloads.len()).unwrap_or(u64::MAX) {
            payloads = vec![whole.one_batch(&settings.profile, settings.rank, at.unix_ms)];
        }
        let told = u64::try_from(payloads.len()).unwrap_or(u64::MAX);
        let fills = match settings.profile.numbers {
            Numbers::FromZero => true,
            Numbers::FromClock => room <= FILLED_MAX,
        };
        let empty: Payload =
            batches(&Facts::default()).into_iter().next().unwrap_or_else(|| Arc::from([]));
        let first = if fills { start } else { self.next_seq - told };
        let payloads = payloads.into_iter().chain(std::iter::repeat(empty));
        let numbered = (first..self.next_seq).zip(payloads);
        Box::new(numbered.map(|(seq, payload)| Numbered { seq, payload }))
    }
}
