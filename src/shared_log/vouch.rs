//! Which bridge's word counts for a replica, and for how long.
//!
//! A word is fresh by our own clock, from the moment we heard it: clocks of bridges may be a day
//! off, and may be set back. A bridge that says the same again is an echo, not a sign of life.

use std::collections::BTreeMap;

use kvbridge_adapters_api::Upstream;
use kvbridge_schemas::{Cursor, Seq, Status, Trust};

/// Bridges of one replica that are told apart. Two or three are usual. Full: the one that was
/// silent longest goes.
const BRIDGES_MAX: usize = 64;

/// What bridges say of one replica.
#[derive(Debug)]
pub struct Vouches {
    ttl_ms: u64,
    by_bridge: BTreeMap<String, Vouch>,
}

#[derive(Clone, Copy, Debug)]
struct Vouch {
    cursor: Cursor,
    /// How far the bridge's own view is: no less than the log.
    view: Seq,
    trust: Trust,
    /// By the bridge's clock.
    said_at: u64,
    /// By ours.
    heard_at_ms: u64,
    /// What the log itself said last, from where on, and when we came to it.
    in_log: Option<(Cursor, Trust, u64)>,
}

impl Vouch {
    /// A heartbeat that was on its way when the log said less says nothing of it. One that is still
    /// on its way after its time to live is none.
    fn no_more_than_the_log(&mut self, now_ms: u64, ttl_ms: u64) {
        let word = self.in_log.filter(|(_, _, at_ms)| now_ms < at_ms.saturating_add(ttl_ms));
        self.in_log = word.filter(|(at, _, _)| self.cursor <= *at);
        if let Some((_, trust, _)) = self.in_log {
            self.trust = self.trust.min(trust);
        }
    }
}

impl Vouches {
    /// Nobody has spoken. A word counts for `ttl_ms`.
    pub fn new(ttl_ms: u64) -> Vouches {
        Vouches { ttl_ms, by_bridge: BTreeMap::new() }
    }

    /// A heartbeat came.
    pub fn heard(&mut self, now_ms: u64, status: &Status) {
        let before = self.by_bridge.get(&status.bridge);
        // The same again is an echo. An older one is late, unless the bridge has been silent for
        // longer than a word counts: then it came back with a clock that was set back.
        let is_late = |before: &Vouch| status.at < before.said_at && now_ms < self.expiry(before);
        if before.is_some_and(|before| status.at == before.said_at || is_late(before)) {
            return;
        }
        let cursor = Cursor { epoch: status.epoch, next_seq: status.next_seq };
        let mut vouch = Vouch {
            cursor,
            view: status.view_seq.map_or(cursor.next_seq, |view| view.max(cursor.next_seq)),
            trust: status.trust,
            said_at: status.at,
            heard_at_ms: now_ms,
            in_log: before.and_then(|before| before.in_log),
        };
        vouch.no_more_than_the_log(now_ms, self.ttl_ms);
        if before.is_none() && self.by_bridge.len() >= BRIDGES_MAX {
            let oldest = self.by_bridge.iter().min_by_key(|(_, vouch)| vouch.heard_at_ms);
            if let Some(oldest) = oldest.map(|(bridge, _)| bridge.clone()) {
                self.by_bridge.remove(&oldest);
            }
        }
        self.by_bridge.insert(status.bridge.clone(), vouch);
    }

    /// The log itself says what a bridge believes from `at` on. It may be old news, read late: it
    /// is no sign of life, and changes nothing that a later heartbeat said.
    pub fn said(&mut self, now_ms: u64, bridge: &str, at: Cursor, trust: Trust) {
        if let Some(vouch) = self.by_bridge.get_mut(bridge)
            && at >= vouch.cursor
        {
            vouch.trust = vouch.trust.min(trust);
            // Of another life than the heartbeat was of nothing is known but the log.
            let view = if vouch.cursor.epoch == at.epoch { vouch.view } else { Seq(0) };
            (vouch.cursor, vouch.view) = (at, view.max(at.next_seq));
            vouch.in_log = Some((at, trust, now_ms));
        }
    }

