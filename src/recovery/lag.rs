//! How late a log is: what the bridges that write it have, and it does not.
//!
//! However often a log is read to its end, that end is as old as what it lacks. A bridge that is
//! believed says where the engine's newest batch is, at most a lease ago. So whoever follows a log
//! must have been where one was, and is then believed for a lease past the first word that names a
//! place beyond.

use std::collections::VecDeque;

use kvbridge_schemas::{Cursor, Epoch, Seq};

use super::Tick;

/// A lease has so many spans. Places that are named within one count as named at its beginning: a
/// log that is late by nearly a lease is late, and what is remembered is bounded.
const SPANS: u64 = 16;

/// Places of bridges' views that the log has not come to.
#[derive(Debug, Default)]
pub(super) struct Lag {
    epoch: Epoch,
    /// Each beyond ours, and named first then. Both rise.
    named: VecDeque<(Seq, Tick)>,
    met: Met,
    /// One of them was named a lease ago.
    late: bool,
}

/// Whether our view was as far as a bridge's own, of those that have spoken without a break since.
/// Before, nobody knows how long ago the engine left the end of the log: a reader that was away,
/// or deaf, may meet one that has been late for hours.
#[derive(Clone, Copy, Debug, Default)]
enum Met {
    #[default]
    Nobody,
    /// The first of them is there.
    Expects(Seq),
    Somebody,
}

impl Lag {
    /// No word counts: when the next one comes, its place may have been left long ago.
    pub(super) fn silent(&mut self) {
        self.met = Met::Nobody;
    }

    /// Takes a fresh word of our life, also again: a bridge's view is at `view`, and believed or
    /// not; ours is at `ours`. Whether the log became late just now.
    pub(super) fn hear(
        &mut self,
        now: Tick,
        ours: Cursor,
        (view, believed): (Seq, bool),
        lease_ms: u64,
    ) -> bool {
        if self.epoch != ours.epoch {
            *self = Lag { epoch: ours.epoch, ..Lag::default() };
        }
        self.meet(ours.next_seq, view, believed);
        self.note(now, view, lease_ms / SPANS);
        while self.named.front().is_some_and(|(place, _)| *place <= ours.next_seq) {
            self.named.pop_front();
        }
        // Of those that are late the furthest is to be reached.
        while self.named.get(1).is_some_and(|(_, since)| since.plus(lease_ms) <= now) {
            self.named.pop_front();
        }
        let was_late = self.late;
        self.late = self.due_at(lease_ms).is_some_and(|at| at <= now);
        self.late && !was_late
    }

    /// What was named a lease ago did not come.
    pub(super) fn is_late(&self) -> bool {
        self.late
    }

    /// The view was where a bridge was that is believed.
    pub(super) fn has_met(&self) -> bool {
        matches!(self.met, Met::Somebody)
    }

    /// When the first place that was named and is not reached is late.
    pub(super) fn due_at(&self, lease_ms: u64) -> Option<Tick> {
        self.named.front().map(|(_, since)| since.plus(lease_ms))
    }

    /// The life that the places are of.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn meet(&mut self, ours: Seq, view: Seq, believed: bool) {
        let expected = match self.met {
            // One that does not believe its own view may have been cut off for long.
            _ if !believed => return self.silent(),
            Met::Somebody => return,
            Met::Nobody => view,
            Met::Expects(place) => place.min(view),
        };
        self.met = if ours >= expected { Met::Somebody } else { Met::Expects(expected) };
    }

    fn note(&mut self, now: Tick, view: Seq, span_ms: u64) {
        let below = self.named.partition_point(|(place, _)| *place < view);
        if let Some((place, _)) = self.named.get_mut(below) {
            // A bridge that speaks instead of one that was further: no more is awaited than it has.
            *place = view;
            return self.named.truncate(below + 1);
        }
        match self.named.back_mut() {
            Some((place, since)) if now <= since.plus(span_ms) => *place = view,
            Some(_) | None => self.named.push_back((view, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_MS: u64 = 1_600;

    /// What is heard and reached when, and what follows: `met`, `late`, due at.
    type Row = (u64, u64, u64, (bool, bool, Option<u64>));

    fn check(lag: &mut Lag, rows: &[Row]) {
        for (now, ours, view, (met, late, due_at)) in rows {
            let ours = Cursor { epoch: Epoch(1), next_seq: Seq(*ours) };
            lag.hear(Tick(*now), ours, (Seq(*view), true), LEASE_MS);
            let is = (lag.has_met(), lag.is_late(), lag.due_at(LEASE_MS).map(|at| at.0));
            assert_eq!(is, (*met, *late, *due_at), "at {now}");
        }
    }

    #[test]
    fn a_place_is_waited_for_from_when_it_was_named() {
        let mut lag = Lag::default();
        check(
            &mut lag,
            &[
                (0, 5, 5, (true, false, None)),
                (0, 5, 6, (true, false, Some(1_600))),
                (700, 5, 9, (true, false, Some(1_600))),
                // What comes late makes the next one no younger.
                (1_599, 6, 40, (true, false, Some(2_300))),
                (2_299, 8, 40, (true, false, Some(2_300))),
                (2_300, 8, 40, (true, true, Some(2_300))),
                (2_400, 9, 40, (true, false, Some(3_199))),
                (2_500, 40, 40, (true, false, None)),
            ],
        );
    }

    #[test]
    fn who_comes_to_a_late_log_has_met_nobody() {
        let mut lag = Lag::default();
        check(
            &mut lag,
            &[
                (0, 5, 48, (false, false, Some(1_600))),
                (1_000, 17, 60, (false, false, Some(1_600))),
                (1_599, 48, 60, (true, false, Some(2_600))),
            ],
        );
        lag.silent();
        check(&mut lag, &[(2_000, 50, 51, (false, false, Some(2_600)))]);
        // Another bridge answers for less.
        check(&mut lag, &[(2_100, 50, 50, (true, false, None))]);
        // One that does not believe its view answers for nothing.
        let ours = Cursor { epoch: Epoch(1), next_seq: Seq(50) };
        assert!(!lag.hear(Tick(2_200), ours, (Seq(50), false), LEASE_MS));
        assert!(!lag.has_met());
        // Nor does who was met in another life.
        check(&mut lag, &[(2_300, 50, 50, (true, false, None))]);
        let ours = Cursor { epoch: Epoch(2), next_seq: Seq(3) };
        assert!(!lag.hear(Tick(2_400), ours, (Seq(4), true), LEASE_MS));
        assert!(!lag.has_met());
    }

    #[test]
    fn a_log_that_is_late_is_told_once_and_remembers_little() {
        let mut lag = Lag::default();
        let mut told = 0;
        for now in 0..100_000 {
            let ours = Cursor { epoch: Epoch(1), next_seq: Seq(1) };
            let view = Seq(1 + now);
            told += u32::from(lag.hear(Tick(now), ours, (view, true), LEASE_MS));
            assert!(lag.named.len() <= 18, "{}", lag.named.len());
        }
        assert_eq!(told, 1);
        // What is late is to be reached, and no more.
        let late = lag.named.front().map(|(place, _)| *place);
        assert!(late.is_some_and(|place| place <= Seq(100_000 - LEASE_MS + 200)), "{late:?}");
    }
}
