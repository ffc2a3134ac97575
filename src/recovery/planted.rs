//! Deliberate mistakes for the simulator to catch. Without the feature `planted` none can be
//! chosen.
#![cfg_attr(
    not(feature = "planted"),
    expect(dead_code, unreachable_pub, reason = "only the simulator chooses one")
)]

use super::Recovery;

/// One known way to build this machine wrong. A simulator that does not catch it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Planted {
    /// A gap asks from `next_seq` on: nothing ties the answer to the life the view is of.
    GapAsksNext,
    /// A rollback is looked for only while live.
    RollbackOnlyInLive,
    /// A batch below the cursor is dropped by its number, unread.
    OverlapByNumber,
    /// What a probe brought is not remembered, so its live copy looks like a restart.
    ProbeRecordsNoOverlap,
    /// An end marker counts as proof when nothing is held.
    EndTrusted,
    /// A lower bound that keeps the old view.
    PartialWithoutClear,
    /// A store that could not be read leaves `exact` standing.
    LostStoreKeepsExact,
    /// An unreadable body is asked for again and again.
    PoisonReplayed,
    /// A clear by a bridge counts as a flush.
    TrustRepairClear,
    /// Another epoch is a new one, even a lower one.
    EpochNotEqual,
    /// Old numbers are dropped before a restart is looked for.
    OldSeqFirst,
    /// Digests are not compared.
    DigestSkipped,
    /// A full buffer of live batches is simply emptied and the replay called done.
    HeldFullForgets,
    /// Silence is never looked into.
    NeverProbes,
    /// Trust has no lease.
    NoLease,
    /// An overflow of our own queue is ignored.
    OverflowIgnored,
    /// An audit compares the newest batch only: a life spliced in before it goes unseen.
    AuditComparesLast,
    /// A snapshot that says less than the engine knows is believed like one that says all.
    IncompleteInstallsExact,
    /// A kept view is believed again as soon as the stream is back.
    ReattachTrusted,
}

impl Planted {
    /// All of them.
    pub const ALL: [Planted; 19] = [
        Planted::GapAsksNext,
        Planted::RollbackOnlyInLive,
        Planted::OverlapByNumber,
        Planted::ProbeRecordsNoOverlap,
        Planted::EndTrusted,
        Planted::PartialWithoutClear,
        Planted::LostStoreKeepsExact,
        Planted::PoisonReplayed,
        Planted::TrustRepairClear,
        Planted::EpochNotEqual,
        Planted::OldSeqFirst,
        Planted::DigestSkipped,
        Planted::HeldFullForgets,
        Planted::NeverProbes,
        Planted::NoLease,
        Planted::OverflowIgnored,
        Planted::AuditComparesLast,
        Planted::IncompleteInstallsExact,
        Planted::ReattachTrusted,
    ];
}

impl Recovery {
    /// Whether this mistake is planted.
    pub(super) fn planted(&self, bug: Planted) -> bool {
        #[cfg(feature = "planted")]
        let planted = self.settings.planted == Some(bug);
        #[cfg(not(feature = "planted"))]
        let planted = {
            let Recovery { .. } = self;
            let _: Planted = bug;
            false
        };
        planted
    }
}
