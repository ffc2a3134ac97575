//! What the shell must do, in this order, before the next step.

use kvbridge_adapters_api::{Attempt, Batch};
use kvbridge_schemas::{Epoch, Seq, TierTrust};

use super::Fact;

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Fold this batch into the view.
    Apply(Batch),
    /// Drop the whole view.
    Clear {
        /// The life that starts, or goes on, empty.
        epoch: Epoch,
        /// Why.
        cause: ClearReason,
    },
    /// Swap the shadow view of this attempt in.
    Install {
        /// Whose shadow view.
        attempt: Attempt,
        /// The life it is of.
        epoch: Epoch,
        /// First live seq to apply after it.
        resume_seq: Seq,
    },
    /// Ask the source for everything from `start_seq` on.
    RequestReplay {
        /// Number of the request.
        attempt: Attempt,
        /// First seq wanted, inclusive.
        start_seq: Seq,
    },
    /// Ask the source for its whole state.
    RequestSnapshot {
        /// Number of the request.
        attempt: Attempt,
        /// Name of a stored one; absent = a fresh one.
        object: Option<String>,
    },
    /// Stop reading the open answer; a shadow view of it is dropped.
    CancelRequest,
    /// What may be believed from here on. Withdrawals come before the data they speak of, grants
    /// after.
    Announce {
        /// Per tier.
        trust: TierTrust,
        /// Why it is no better.
        reason: TrustReason,
    },
    /// A countable fact. The shell turns it into one counter and at most one log line.
    Record(Fact),
}

/// Why a view is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClearReason {
    /// The replica's cache has a new life.
    NewEpoch,
    /// What is kept cannot be proven any more.
    Unproven,
    /// Its memory is needed.
    OverLimit,
}

/// Why trust is what it is. One word per state, shown by the API and used as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustReason {
    /// Contiguous since a proven start.
    Contiguous,
    /// Contiguous since a point; what was before is unknown.
    JoinedLate,
    /// Starting: no batch and no answer yet.
    Joining,
    /// Not connected to the live stream.
    Detached,
    /// Reconnected; the engine has not yet proven that it is the same life.
    Verifying,
    /// Batches are missing and asked for.
    GapOpen,
    /// A snapshot is being fetched.
    Snapshotting,
    /// Batches were lost for good; the view was rebuilt from there.
    HistoryLost,
    /// Another reader takes the engine's events away.
    CompetingConsumer,
    /// The engine restarted and its new life is being learnt.
    NewEpoch,
    /// Neither a batch nor a probe for too long.
    Unproven,
    /// Two engines answer under one name.
    TwoPublishers,
    /// A store could not be read.
    StoreUndecodable,
    /// A removal could not be read, or an event type is unknown.
    RemovalUndecodable,
    /// The view found a count that contradicts the stream.
    Anomaly,
    /// The view could not keep all it was told.
    ParkingOverflow,
    /// The snapshot did not carry all that the engine knows.
    PartialSnapshot,
    /// The engine lets blocks go without a word.
    Unannounced,
    /// The engine flushed; tiers outside the flush are unknown.
    Flushed,
    /// The replica was given up to keep the process within its limits.
    OverLimit,
    /// Other ranks of the instance deliver, this one never did.
    RankMissing,
    /// No bridge says that the log is of this life and goes on.
    BridgeSilent,
    /// The view is not as far yet as the bridges say that the log is.
    CatchingUp,
    /// A bridge's view is further than the log has come within a lease.
    LogBehind,
    /// The bridges that write the log believe no more than this.
    Upstream,
}

impl TrustReason {
    /// Every reason.
    pub const ALL: [TrustReason; 25] = [
        TrustReason::Contiguous,
        TrustReason::JoinedLate,
        TrustReason::Joining,
        TrustReason::Detached,
        TrustReason::Verifying,
        TrustReason::GapOpen,
        TrustReason::Snapshotting,
        TrustReason::HistoryLost,
        TrustReason::CompetingConsumer,
        TrustReason::NewEpoch,
        TrustReason::Unproven,
        TrustReason::TwoPublishers,
        TrustReason::StoreUndecodable,
        TrustReason::RemovalUndecodable,
        TrustReason::Anomaly,
        TrustReason::ParkingOverflow,
        TrustReason::PartialSnapshot,
        TrustReason::Flushed,
        TrustReason::OverLimit,
        TrustReason::Unannounced,
        TrustReason::RankMissing,
        TrustReason::BridgeSilent,
        TrustReason::CatchingUp,
        TrustReason::LogBehind,
        TrustReason::Upstream,
    ];

    /// The reason of that word.
    pub fn from_name(name: &str) -> Option<TrustReason> {
        TrustReason::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TrustReason::Contiguous => "contiguous",
            TrustReason::JoinedLate => "joined_late",
            TrustReason::Joining => "joining",
            TrustReason::Detached => "detached",
            TrustReason::Verifying => "verifying",
            TrustReason::GapOpen => "gap_open",
            TrustReason::Snapshotting => "snapshotting",
            TrustReason::HistoryLost => "history_lost",
            TrustReason::CompetingConsumer => "competing_consumer",
            TrustReason::NewEpoch => "new_epoch",
            TrustReason::Unproven => "unproven",
            TrustReason::TwoPublishers => "two_publishers",
            TrustReason::StoreUndecodable => "store_undecodable",
            TrustReason::RemovalUndecodable => "removal_undecodable",
            TrustReason::Anomaly => "anomaly",
            TrustReason::ParkingOverflow => "parking_overflow",
            TrustReason::PartialSnapshot => "partial_snapshot",
            TrustReason::Unannounced => "unannounced",
            TrustReason::Flushed => "flushed",
            TrustReason::OverLimit => "over_limit",
            TrustReason::RankMissing => "rank_missing",
            TrustReason::BridgeSilent => "bridge_silent",
            TrustReason::CatchingUp => "catching_up",
            TrustReason::LogBehind => "log_behind",
            TrustReason::Upstream => "upstream",
        }
    }
}
