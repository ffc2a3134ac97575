//! What is noted of a replica for those who look now and then: counts, never a decision.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use kvbridge_adapters_api::{Counters, Loss};
use kvbridge_schemas::{HashScheme, Seq};

use super::Changes;
use crate::{
    alarms::{Alarm, HitCounts},
    doctor::{DrainCounts, DrainSight, drain_cause},
    recovery::{Fact, Tick},
    slo::{Prediction, Served},
};

/// What is noted of a replica between two changes of its status: by its driver, and by the task
/// that reads its engine's metrics.
#[derive(Debug, Default)]
pub struct Signs {
    /// How it stood before.
    pub changes: Changes,
    received_at: AtomicU64,
    undecodable: AtomicU64,
    competing: AtomicU64,
    replay_unusable: AtomicBool,
    /// 0 = not known.
    pool_blocks: AtomicU64,
    /// The engine is not believed.
    pool_is_configured: bool,
    requests: AtomicU64,
    /// Tokens that the engine says it looked up in its cache, and those it had.
    engine_tokens: [AtomicU64; 2],
    /// Input and cached tokens that routers reported.
    told_tokens: [AtomicU64; 2],
    /// Of these, input, cached and predicted tokens of requests with a prediction.
    routed_tokens: [AtomicU64; 3],
    /// Requests that routers reported.
    told_requests: AtomicU64,
    /// Rollbacks, truncated replays, permanent holes.
    facts: [AtomicU64; 3],
    /// Least distance between the time of a batch and ours since the last look, plus one; 0 = no
    /// batch came.
    skew: AtomicU64,
    log_resets: AtomicU64,
    retention_passed: AtomicU64,
    /// Behind the seq at which the log was last found short of what was vouched for; 0 = never.
    behind: AtomicU64,
    tail_losses: AtomicU64,
    sinks_missed: AtomicU64,
    fan_out_missed: AtomicU64,
    snapshot_failures: AtomicU64,
    /// Of them, those without a success in between.
    snapshot_failures_in_a_row: AtomicU64,
    /// How its engine says that it hashes.
    hash_scheme: Mutex<Option<String>>,
    /// What is counted of taking its events, where they are taken.
    drain: OnceLock<Arc<Counters>>,
    /// What that looked like last, while the view was empty.
    drain_sight: Mutex<Option<DrainSight>>,
}

impl Signs {
    /// Nothing noted of a replica with that pool.
    pub fn new(pool_blocks: Option<u64>) -> Signs {
        let pool_is_configured = pool_blocks.is_some();
        let pool_blocks = AtomicU64::new(pool_blocks.unwrap_or(0));
        Signs { pool_blocks, pool_is_configured, ..Signs::default() }
    }

    /// A batch says how its engine hashes.
    pub(crate) fn hashed(&self, scheme: &HashScheme) {
        let HashScheme::Named(name) = scheme else { return };
        let mut known = self.hash_scheme.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() != Some(name) {
            *known = Some(name.clone());
        }
    }