    /// The best word that is fresh: of the newest life, then of the most trust, then the furthest.
    pub fn best(&self, now_ms: u64) -> Upstream {
        let fresh = self.by_bridge.values().filter(|vouch| now_ms < self.expiry(vouch));
        let rank = |vouch: &&Vouch| {
            let Vouch { cursor, view, trust, .. } = **vouch;
            (cursor.epoch, trust, cursor.next_seq, view)
        };
        match fresh.max_by_key(rank) {
            Some(Vouch { cursor, trust, view, .. }) => {
                Upstream::Vouched { cursor: *cursor, trust: *trust, view: *view }
            }
            None => Upstream::Silent,
        }
    }

    /// When the next word runs out.
    pub fn expires_at_ms(&self, now_ms: u64) -> Option<u64> {
        let expiries = self.by_bridge.values().map(|vouch| self.expiry(vouch));
        expiries.filter(|at| *at > now_ms).min()
    }

    fn expiry(&self, vouch: &Vouch) -> u64 {
        vouch.heard_at_ms.saturating_add(self.ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{Epoch, Replica};

    use super::*;

    fn status(bridge: &str, epoch: u64, next_seq: u64, trust: Trust, at: u64) -> Status {
        Status {
            replica: Replica { model: "m".into(), instance: "h:1".into(), rank: 0 },
            epoch: Epoch(epoch),
            next_seq: Seq(next_seq),
            view_seq: None,
            bus_seq: None,
            trust,
            reason: "r".into(),
            bridge: bridge.to_owned(),
            at,
        }
    }

    fn best(vouches: &Vouches, now_ms: u64) -> Option<(u64, u64, Trust)> {
        match vouches.best(now_ms) {
            Upstream::Vouched { cursor, trust, .. } => {
                Some((cursor.epoch.0, cursor.next_seq.0, trust))
            }
            Upstream::Silent => None,
        }
    }

    #[test]
    fn a_word_runs_out_by_our_clock() {
        let mut vouches = Vouches::new(5_000);
        assert_eq!(best(&vouches, 0), None);
        // A day ahead.
        vouches.heard(100, &status("a", 1, 10, Trust::Exact, 86_400_000));
        assert_eq!(best(&vouches, 5_099), Some((1, 10, Trust::Exact)));
        assert_eq!(vouches.expires_at_ms(100), Some(5_100));
        assert_eq!(best(&vouches, 5_100), None);
    }

    #[test]
    fn an_echo_is_no_sign_of_life() {
        let mut vouches = Vouches::new(5_000);
        vouches.heard(0, &status("a", 1, 10, Trust::Exact, 7));
        vouches.heard(4_000, &status("a", 1, 10, Trust::Exact, 7));
        assert_eq!(best(&vouches, 5_000), None);
        vouches.heard(5_000, &status("a", 1, 10, Trust::Exact, 8));
        assert_eq!(best(&vouches, 5_000), Some((1, 10, Trust::Exact)));
    }

    #[test]
    fn a_clock_that_was_set_back_silences_no_bridge() {
        let mut vouches = Vouches::new(5_000);
        vouches.heard(0, &status("a", 1, 10, Trust::Exact, 86_400_000));
        vouches.heard(4_999, &status("a", 1, 9, Trust::LowerBound, 7));
        assert_eq!(best(&vouches, 4_999), Some((1, 10, Trust::Exact)), "it may merely be late");
        vouches.heard(5_000, &status("a", 1, 11, Trust::LowerBound, 8));
        assert_eq!(best(&vouches, 5_000), Some((1, 11, Trust::LowerBound)));
    }

    #[test]
    fn the_best_of_several_counts_and_a_stale_one_keeps_nothing_alive() {
        let mut vouches = Vouches::new(5_000);
        vouches.heard(0, &status("a", 1, 10, Trust::Exact, 1));
        vouches.heard(3_000, &status("b", 1, 12, Trust::None, 1));
        assert_eq!(best(&vouches, 3_000), Some((1, 10, Trust::Exact)));
        assert_eq!(best(&vouches, 5_000), Some((1, 12, Trust::None)));
        // A newer life is what the log is of, whoever is still in the old one.
        vouches.heard(5_000, &status("a", 1, 10, Trust::Exact, 2));
        vouches.heard(5_000, &status("b", 2, 0, Trust::None, 2));
        assert_eq!(best(&vouches, 5_000), Some((2, 0, Trust::None)));
    }

    #[test]
    fn the_log_may_be_ahead_of_the_heartbeat() {
        let mut vouches = Vouches::new(5_000);
        vouches.heard(0, &status("a", 1, 10, Trust::Exact, 1));
        let at = |next_seq| Cursor { epoch: Epoch(1), next_seq: Seq(next_seq) };
        vouches.said(1, "a", at(12), Trust::None);
        assert_eq!(best(&vouches, 1), Some((1, 12, Trust::None)));
        // Said before the log's word, and on its way for longer.
        vouches.heard(2, &status("a", 1, 12, Trust::Exact, 2));
        assert_eq!(best(&vouches, 2), Some((1, 12, Trust::None)));
        // Read late: the heartbeat is newer.
        vouches.heard(3, &status("a", 1, 20, Trust::Exact, 3));
        vouches.said(3, "a", at(15), Trust::None);
        assert_eq!(best(&vouches, 3), Some((1, 20, Trust::Exact)));
        vouches.said(4, "a", at(20), Trust::None);
        vouches.heard(5_003, &status("a", 1, 20, Trust::Exact, 4));
        assert_eq!(best(&vouches, 5_003), Some((1, 20, Trust::None)));
        vouches.heard(5_004, &status("a", 1, 20, Trust::Exact, 5));
        assert_eq!(best(&vouches, 5_004), Some((1, 20, Trust::Exact)), "the word was missed");
        // Who has not been heard is not made alive.
        vouches.said(9_000, "z", at(90), Trust::Exact);
        assert_eq!(best(&vouches, 11_000), None);
    }

    /// Who says nothing of its view is no further than its log.
    #[test]
    fn a_view_is_never_behind_its_log() {
        let mut vouches = Vouches::new(5_000);
        let view = |vouches: &Vouches| match vouches.best(5) {
            Upstream::Vouched { view, .. } => view.0,
            Upstream::Silent => panic!("somebody spoke"),
        };
        let said = |next_seq, view_seq, at| Status {
            view_seq,
            ..status("a", 1, next_seq, Trust::Exact, at)
        };
        for (at, (next_seq, view_seq, is)) in
            [(10, None, 10), (10, Some(Seq(7)), 10), (10, Some(Seq(90)), 90)]
                .into_iter()
                .enumerate()
        {
            vouches.heard(1, &said(next_seq, view_seq, at as u64));
            assert_eq!(view(&vouches), is);
        }
        // The log says less of trust, and nothing of the view; another life has another view.
        let at = |epoch, next_seq| Cursor { epoch: Epoch(epoch), next_seq: Seq(next_seq) };
        vouches.said(2, "a", at(1, 20), Trust::LowerBound);
        assert_eq!(view(&vouches), 90);
        vouches.said(3, "a", at(2, 3), Trust::None);
        assert_eq!(view(&vouches), 3);
    }

    #[test]
    fn bridges_are_bounded() {
        let mut vouches = Vouches::new(5_000);
        for number in 0..100 {
            vouches.heard(number, &status(&format!("b{number}"), 1, 0, Trust::Exact, 1));
        }
        assert_eq!(vouches.by_bridge.len(), BRIDGES_MAX);
        assert!(!vouches.by_bridge.contains_key("b0"));
    }
}
