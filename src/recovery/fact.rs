//! Countable facts: each becomes one counter and at most one log line, in one function of the
//! shell.

use kvbridge_schemas::{Epoch, Seq};

/// Something worth counting. The names are those of the decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The all-ones seq came on the live stream.
    EndMarker,
    /// A batch of a closed life.
    StaleEpoch,
    /// A new life begins.
    NewEpoch(Epoch),
    /// A seq seen before came with other bytes.
    DigestMismatch(Seq),
    /// A batch came again, byte for byte.
    Duplicate(Seq),
    /// A batch overlaps what is applied, and its digest is no longer kept.
    OverlapUnproven(Seq),
    /// A span reaches over the cursor from below.
    Straddle(Seq),
    /// The seq went backwards: the engine restarted.
    Rollback(Seq),
    /// A body or an event of it could not be read.
    Undecodable(Seq),
    /// A bridge told what its hop lost.
    Reset(Seq),
    /// The first batch of the life was seen live.
    FirstIsZero,
    /// The engine was running before we attached.
    JoinedLate(Seq),
    /// Batches are missing.
    Gap {
        /// The first one missing.
        first: Seq,
        /// How many.
        count: u64,
    },
    /// Our own queue dropped batches, or the source knows that some are missing.
    Overflowed,
    /// The buffer of live batches was full while a replay or snapshot was open.
    HeldFull,
    /// The journal no longer holds the start of what was asked.
    Truncated(Seq),
    /// A replay answer jumped.
    Hole(Seq),
    /// The same jump came from two complete replays: the engine never had these batches.
    PermanentHole(Seq),
    /// No progress until the deadline.
    Silent,
    /// The replay ended without an end marker.
    ReplayFailed,
    /// The answer held nothing but its end marker.
    EndOnly,
    /// The source's replay cannot be used (wrong port, no journal).
    ReplayUnusable,
    /// A replay was proven complete.
    Replayed,
    /// An answer to a request that is no longer open.
    StaleAnswer,
    /// The marker that proves a snapshot's cut was not seen.
    BarrierMissed,
    /// The source was busy with another snapshot.
    Busy,
    /// A snapshot had fewer or more records than it said.
    Short,
    /// The parts of a snapshot contradicted each other.
    Inconsistent,
    /// A snapshot held more than this process keeps of one replica.
    TooLarge,
    /// A snapshot was refused for good or all attempts are used up.
    SnapshotFailed,
    /// A snapshot was installed.
    Installed,
    /// The stream is attached again and the engine is asked whether it is the same life.
    Reattached,
    /// No batch for a while: the engine is asked for its tail.
    Idle,
    /// A source that cannot see its own reconnects is asked whether it is the same life.
    Audit,
    /// Neither replay nor snapshot can help.
    NoHistory,
    /// Neither a batch nor a successful probe for too long.
    LeaseExpired,
    /// The engine flushed its cache.
    Flushed(Seq),
    /// The last batch was lost and silence followed; a probe brought it back.
    TailLoss(Seq),
    /// Too many lives in a short time: quarantined.
    TwoPublishers,
    /// A batch came while the stream was not attached, or in quarantine.
    Unattached,
    /// A view that was kept goes on with the next batch of a source that is drained.
    Resumed(Seq),
    /// The view found a contradiction.
    Anomaly,
    /// The view could not keep all orphans.
    ParkingOverflow,
    /// A block hangs below one that was never told: the engine left a store out.
    StoreMissing,
    /// An operator asked for a return to a proven state.
    ResyncAsked,
    /// The engine's start time changed, or the source saw a new process.
    Restarted,
    /// The engine lets blocks go, or leaves stores out, without a word.
    Unannounced,
    /// Another reader takes the engine's events away.
    CompetingConsumer,
    /// The engine is not as its snapshot takes for granted.
    Disproved,
    /// The view was given up to keep the process within its limits.
    OverLimit,
    /// A view that was given up may be learnt again.
    Released,
    /// Other ranks of the instance deliver, this one never did.
    RankMissing,
    /// No bridge speaks for the log any more.
    BridgeSilent,
    /// A bridge speaks for the log again.
    Vouched,
    /// The log is ahead of the view, and nothing came: it is read.
    TailBehind(Seq),
    /// What a bridge has did not come over the log within a lease: the view is too old.
    LogBehind(Seq),
    /// The bridges believe more than we do: their view is fetched.
    Refetched,
    /// What the engine's journal no longer has came from another bridge's copy on the bus.
    HealedByTwin(Seq),
}

impl Fact {
    /// The label: metric value, test name and word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Fact::EndMarker => "end_marker",
            Fact::StaleEpoch => "stale_epoch",
            Fact::NewEpoch(_) => "new_epoch",
            Fact::DigestMismatch(_) => "digest_mismatch",
            Fact::Duplicate(_) => "duplicate",
            Fact::OverlapUnproven(_) => "overlap_unproven",
            Fact::Straddle(_) => "straddle",
            Fact::Rollback(_) => "rollback",
            Fact::Undecodable(_) => "undecodable",
            Fact::Reset(_) => "reset",
            Fact::FirstIsZero => "first_is_zero",
            Fact::JoinedLate(_) => "joined_late",
            Fact::Gap { .. } => "gap",
            Fact::Overflowed => "overflowed",
            Fact::HeldFull => "held_full",
            Fact::Truncated(_) => "truncated",
            Fact::Hole(_) => "hole",
            Fact::PermanentHole(_) => "permanent_hole",
            Fact::Silent => "silent",
            Fact::ReplayFailed => "replay_failed",
            Fact::EndOnly => "end_only",
            Fact::ReplayUnusable => "replay_unusable",
            Fact::Replayed => "replayed",
            Fact::StaleAnswer => "stale_answer",
            Fact::BarrierMissed => "barrier_missed",
            Fact::Busy => "busy",
            Fact::Short => "short",
            Fact::Inconsistent => "inconsistent",
            Fact::TooLarge => "too_large",
            Fact::SnapshotFailed => "snapshot_failed",
            Fact::Installed => "installed",
            Fact::Reattached => "reattached",
            Fact::Idle => "idle",
            Fact::Audit => "audit",
            Fact::NoHistory => "no_history",
            Fact::LeaseExpired => "lease_expired",
            Fact::Flushed(_) => "flushed",
            Fact::TailLoss(_) => "tail_loss",
            Fact::TwoPublishers => "two_publishers",
            Fact::Unattached => "unattached",
            Fact::Anomaly => "anomaly",
            Fact::ParkingOverflow => "parking_overflow",
            Fact::StoreMissing => "store_missing",
            Fact::ResyncAsked => "resync_asked",
            Fact::Restarted => "restarted",
            Fact::Unannounced => "unannounced",
            Fact::CompetingConsumer => "competing_consumer",
            Fact::Resumed(_) => "resumed",
            Fact::Disproved => "disproved",
            Fact::OverLimit => "over_limit",
            Fact::Released => "released",
            Fact::RankMissing => "rank_missing",
            Fact::BridgeSilent => "bridge_silent",
            Fact::Vouched => "vouched",
            Fact::TailBehind(_) => "tail_behind",
            Fact::LogBehind(_) => "log_behind",
            Fact::Refetched => "refetched",
            Fact::HealedByTwin(_) => "healed_by_twin",
        }
    }
}
