//! What the configuration wants done about replicas that do not come back by themselves.

use std::collections::BTreeMap;

use kvbridge_schemas::{ReplicaKey, Trust};

use super::{Seen, Verb};
use crate::recovery::{Tick, TrustReason};

/// How long a replica stays as it is before it counts as one that does not come back. A flush by
/// somebody else or a new life may still help it.
pub const UNRECOVERABLE_MS: u64 = 10_000;

/// Wait before a replica that was asked in vain is asked again, doubled each time. Shorter: trust
/// or a cache is given up again and again for nothing.
pub const POLICY_RETRY_MS: u64 = 600_000;

/// The longest such wait.
pub const POLICY_RETRY_MAX_MS: u64 = 6 * 3_600_000;

/// What to do about a replica that cannot become exact by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnrecoverable {
    /// Nothing: an operator decides.
    #[default]
    None,
    /// Prove it anew, which helps where a journal or a snapshot has become reachable again.
    Resync,
    /// Empty the engine's cache, which always helps and costs all that is cached.
    Flush,
}

impl OnUnrecoverable {
    /// What is asked, if anything.
    pub fn verb(self) -> Option<Verb> {
        match self {
            OnUnrecoverable::None => None,
            OnUnrecoverable::Resync => Some(Verb::Resync),
            OnUnrecoverable::Flush => Some(Verb::Flush),
        }
    }
}

/// Whether recovery has done what it could: only a flush, a new life or somebody's hand on the
/// configuration can make the replica exact.
fn is_unrecoverable(seen: &Seen) -> bool {
    let reasons = [
        TrustReason::JoinedLate,
        TrustReason::HistoryLost,
        TrustReason::StoreUndecodable,
        TrustReason::RemovalUndecodable,
        TrustReason::Anomaly,
        TrustReason::ParkingOverflow,
    ];
    seen.trust < Trust::Exact && reasons.iter().any(|reason| reason.as_str() == seen.reason)
}

#[derive(Clone, Copy, Debug)]
struct Patience {
    due_at: Tick,
    wait_ms: u64,
}

/// Which replicas are due.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    patience: BTreeMap<ReplicaKey, Patience>,
}

impl Policy {
    /// Takes one look at all replicas, and says which are to be asked. A replica that was exact in
    /// between begins anew.
    pub fn look(&mut self, now: Tick, seen: &BTreeMap<ReplicaKey, Seen>) -> Vec<ReplicaKey> {
        let is_well = |key: &ReplicaKey| seen.get(key).is_none_or(|it| it.trust == Trust::Exact);
        self.patience.retain(|key, _| !is_well(key));
        let mut due = Vec::new();
        for (key, _) in seen.iter().filter(|(_, seen)| is_unrecoverable(seen)) {
            let first = Patience { due_at: now.plus(UNRECOVERABLE_MS), wait_ms: POLICY_RETRY_MS };
            if now >= self.patience.entry(key.clone()).or_insert(first).due_at {
                due.push(key.clone());
            }
        }
        due
    }

    /// These were asked.
    pub fn asked(&mut self, now: Tick, replicas: &[ReplicaKey]) {
        for key in replicas {
            if let Some(patience) = self.patience.get_mut(key) {
                patience.due_at = now.plus(patience.wait_ms);
                patience.wait_ms = patience.wait_ms.saturating_mul(2).min(POLICY_RETRY_MAX_MS);
            }
        }
    }
}
