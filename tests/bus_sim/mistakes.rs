//! Deliberate mistakes in how the log is written, kept and read. Each must be caught.
//!
//! That a clear by a bridge is no flush is the other simulator's to show: what a bridge of this
//! version lost it says with a reset, so no such clear is ever on a log here.

use kvbridge::recovery::Planted;

/// One way to build this wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A reader follows whichever life comes, also a lower one.
    EpochNotEqual,
    /// A reader does not care what bridges believe.
    UpstreamIgnored,
    /// A reader does not care how far bridges' views are: the end of the log is enough.
    ViewsIgnored,
    /// A bridge that lost history says nothing of it.
    NothingOnResync,
    /// Whoever stored a snapshot last is the one that readers are sent to.
    LastWriterWins,
    /// A snapshot is stored without its counts.
    SnapshotWithoutCounts,
    /// A snapshot is stored without what keeps equal tokens apart.
    SnapshotWithoutSalt,
    /// A bridge writes on, although another decoder wrote what is there.
    ContentIgnored,
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
    pub(crate) const ALL: [Mistake; 14] = [
        Mistake::UpstreamIgnored,
        Mistake::NothingOnResync,
        Mistake::BatchesShareMessage,
        Mistake::AnnounceOvertakesInstall,
        Mistake::AdoptedWithoutAnchor,
        Mistake::MintedWithoutComparing,
        Mistake::RegistryWithTtl,
        Mistake::SnapshotWithoutCounts,
        Mistake::SnapshotWithoutSalt,
        Mistake::ContentIgnored,
        Mistake::LastWriterWins,
        Mistake::RetentionByAppSeq,
        Mistake::EpochNotEqual,
        Mistake::ViewsIgnored,
    ];

    /// What it is in a reader's machine.
    pub(crate) fn of_consumer(self) -> Option<Planted> {
        match self {
            Mistake::EpochNotEqual => Some(Planted::EpochNotEqual),
            _ => None,
        }
    }
}
