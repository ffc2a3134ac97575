//! Turns a fact into one counter and at most one log line: the only place that does.

use std::collections::BTreeMap;

use kvbridge_schemas::{Epoch, ReplicaKey};
use tracing::{debug, error, info, warn};

use super::ReplicaMetrics;
use crate::recovery::{Fact, Tick};

/// A fact that repeats is logged once in this time. Shorter: a flapping link floods the log.
/// Longer: a second, different outage would hide behind the first.
const REPEAT_MS: u64 = 10_000;

/// Counts and logs the facts of one replica.
pub struct FactLog {
    key: ReplicaKey,
    /// Word → when it was last logged, and how many lines were left out since.
    logged: BTreeMap<&'static str, (Tick, u64)>,
}

/// How much a fact matters to whoever reads the log.
enum Level {
    /// Something an operator must look at: data is lost, or a human is needed.
    Error,
    /// Unexpected; repaired or being repaired.
    Warn,
    /// A transition that a shift handover would mention.
    Info,
    /// Part of normal work.
    Debug,
}

impl FactLog {
    /// A log for one replica.
    pub fn new(key: ReplicaKey) -> FactLog {
        FactLog { key, logged: BTreeMap::new() }
    }

    /// Records one fact.
    pub fn record(&mut self, now: Tick, epoch: Epoch, fact: Fact, metrics: &mut ReplicaMetrics) {
        let word = fact.as_str();
        metrics.fact(word);
        if let Fact::Gap { count, .. } = fact {
            metrics.gaps.increment(1);
            metrics.missing_batches.increment(count);
        }
        if let Fact::NewEpoch(_) = fact {
            metrics.epoch_changes.increment(1);
        }
        let Some(repeated) = self.turn(now, word) else { return };
        let key = &self.key;
        let Detail { seq, count } = detail(fact);
        match level(fact) {
            Level::Error => {
                error!(replica = %key, %epoch, seq, count, repeated, fact = word, "recovery");
            }
            Level::Warn => {
                warn!(replica = %key, %epoch, seq, count, repeated, fact = word, "recovery");
            }
            Level::Info => {
                info!(replica = %key, %epoch, seq, count, repeated, fact = word, "recovery");
            }
            Level::Debug => {
                debug!(replica = %key, %epoch, seq, count, repeated, fact = word, "recovery");
            }
        }
    }

    /// Whether the word may be logged now, and how many lines were left out before.
    fn turn(&mut self, now: Tick, word: &'static str) -> Option<Option<u64>> {
        match self.logged.get_mut(word) {
            Some((at, left_out)) if now < at.plus(REPEAT_MS) => {
                *left_out += 1;
                None
            }
            Some((at, left_out)) => {
                let repeated = std::mem::take(left_out);
                *at = now;
                Some((repeated > 0).then_some(repeated))
            }
            None => {
                self.logged.insert(word, (now, 0));
                Some(None)
            }
        }
    }
}

/// The numbers a fact carries.
#[derive(Default)]
struct Detail {
    seq: Option<u64>,
    count: Option<u64>,
}

// No wildcard: a new fact must be given its level, or it does not compile.
fn level(fact: Fact) -> Level {
    match fact {
        Fact::PermanentHole(_)
        | Fact::ReplayUnusable
        | Fact::SnapshotFailed
        | Fact::TwoPublishers
        | Fact::Anomaly
        | Fact::ParkingOverflow
        | Fact::CompetingConsumer
        | Fact::OverLimit => Level::Error,
        Fact::DigestMismatch(_)
        | Fact::Straddle(_)
        | Fact::Undecodable(_)
        | Fact::Gap { .. }
        | Fact::Overflowed
        | Fact::HeldFull
        | Fact::Truncated(_)
        | Fact::Hole(_)
        | Fact::Silent
        | Fact::ReplayFailed
        | Fact::EndOnly
        | Fact::BarrierMissed
        | Fact::Disproved
        | Fact::Short
        | Fact::Inconsistent
        | Fact::TooLarge
        | Fact::NoHistory
        | Fact::LeaseExpired
        | Fact::StoreMissing
        | Fact::TailLoss(_)
        | Fact::BridgeSilent
        | Fact::RankMissing
        | Fact::TailBehind(_)
        | Fact::LogBehind(_)
        | Fact::HealedByTwin(_) => Level::Warn,
        Fact::NewEpoch(_)
        | Fact::Rollback(_)
        | Fact::Reset(_)
        | Fact::FirstIsZero
        | Fact::JoinedLate(_)
        | Fact::Replayed
        | Fact::Installed
        | Fact::Reattached
        | Fact::Flushed(_)
        | Fact::ResyncAsked
        | Fact::Restarted
        | Fact::Unannounced
        | Fact::Resumed(_)
        | Fact::Released
        | Fact::Vouched
        | Fact::Refetched => Level::Info,
        Fact::EndMarker
        | Fact::StaleEpoch
        | Fact::Duplicate(_)
        | Fact::OverlapUnproven(_)
        | Fact::StaleAnswer
        | Fact::Busy
        | Fact::Idle
        | Fact::Audit
        | Fact::Unattached => Level::Debug,
    }
}

fn detail(fact: Fact) -> Detail {
    match fact {
        Fact::Gap { first, count } => Detail { seq: Some(first.0), count: Some(count) },
        Fact::DigestMismatch(seq)
        | Fact::Duplicate(seq)
        | Fact::OverlapUnproven(seq)
        | Fact::Straddle(seq)
        | Fact::Rollback(seq)
        | Fact::Undecodable(seq)
        | Fact::Reset(seq)
        | Fact::JoinedLate(seq)
        | Fact::Truncated(seq)
        | Fact::Hole(seq)
        | Fact::PermanentHole(seq)
        | Fact::Flushed(seq)
        | Fact::TailLoss(seq)
        | Fact::TailBehind(seq)
        | Fact::LogBehind(seq)
        | Fact::Resumed(seq)
        | Fact::HealedByTwin(seq) => Detail { seq: Some(seq.0), count: None },
        _ => Detail::default(),
    }
}