    /// How its engine says that it hashes, if it does.
    pub fn hash_scheme(&self) -> Option<String> {
        self.hash_scheme.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its events are taken, and this is counted of it.
    pub(crate) fn is_drained(&self, counters: Arc<Counters>) {
        // A replica has one source; a second would be a new one with its own signs.
        drop(self.drain.set(counters));
    }

    /// What was counted of taking its events, where they are taken.
    pub fn drain_counts(&self) -> Option<DrainCounts> {
        self.drain.get().map(|counters| DrainCounts::of(counters))
    }

    /// What an empty view may follow from.
    pub(crate) fn set_drain_sight(&self, sight: Option<DrainSight>) {
        *self.drain_sight.lock().unwrap_or_else(PoisonError::into_inner) = sight;
    }

    /// What an empty view may follow from.
    pub fn drain_sight(&self) -> Option<DrainSight> {
        *self.drain_sight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an alarm follows from, by the id of its finding, where that can be told.
    pub fn cause_of(&self, alarm: Alarm) -> Option<&'static str> {
        let sight = self.drain_sight().filter(|_| alarm == Alarm::ViewEmptyUnderTraffic)?;
        drain_cause(&sight).map(|cause| cause.about().id)
    }

    /// What the engine says, in its metrics or its events; absent = as before.
    pub(crate) fn set_figures(&self, pool_blocks: Option<u64>, request_count: Option<u64>) {
        let pool_blocks = pool_blocks.filter(|_| !self.pool_is_configured);
        for (known, told) in [(&self.pool_blocks, pool_blocks), (&self.requests, request_count)] {
            if let Some(told) = told {
                known.store(told, Ordering::Relaxed);
            }
        }
    }

    /// Tokens that the engine's metrics say it looked up in its cache, and had.
    pub(crate) fn set_engine_tokens(&self, looked_up: Option<u64>, had: Option<u64>) {
        for (known, told) in self.engine_tokens.iter().zip([looked_up, had]) {
            if let Some(told) = told {
                known.store(told, Ordering::Relaxed);
            }
        }
    }

    /// Tokens that the engine's metrics say it looked up in its cache, and had; 0 where they
    /// are not read.
    pub fn engine_tokens(&self) -> (u64, u64) {
        let [looked_up, had] = self.engine_tokens.each_ref().map(|it| it.load(Ordering::Relaxed));
        (looked_up, had)
    }

    /// A router reported a request.
    pub(crate) fn served(&self, prediction: Prediction, served: Served) {
        let Served { input_tokens, cached_tokens, predicted_tokens, .. } = served;
        self.told_requests.fetch_add(1, Ordering::Relaxed);
        for (sum, tokens) in self.told_tokens.iter().zip([input_tokens, cached_tokens]) {
            sum.fetch_add(tokens, Ordering::Relaxed);
        }
        if let (Prediction::Routed, Some(predicted)) = (prediction, predicted_tokens) {
            let tokens = [input_tokens, cached_tokens, predicted];
            for (sum, tokens) in self.routed_tokens.iter().zip(tokens) {
                sum.fetch_add(tokens, Ordering::Relaxed);
            }
        }
    }

    /// What hit rates follow from. The engine's own figures win: they are of all its requests.
    pub fn hit_counts(&self) -> HitCounts {
        let (looked_up, had) = self.engine_tokens();
        let [told, told_cached] = self.told_tokens.each_ref().map(|it| it.load(Ordering::Relaxed));
        let (input, cached) = if looked_up > 0 { (looked_up, had) } else { (told, told_cached) };
        let [routed_input, routed_cached, routed_predicted] =
            self.routed_tokens.each_ref().map(|it| it.load(Ordering::Relaxed));
        HitCounts { input, cached, routed_input, routed_cached, routed_predicted }
    }

    /// How many blocks the engine's device holds, where the configuration or the engine tells.
    pub fn pool_blocks(&self) -> Option<u64> {
        Some(self.pool_blocks.load(Ordering::Relaxed)).filter(|pool| *pool > 0)
    }

    /// Requests that the engine has ended, where its metrics are read; else 0.
    pub fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Requests that routers reported.
    pub fn told_request_count(&self) -> u64 {
        self.told_requests.load(Ordering::Relaxed)
    }

    /// A live batch is dated so by its engine, unix µs; 0 = not at all.
    pub(crate) fn dated(&self, ts: u64, unix_ms: u64) {
        let skew = unix_ms.abs_diff(ts / 1_000).saturating_add(1);
        let known = self.skew.load(Ordering::Relaxed);
        if ts > 0 && (known == 0 || skew < known) {
            self.skew.store(skew, Ordering::Relaxed);
        }
    }

    /// The least distance since this was last asked; absent = no batch came.
    pub(crate) fn take_skew(&self) -> Option<u64> {
        self.skew.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// How often the engine's numbers went back or came again for other batches, its journal did
    /// not reach back, and batches were lost for good.
    pub fn fact_counts(&self) -> [u64; 3] {
        self.facts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// A live batch came.
    pub(crate) fn received(&self, now: Tick, loss: Loss) {
        self.received_at.store(now.0, Ordering::Relaxed);
        if loss != Loss::Nothing {
            self.undecodable.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_replay_unusable(&self, unusable: bool) {
        self.replay_unusable.store(unusable, Ordering::Relaxed);
    }

    /// When the last live batch came.
    pub fn received_at(&self) -> Tick {
        Tick(self.received_at.load(Ordering::Relaxed))
    }

    /// Live batches of which something could not be read.
    pub fn undecodable_count(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }

    /// How often another reader was seen to take events away.
    pub fn competing_count(&self) -> u64 {
        self.competing.load(Ordering::Relaxed)
    }

    /// The source's replay was found to be of no use.
    pub fn replay_unusable(&self) -> bool {
        self.replay_unusable.load(Ordering::Relaxed)
    }

    /// The log was deleted or made anew, or lost what it had: its readers start over.
    pub(crate) fn log_was_reset(&self) {
        self.log_resets.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the log was deleted or made anew, or lost what it had.
    pub fn log_reset_count(&self) -> u64 {
        self.log_resets.load(Ordering::Relaxed)
    }

    /// A sink that tells this replica dropped messages.
    pub(crate) fn sink_has_missed(&self) {
        self.sinks_missed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a sink that tells this replica dropped messages.
    pub fn sink_missed_count(&self) -> u64 {
        self.sinks_missed.load(Ordering::Relaxed)
    }

    /// The fan-out dropped messages, and some may have been this replica's.
    pub(crate) fn fan_out_has_missed(&self) {
        self.fan_out_missed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the fan-out dropped messages of this replica.
    pub fn fan_out_missed_count(&self) -> u64 {
        self.fan_out_missed.load(Ordering::Relaxed)
    }

    /// Messages went from the log before they were read.
    pub(crate) fn retention_has_passed(&self) {
        self.retention_passed.fetch_add(1, Ordering::Relaxed);
    }

    /// How often messages went from the log before they were read.
    pub fn retention_passed_count(&self) -> u64 {
        self.retention_passed.load(Ordering::Relaxed)
    }

    /// What recovery said, as far as an alarm follows from it.
    pub(crate) fn noted(&self, fact: Fact) {
        let [rollbacks, truncations, holes] = &self.facts;
        let count = |of: &AtomicU64| {
            of.fetch_add(1, Ordering::Relaxed);
        };
        match fact {
            Fact::Rollback(_) | Fact::DigestMismatch(_) => count(rollbacks),
            Fact::Truncated(_) => count(truncations),
            Fact::PermanentHole(_) => count(holes),
            Fact::TailBehind(seq) => self.tail_is_behind(seq),
            // An engine loses its last batch as well, and a probe repairs that.
            Fact::TailLoss(_) if self.behind.swap(0, Ordering::Relaxed) > 0 => {
                self.tail_losses.fetch_add(1, Ordering::Relaxed);
            }
            Fact::CompetingConsumer => {
                self.competing.fetch_add(1, Ordering::Relaxed);
            }
            Fact::SnapshotFailed => self.snapshot_failed(),
            Fact::Installed => self.snapshot_worked(),
            _ => (),
        }
    }

    /// The log was read for what is vouched for. At the same place again: it is not there.
    fn tail_is_behind(&self, seq: Seq) {
        let place = seq.0.saturating_add(1);
        if self.behind.swap(place, Ordering::Relaxed) == place {
            self.tail_losses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often batches that a bridge vouched for did not come.
    pub fn tail_loss_count(&self) -> u64 {
        self.tail_losses.load(Ordering::Relaxed)
    }

    /// A view could not be stored on the bus or had from it.
    pub(crate) fn snapshot_failed(&self) {
        self.snapshot_failures.fetch_add(1, Ordering::Relaxed);
        self.snapshot_failures_in_a_row.fetch_add(1, Ordering::Relaxed);
    }

    /// One could.
    pub(crate) fn snapshot_worked(&self) {
        self.snapshot_failures_in_a_row.store(0, Ordering::Relaxed);
    }

    /// How often not, ever and without a success in between.
    pub fn snapshot_failure_counts(&self) -> (u64, u64) {
        let counts = [&self.snapshot_failures, &self.snapshot_failures_in_a_row];
        let [ever, in_a_row] = counts.map(|count| count.load(Ordering::Relaxed));
        (ever, in_a_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_lost_when_reading_the_log_does_not_bring_it() {
        let signs = Signs::default();
        signs.noted(Fact::TailLoss(Seq(4)));
        assert_eq!(signs.tail_loss_count(), 0, "an engine's, and a probe brought it");
        signs.noted(Fact::TailBehind(Seq(4)));
        signs.noted(Fact::TailBehind(Seq(9)));
        assert_eq!(signs.tail_loss_count(), 0, "it came");
        signs.noted(Fact::TailBehind(Seq(9)));
        assert_eq!(signs.tail_loss_count(), 1, "the log does not have it");
        signs.noted(Fact::TailLoss(Seq(9)));
        assert_eq!(signs.tail_loss_count(), 2, "it was there, and did not come live");
    }

    #[test]
    fn a_success_ends_a_row_of_failures() {
        let signs = Signs::default();
        signs.noted(Fact::SnapshotFailed);
        signs.snapshot_failed();
        assert_eq!(signs.snapshot_failure_counts(), (2, 2));
        signs.noted(Fact::Installed);
        signs.snapshot_failed();
        assert_eq!(signs.snapshot_failure_counts(), (3, 1));
    }
}
