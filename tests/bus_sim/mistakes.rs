//! Deliberate mistakes in how the log is written, kept and read. Each must be caught.

use kvbridge::recovery::Planted;

/// One way to build this wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A reader takes a clear by a bridge for a flush.
    RepairClearTrusted,
    /// A reader follows whichever life comes, also a lower one.
    EpochNotEqual,
    /// A reader does not care what bridges believe.
    UpstreamIgnored,
    /// A bridge that lost history says nothing of it.
    NothingOnResync,
    /// Whoever stored a snapshot last is the one that readers are sent to.
    LastWriterWins,
    /// A snapshot is stored without its counts.
    SnapshotWithoutCounts,
    /// What is missing is told by the seq of what comes first.
    RetentionByAppSeq,
    /// A bridge takes the newest name for its life's, unseen.
    AdoptedWithoutAnchor,
    /// A bridge gives its life a new name, whatever it is called.
    MintedWithoutComparing,
    /// The registry forgets.
    RegistryWithTtl,
    /// Batches share a message whose id is that of the first.
    BatchesShareMessage,
    /// What is believed of a view is told before the view is swapped in.
    AnnounceOvertakesInstall,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 12] = [
        Mistake::UpstreamIgnored,
        Mistake::NothingOnResync,
        Mistake::BatchesShareMessage,
        Mistake::AnnounceOvertakesInstall,
        Mistake::AdoptedWithoutAnchor,
        Mistake::MintedWithoutComparing,
        Mistake::RegistryWithTtl,
        Mistake::SnapshotWithoutCounts,
        Mistake::LastWriterWins,
        Mistake::RetentionByAppSeq,
        Mistake::EpochNotEqual,
        Mistake::RepairClearTrusted,
    ];

    /// What it is in a reader's machine.
    pub(crate) fn of_consumer(self) -> Option<Planted> {
        match self {
            Mistake::RepairClearTrusted => Some(Planted::TrustRepairClear),
            Mistake::EpochNotEqual => Some(Planted::EpochNotEqual),
            _ => None,
        }
    }
}
