//! What a driver is asked between two inputs. Each answer is of one cursor.

use kvbridge_adapters_api::SourceEvent;
use kvbridge_schemas::{Replica, SnapshotHeader};

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
            Command::Snapshot(answer) => drop(answer.send(self.cut())),
            Command::Checkpoint(answer) => drop(answer.send(self.checkpoint())),
            Command::Halt(answer) => {
                self.halted = true;
                answer.send(()).unwrap_or_default();
            }
        }
        None
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
