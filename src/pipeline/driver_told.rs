//! What the rest of the process is told of a replica's standing.

use std::sync::Arc;

use kvbridge_schemas::TierTrust;
use tracing::info;

use super::Driver;
use crate::{
    clock::Clock,
    index::Published,
    pipeline::{Change, FleetEvent, HashWatch, IndexWrite, ReplicaStatus},
    recovery::TrustReason,
    view::Delta,
};

impl Driver {
    /// Queues a change with what was believed before it.
    pub(super) fn write(&mut self, deltas: Vec<Delta>) {
        self.note_changes(&deltas);
        let published = self.published();
        self.writes.push(IndexWrite::Apply { slot: self.slot, deltas, published });
    }

    pub(super) fn published(&self) -> Published {
        Published {
            cursor: self.cursor,
            trust: self.told.0,
            reason: self.told.1.as_str(),
            at_ms: Clock::unix_ms(),
            generation: self.generation,
            no_content: self.view.lacks_content(),
            host_is_hint: self.view.host_is_hint(),
        }
    }

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
            hashes: self.hashes.as_ref().and_then(HashWatch::standing),
            performed: self.performed,
        };
        self.signs.set_replay_unusable(self.recovery.replay_unusable());
        let before = self.status.send_replace(status.clone());
        // A new life within one step: trust is as before, and everything it rests on is not.
        let told = |of: &ReplicaStatus| (of.trust, of.reason, of.cursor.epoch);
        if told(&before) != told(&status) {
            self.signs.changes.note(Change {
                at_ms: Clock::unix_ms(),
                trust: status.trust.device,
                reason: status.reason,
                epoch: status.cursor.epoch,
            });
            let (key, replica) = (self.key.clone(), Arc::clone(&self.replica));
            // Without a reader nothing is missed.
            drop(self.outputs.events.send(FleetEvent::Standing(key, replica, status)));
        }
    }
}
