//! What a driver is asked between two inputs. Each answer is of one cursor.

use kvbridge_adapters_api::{Drain, SourceEvent};
use kvbridge_schemas::{Replica, SnapshotHeader};
use tokio::sync::oneshot;

use super::Driver;
use crate::{
    pipeline::{Command, ViewCut},
    recovery::Input,
};

impl Driver {
    /// Answers, or says what follows for the state machine.
    pub(super) fn asked(&mut self, command: Command) -> Option<Input> {
        // Whoever asked may have gone; then nobody misses the answer.
        match command {
            Command::Resync => return (!self.halted).then_some(Input::Resync),
            Command::OverLimit => return (!self.halted).then_some(Input::OverLimit),
            Command::Release => return (!self.halted).then_some(Input::Release),
            Command::RankMissing(missing) => {
                return (!self.halted).then_some(Input::RankMissing(missing));
            }
            Command::Restarted => {
                return (!self.halted).then_some(Input::Source(SourceEvent::Restarted));
            }
            Command::Tell => {
                self.note_replaced();
                self.feed();
            }
            Command::Snapshot(answer) => drop(answer.send(self.cut())),
            Command::Checkpoint(answer) => drop(answer.send(self.checkpoint())),
            Command::Halt(answer) => self.halt(answer),
        }
        None
    }

    /// Tells the source what view it feeds. An engine that is drained names neither tier nor
    /// descendants of what it removes: its source must know what is resident.
    pub(super) fn begin(&mut self, is_kept: bool) {
        let drained = self.source.capabilities().drain == Drain::Destructive;
        let kept = (is_kept && drained).then(|| (self.cursor.next_seq, self.view.snapshot()));
        self.source.begin(kept);
    }

    /// Nothing more is read, but for what is nowhere else: an engine that is drained has forgotten
    /// what it handed over.
    fn halt(&mut self, answer: oneshot::Sender<()>) {
        if !self.halted && !self.source_ended && self.source.wind_up() {
            self.winds_up = Some(answer);
            return;
        }
        self.halted = true;
        answer.send(()).unwrap_or_default();
    }

    /// Whether the source ended because it was wound up: all it had was read.
    pub(super) fn has_wound_up(&mut self) -> bool {
        let Some(answer) = self.winds_up.take() else { return false };
        (self.halted, self.source_ended) = (true, true);
        answer.send(()).unwrap_or_default();
        true
    }

    fn cut(&self) -> ViewCut {
        ViewCut {
            header: SnapshotHeader {
                replica: Replica::clone(&self.replica),
                epoch: self.cursor.epoch,
                resume_seq: self.cursor.next_seq,
                bus_seq: None,
                last_digest: self.recovery.digests().last().map(|(_, digest)| digest),
                trust: self.told.0.device,
                block_count: 0,
                state: None,
            },
            view: self.view.clone(),
        }
    }

    fn checkpoint(&self) -> ViewCut {
        let mut cut = self.cut();
        cut.header.block_count = cut.view.record_count();
        if let Some(checkpoint) = self.recovery.checkpoint(&self.fold) {
            cut.header.trust = checkpoint.trust;
            cut.header.state = Some(checkpoint.state);
        }
        cut
    }
}
