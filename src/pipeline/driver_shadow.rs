//! A snapshot on its way into the view: records are folded as they come, in a shadow view beside
//! the one in force, which stands until recovery finds the snapshot whole and swaps them.

use kvbridge_adapters_api::{AnswerPart, Attempt, SnapshotRefusal, SourceEvent};
use kvbridge_schemas::{Cursor, Epoch, Seq, SnapshotRecord};
use tracing::error;

use super::Driver;
use crate::{
    config::limits::SNAPSHOT_RECORDS_PER_BLOCK,
    pipeline::IndexWrite,
    recovery::Input,
    view::{View, ViewSettings},
};

/// What one attempt has brought so far.
pub(super) struct Shadow {
    attempt: Attempt,
    view: View,
    record_count: u64,
}

impl Shadow {
    pub(super) fn new(attempt: Attempt, settings: ViewSettings) -> Shadow {
        Shadow { attempt, view: View::new(settings), record_count: 0 }
    }

    /// Folds a chunk. After a refusal the shadow is not to be used.
    fn fold(
        &mut self,
        records: Vec<SnapshotRecord>,
        blocks_max: u64,
    ) -> Result<u64, SnapshotRefusal> {
        let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
        let record_count_max = blocks_max.saturating_mul(SNAPSHOT_RECORDS_PER_BLOCK);
        self.record_count = self.record_count.saturating_add(count);
        if self.record_count > record_count_max {
            return Err(SnapshotRefusal::TooLarge);
        }
        for record in records {
            self.view.install_record(record).map_err(|_| SnapshotRefusal::Inconsistent)?;
            if self.view.block_count() > blocks_max {
                return Err(SnapshotRefusal::TooLarge);
            }
        }
        Ok(count)
    }
}

impl Driver {
    /// Folds records, and says what recovery hears of them: how many, or why none of them count.
    pub(super) fn records(&mut self, attempt: Attempt, records: Vec<SnapshotRecord>) -> Input {
        let blocks_max = self.blocks_max();
        let part = match self.shadow.as_mut().filter(|shadow| shadow.attempt == attempt) {
            Some(shadow) => match shadow.fold(records, blocks_max) {
                Ok(count) => AnswerPart::SnapshotRecords(count),
                Err(refusal) => {
                    self.shadow = None;
                    AnswerPart::SnapshotRefused(refusal)
                }
            },
            // Of a request that is no longer open: recovery counts it as that.
            None => AnswerPart::Failed,
        };
        Input::Source(SourceEvent::Answer { attempt, part })
    }

    /// Swaps the shadow in: readers see the old view or the new one, never a mixture.
    pub(super) fn install(&mut self, attempt: Attempt, epoch: Epoch, resume_seq: Seq) {
        let Some(shadow) = self.shadow.take().filter(|shadow| shadow.attempt == attempt) else {
            // Recovery installs only what it asked for and saw whole; were that ever untrue, the
            // view must not be taken for the snapshot's.
            error!(replica = %self.key, %attempt, %epoch, "install without its shadow view");
            return self.inputs.push_back(Input::Resync);
        };
        if let Some(log) = &mut self.log {
            // What the log tells its readers does not lead to this view.
            log.cleared();
        }
        self.view = shadow.view;
        self.note_replaced();
        self.cursor = Cursor { epoch, next_seq: resume_seq };
        let (links, published) = (self.view.as_deltas().collect(), self.published());
        self.writes.push(IndexWrite::Replace { slot: self.slot, links, published });
    }
}
