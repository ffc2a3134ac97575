//! What the rest of the process is told of a replica's standing.

use std::sync::Arc;

use kvbridge_schemas::TierTrust;
use tracing::info;

use super::Driver;
use crate::{
    clock::Clock,
    pipeline::{FleetEvent, ReplicaStatus},
    recovery::TrustReason,
};

impl Driver {
    pub(super) fn stand(&mut self, (trust, reason): (TierTrust, TrustReason)) {
        self.told_at_ms = Clock::unix_ms();
        info!(
            replica = %self.key, trust = %trust.device, host = %trust.host,
            reason = reason.as_str(), epoch = %self.cursor.epoch, "trust"
        );
        self.metrics.readiness(trust.device);
        if self.told.0.device < trust.device {
            let now = self.outputs.clock.now();
            self.metrics.resynced(trust.device, now.0.saturating_sub(self.blind_since.0));
        }
    }

    pub(super) fn show(&mut self) {
        let blocks = self.view.block_counts();
        self.metrics.blocks(&blocks);
        let status = ReplicaStatus {
            trust: self.told.0,
            reason: self.told.1.as_str(),
            since_ms: self.told_at_ms,
            cursor: self.cursor,
            moved_at: self.moved_at,
            blocks,
            device_copies: self.view.device_copies(),
        };
        self.signs.set_replay_unusable(self.recovery.replay_unusable());
        let before = self.status.send_replace(status.clone());
        // A new life within one step: trust is as before, and everything it rests on is not.
        let told = |of: &ReplicaStatus| (of.trust, of.reason, of.cursor.epoch);
        if told(&before) != told(&status) {
            let (key, replica) = (self.key.clone(), Arc::clone(&self.replica));
            // Without a reader nothing is missed.
            drop(self.outputs.events.send(FleetEvent::Standing(key, replica, status)));
        }
    }
}
