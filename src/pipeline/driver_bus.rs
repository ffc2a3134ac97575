//! A driver whose bus takes nothing more: it neither reads its source nor steps its recovery,
//! answers whoever asks, and after a while says that its view is old.

use std::sync::Arc;

use kvbridge_adapters_api::{AnswerPart, Batch, SourceEvent};
use kvbridge_schemas::{Cursor, Engine, Envelope, Replica, TierTrust, Trust};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Driver;
use crate::{
    bus::{LogWriter, Offered},
    config::limits::BUS_BLOCKED_MAX,
    recovery::{Fact, Input, PhaseKind, TrustReason},
    shared_log::events_of,
};

/// The reason shown while a full bus holds the driver up.
const BLOCKED: &str = "bus_blocked";

/// Writes what was left out, when there is room; never ready when nothing was.
pub(super) async fn catch_up(
    log: Option<&mut LogWriter>,
    cursor: Cursor,
    (trust, reason): (TierTrust, TrustReason),
) {
    match log {
        Some(log) if log.wants_room(cursor, trust.device) => {
            log.room(cursor, trust.device, reason.as_str()).await;
        }
        _ => std::future::pending().await,
    }
}

impl Driver {
    pub(super) fn envelope(&self, batch: Batch) -> Envelope {
        Envelope {
            replica: Replica::clone(&self.replica),
            epoch: self.cursor.epoch,
            incarnation: batch.incarnation,
            seq: batch.seq,
            span: batch.span,
            digest: batch.digest,
            trust: self.told.0.device,
            ts: batch.ts,
            engine: Engine { kind: self.engine.clone(), format: batch.format.to_owned() },
            hash: batch.hash,
            events: events_of(batch.events, batch.loss),
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.log.as_ref().is_some_and(LogWriter::is_blocked)
    }

    /// Until there is room; false = stopped. Recovery must not be stepped meanwhile: its deadlines
    /// would pass unanswered, because the answers wait in the source that is not read.
    pub(super) async fn wait_for_bus(&mut self, stop: &CancellationToken) -> bool {
        let old = tokio::time::sleep(BUS_BLOCKED_MAX);
        tokio::pin!(old);
        let mut said = false;
        loop {
            let (cursor, trust) = (self.cursor, self.told.0.device);
            let reason = if said { BLOCKED } else { self.told.1.as_str() };
            let Some(log) = &mut self.log else { return true };
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                offered = log.room(cursor, trust, reason) => if offered == Offered::Taken { break },
                () = &mut old, if !said => {
                    said = true;
                    self.grow_old();
                }
                Some(command) = self.commands.recv() => {
                    // What steps recovery comes first when the bus takes messages again.
                    let input = self.asked(command);
                    // The same wish twice is one wish: what waits here is bounded by their kinds.
                    self.inputs.extend(input.filter(|input| !self.inputs.contains(input)));
                },
            }
        }
        if said {
            info!(replica = %self.key, "the bus takes messages again");
            // Trust comes back with the generation of the withdrawal.
            self.publish().await;
        }
        true
    }

    /// The end: what waits for the bus is handed over.
    pub(super) async fn finish(&mut self) {
        self.metrics.readiness(Trust::None);
        if let Some(log) = &mut self.log {
            log.finish().await;
        }
    }

    /// The log's life goes on if the engine has just said so.
    pub(super) fn proven(&self, fact: Fact) {
        if let (Fact::Replayed, Some(log)) = (fact, &self.log) {
            log.proven();
        }
    }

    /// A view that lacks something asks for it; other bridges may have written it already.
    pub(super) fn behind_the_log(&self) {
        let lacks = matches!(self.recovery.phase(), PhaseKind::Verifying | PhaseKind::Replaying);
        if let (true, Some(log)) = (lacks, &self.log) {
            log.look_again();
        }
    }

    /// What the engine is asked on behalf of the log.
    pub(super) fn wish(&mut self) -> Option<Input> {
        let stands = self.told.0.device > Trust::None;
        let seq = self.log.as_mut().and_then(|log| log.wish(stands))?;
        Some(Input::LookFrom(seq))
    }

    /// What the author of a log must know before the view does: a new connection, and a replayed
    /// batch that the view has and the log lacks.
    pub(super) fn tell_author(&mut self, event: &SourceEvent) {
        if let (SourceEvent::Attached, Some(log)) = (event, &mut self.log) {
            log.attached(self.recovery.anchored(), self.recovery.is_blind());
        }
        let SourceEvent::Answer { part: AnswerPart::Batch(batch), .. } = event else { return };
        if self.log.as_ref().is_none_or(|log| !log.wants(batch)) {
            return;
        }
        let envelope = Arc::new(self.envelope(batch.clone()));
        if let Some(log) = &mut self.log {
            log.answered(envelope);
        }
    }

    fn grow_old(&mut self) {
        warn!(replica = %self.key, "the bus is full: the source is not read, the view grows old");
        if let Some(log) = &mut self.log {
            // Readers of the bus must not believe a view either that follows no engine.
            log.withdrawn(Trust::None, BLOCKED);
        }
        self.generation = self.outputs.index.withdraw(self.slot, BLOCKED);
        self.blind_since = self.outputs.clock.now();
        self.told.0 = TierTrust::default();
        self.status.send_modify(|status| {
            status.trust = TierTrust::default();
            status.reason = BLOCKED;
        });
        self.metrics.readiness(Trust::None);
        self.feed();
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{EngineKind, Epoch, Seq};
    use tokio::sync::broadcast;

    use super::*;
    use crate::{
        bus::{Embedded, LogLife},
        config::SpoolFull,
        pipeline::driver::tests::at_rest,
        shared_log::{Lane, Name, Named},
        telemetry::BusLogMetrics,
    };

    #[tokio::test]
    async fn a_bridge_that_a_full_bus_holds_up_vouches_for_nothing() {
        let replica = Replica { model: "m".into(), instance: "h:1".into(), rank: 0 };
        let metrics = BusLogMetrics::register(&replica.key());
        let lane = Lane::new(replica.clone(), EngineKind::Vllm, Arc::from("b"));
        let life = Arc::new(LogLife::new(replica, String::new(), Cursor::default()));
        let writer = Embedded::new(broadcast::Sender::new(1));
        let mut log =
            LogWriter::new(lane, Box::new(writer), SpoolFull::Block, metrics, Arc::from("b"))
                .with_life(Arc::clone(&life));
        let at = Cursor { epoch: Epoch(9), next_seq: Seq(0) };
        let name = Named { local: Epoch(0), log: at, missing: Vec::new() };
        life.call(Epoch(0), Name::Named(name));
        log.settled(Cursor::default(), Trust::Exact, "contiguous");
        let said = || life.status("b", 0).map(|status| (status.trust, status.reason));
        assert_eq!(said(), Some((Trust::Exact, "contiguous".to_owned())));
        let mut driver = at_rest(log);
        driver.grow_old();
        assert_eq!(said(), Some((Trust::None, BLOCKED.to_owned())));
    }
}
