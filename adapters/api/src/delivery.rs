//! What comes out of a source: something to decide on, or records on their way past the decision.

use kvbridge_schemas::SnapshotRecord;

use crate::{Attempt, EngineMetrics, SourceEvent};

/// One thing that a source delivers.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// Something for recovery to decide on.
    Event(SourceEvent),
    /// Some of the records of a snapshot that was asked for, in any order. They go into a shadow
    /// view past the core, which is told only how many; a whole snapshot is never in one place
    /// beside that view. A source delivers them in the place of
    /// [`SnapshotRecords`](crate::AnswerPart::SnapshotRecords): the count that the core hears is
    /// that of records which were folded.
    Records {
        /// The request they answer.
        attempt: Attempt,
        /// One chunk; how large is the source's choice, and its own bound.
        records: Vec<SnapshotRecord>,
    },
    /// What the engine says of itself in its stream; absent figures are as before.
    Figures(EngineMetrics),
}

impl From<SourceEvent> for Delivery {
    fn from(event: SourceEvent) -> Delivery {
        Delivery::Event(event)
    }
}
