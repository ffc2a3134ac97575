//! PURE. Who of several bridges drains an engine: one at a time, by a lease that the bus keeps.
//!
//! The bus forgets a lease that is not renewed. Its holder stops earlier than that, by its own
//! clock and without asking anybody: one that was frozen, or cut off, wakes up without the right.

use crate::recovery::Tick;

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// On the bus, from its last renewal on.
    pub kept_ms: u64,
    /// By so much less for its holder.
    pub margin_ms: u64,
}

/// What became of a wish for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It is ours, under this revision.
    Given(u64),
    /// It is somebody else's.
    Refused,
    /// Nobody answered.
    Unknown,
}

/// One bridge's end of a lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenure {
    revision: Option<u64>,
    until: Tick,
}

impl Tenure {
    /// What to ask for: the renewal of this revision, or the lease itself.
    pub fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Until when its holder may ask the engine.
    pub fn until(&self) -> Tick {
        self.until
    }

    /// Takes an answer to what was asked then.
    pub fn answered(&mut self, asked_at: Tick, grant: Grant, terms: LeaseTerms) {
        match grant {
            Grant::Given(revision) => {
                self.revision = Some(revision);
                let ms = terms.kept_ms.saturating_sub(terms.margin_ms);
                // The bus counts from when it was written, which was later.
                self.until = asked_at.plus(ms);
            }
            Grant::Refused => *self = Tenure::default(),
            // It may still be ours: the revision says so when the bus is back.
            Grant::Unknown => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: LeaseTerms = LeaseTerms { kept_ms: 5_000, margin_ms: 1_000 };

    #[test]
    fn who_may_ask_the_engine() {
        use Grant::{Given, Refused, Unknown};
        // What was answered to what was asked when; then when, whether, and what is asked next.
        type Row<'a> = (&'a [(u64, Grant)], u64, bool, Option<u64>);
        let rows: [Row<'_>; 10] = [
            (&[], 0, false, None),
            (&[(0, Refused)], 0, false, None),
            (&[(0, Unknown)], 0, false, None),
            (&[(10, Given(7))], 10, true, Some(7)),
            (&[(10, Given(7))], 4_009, true, Some(7)),
            (&[(10, Given(7))], 4_010, false, Some(7)),
            (&[(10, Given(7)), (500, Unknown)], 4_009, true, Some(7)),
            (&[(10, Given(7)), (500, Given(8))], 4_499, true, Some(8)),
            // Frozen while it asked: the answer comes too late to be of use.
            (&[(10, Given(7)), (500, Given(8))], 9_000, false, Some(8)),
            (&[(10, Given(7)), (500, Refused)], 600, false, None),
        ];
        for (answers, now, may, revision) in rows {
            let mut tenure = Tenure::default();
            for (asked_at, grant) in answers {
                tenure.answered(Tick(*asked_at), *grant, TERMS);
            }
            let case = (answers, now);
            assert_eq!(
                (Tick(now) < tenure.until(), tenure.revision()),
                (may, revision),
                "{case:?}"
            );
        }
    }
}
