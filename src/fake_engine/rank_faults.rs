//! What is done to a rank when it is asked to fail.

use kvbridge_adapters_zmq::{Faults, Server};

use super::{Rank, now_s};
use crate::{
    clock::Clock,
    fake_engine::{
        control::{Fault, FaultError},
        encode::Stray,
        snapshots::Snapshots,
    },
};

impl Rank {
    pub(super) async fn fault(&mut self, fault: Fault) -> Result<(), FaultError> {
        match fault {
            Fault::Restart => {
                if let Some(server) = self.server.take() {
                    server.close().await;
                }
                self.new_life();
                if self.buffer.is_none() {
                    self.server = Some(Server::bind(self.serve.clone()).await?);
                }
                self.say_clears();
            }
            Fault::SilentRestart => {
                self.new_life();
                if let Some(server) = &self.server {
                    server.forget_journal();
                    server.set_topic(self.serve.topic.clone());
                    server.set_faults(Faults::default());
                    server.stall(false);
                }
                self.say_clears();
            }
            Fault::Drop { count } => self.next.dropped += count,
            Fault::Hole { count } => self.next.holes += count,
            Fault::Burn { count } => self.next.burnt += count,
            Fault::Poison { count } => self.next.poisoned += count,
            Fault::LeaveOut { count } => {
                if self.sink.is_none() {
                    return Err(FaultError::LeavesNothingOut);
                }
                self.next.left_out += count;
            }
            Fault::UndecodableEvent => self.next.strays.push(Stray::BadStore),
            Fault::UnknownTag => self.next.strays.push(Stray::UnknownTag),
            Fault::Burst { count } => self.burst(count),
            Fault::Stall { ms } => {
                self.stalled_until = Some(self.clock.now().plus(ms));
                self.stall(true);
            }
            Fault::Clear => {
                let has_word = self.buffer.is_none() && self.sink.is_none();
                if !has_word || !self.engine.reset(true) {
                    return Err(FaultError::InUse);
                }
                let events = self.engine.flush();
                self.publish(&events);
            }
            Fault::FreezeClock { on } => self.frozen = on.then(now_s),
            Fault::EndLost { on } => {
                self.serve.faults.end_lost = on;
                self.set_faults();
            }
            Fault::SlowReader { count } => {
                self.serve.faults.reply_count_max = count;
                self.set_faults();
            }
            Fault::SnapshotBusy { count } => self.snapshots()?.busy += count,
            Fault::SnapshotShort { count } => self.snapshots()?.short += count,
            Fault::SnapshotGarbled { count } => self.snapshots()?.garbled += count,
            Fault::Latch { .. } => return Err(FaultError::NoRanks),
            Fault::RestartTpRank { tp_rank } => {
                let started = self.started_ms.get_mut(tp_rank).ok_or(FaultError::NoMember)?;
                *started = Clock::unix_ms();
            }
        }
        Ok(())
    }

    fn snapshots(&mut self) -> Result<&mut Snapshots, FaultError> {
        self.snapshots.as_mut().ok_or(FaultError::NoSnapshots)
    }
}
