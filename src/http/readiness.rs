//! PURE. Whether `/readyz` says 200: a decision over what was seen, that cannot cause an outage.
//!
//! A probe that follows trust would take a whole fleet of routers out of service when a broker
//! restarts, although each of them could go on by load. So it waits for a first proof, for a
//! while, and then stays; only who asks for it gets a probe that can say no again.

use crate::{
    clock::millis,
    config::{ReadyConfig, ReadyPolicy},
};

/// How a program stands towards those that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Too few replicas are proven, and the time to wait is not over.
    Starting,
    /// Enough replicas were proven once.
    Converged,
    /// The time to wait was over first.
    Waited,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Starting, Mode::Converged, Mode::Waited];

    /// The word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Starting => "starting",
            Mode::Converged => "converged",
            Mode::Waited => "waited",
        }
    }
}

/// What is seen at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Replicas.
    pub(super) replica_count: u64,
    /// Those of them that may be believed in part or whole.
    pub(super) proven_count: u64,
    /// More replicas may be found by themselves, so none is not all of them.
    pub(super) finds_more: bool,
}

/// The first convergence is remembered.
#[derive(Clone, Debug)]
pub(super) struct Readiness {
    config: ReadyConfig,
    mode: Mode,
}

impl Readiness {
    /// Of a program that starts.
    pub(super) fn new(config: ReadyConfig) -> Readiness {
        Readiness { config, mode: Mode::Starting }
    }

    /// Looks, so long after the start; says whether to send requests here.
    pub(super) fn look(&mut self, seen: Seen, up_ms: u64) -> (Mode, bool) {
        let enough = self.enough(seen);
        let waited = up_ms >= millis(self.config.max_wait);
        self.mode = match self.mode {
            _ if enough => Mode::Converged,
            Mode::Starting if waited => Mode::Waited,
            mode => mode,
        };
        let revoked = self.config.revocable && self.mode == Mode::Converged && !enough;
        (self.mode, self.mode != Mode::Starting && !revoked)
    }

    fn enough(&self, seen: Seen) -> bool {
        if seen.replica_count == 0 {
            return !seen.finds_more;
        }
        match self.config.policy {
            ReadyPolicy::All => seen.proven_count >= seen.replica_count,
            ReadyPolicy::Quorum => seen.proven_count * 2 > seen.replica_count,
            ReadyPolicy::Any => seen.proven_count > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn looks(policy: ReadyPolicy, revocable: bool, looks: &[(u64, u64, u64)]) -> Vec<String> {
        let max_wait = Duration::from_secs(60);
        let mut readiness = Readiness::new(ReadyConfig { policy, max_wait, revocable });
        let mut said = Vec::new();
        for (up_s, proven_count, replica_count) in looks {
            let seen = Seen {
                proven_count: *proven_count,
                replica_count: *replica_count,
                finds_more: true,
            };
            let (mode, ready) = readiness.look(seen, up_s * 1000);
            said.push(format!("{} {ready}", mode.as_str()));
        }
        said
    }

    #[test]
    fn the_first_convergence_stays() {
        let seen = [(0, 0, 3), (1, 2, 3), (2, 3, 3), (3, 0, 3), (500, 0, 3)];
        let wanted = [
            "starting false",
            "starting false",
            "converged true",
            "converged true",
            "converged true",
        ];
        assert_eq!(looks(ReadyPolicy::All, false, &seen), wanted);
        let sooner = ["starting false", "converged true", "converged true"];
        assert_eq!(looks(ReadyPolicy::Quorum, false, &seen[..3]), sooner);
        assert_eq!(looks(ReadyPolicy::Quorum, false, &[(0, 1, 2)]), ["starting false"]);
        assert_eq!(looks(ReadyPolicy::Any, false, &[(0, 1, 9)]), ["converged true"]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let seen = [(0, 0, 1), (59, 0, 1), (60, 0, 1), (61, 0, 0), (62, 1, 1)];
        let wanted =
            ["starting false", "starting false", "waited true", "waited true", "converged true"];
        assert_eq!(looks(ReadyPolicy::All, false, &seen), wanted);
    }

    #[test]
    fn only_who_asks_for_it_gets_a_no_again() {
        let seen = [(1, 1, 1), (2, 0, 1), (3, 1, 1)];
        let wanted = ["converged true", "converged false", "converged true"];
        assert_eq!(looks(ReadyPolicy::All, true, &seen), wanted);
        // Where nothing was ever proven there is nothing to take back.
        assert_eq!(looks(ReadyPolicy::All, true, &[(60, 0, 1)]), ["waited true"]);
    }

    #[test]
    fn without_replicas_it_depends_on_whether_some_may_be_found() {
        let mut readiness = Readiness::new(ReadyConfig::default());
        let none = Seen { replica_count: 0, proven_count: 0, finds_more: true };
        assert_eq!(readiness.look(none, 0), (Mode::Starting, false));
        let alone = Seen { finds_more: false, ..none };
        assert_eq!(readiness.look(alone, 0), (Mode::Converged, true));
    }
}
