//! What the state machine is told at birth: the source's abilities, limits, and the clock's origin.

use kvbridge_adapters_api::{Capabilities, Continuity, Replay};
use kvbridge_schemas::Epoch;

/// Everything that does not change while the machine lives.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the source can do.
    pub capabilities: Capabilities,
    /// Wall clock at `Tick(0)`, unix ms: an epoch without a wire id is minted from it.
    pub unix_ms_at_zero: u64,
    /// No epoch at or below this one is minted (the last one known from before this process).
    pub epoch_floor: Epoch,
    /// Spreads retries of replicas that fail together.
    pub jitter_seed: u64,
    /// Bounds and times.
    pub limits: Limits,
    /// A deliberate mistake, for the simulator to catch.
    #[cfg(feature = "planted")]
    pub planted: Option<super::Planted>,
}

impl Settings {
    /// Settings with default limits.
    pub fn new(capabilities: Capabilities, unix_ms_at_zero: u64) -> Settings {
        Settings {
            capabilities,
            unix_ms_at_zero,
            epoch_floor: Epoch(0),
            jitter_seed: 0,
            limits: Limits::default(),
            #[cfg(feature = "planted")]
            planted: None,
        }
    }

    pub(super) fn has_replay(&self) -> bool {
        self.capabilities.replay == Replay::Journal
    }

    pub(super) fn unproven(&self) -> bool {
        self.capabilities.continuity == Continuity::Unproven
    }
}

/// Bounds and times. Each says what breaks when it is too small, and what when too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Digests kept of the newest batches. Too small: an overlap longer than this cannot be
    /// compared and costs a probe. Too large: 24 bytes each per replica.
    pub digest_ring: usize,
    /// Batches compared at the head of a replay. One suffices for an engine whose payload holds a
    /// running clock; three survive a clock that stands still. Zero would be the classic mistake.
    pub verify_run: u64,
    /// Live batches held while a replay or snapshot is open. Too small: the journal is asked twice.
    pub held_batches_max: usize,
    /// The same bound in payload bytes.
    pub held_bytes_max: u64,
    /// A replay or snapshot without progress for this long is given up. Too small: a busy engine's
    /// answer is cut (it serves replays between steps). Too large: trust stays withdrawn longer.
    pub replay_deadline_ms: u64,
    /// Attempts without progress before history counts as lost.
    pub attempts_max: u32,
    /// Least time between two replay requests; doubles while trouble lasts. A replay runs on the
    /// engine's publisher thread and pauses its live stream, so a storm of them hurts serving.
    pub replay_interval_ms: u64,
    /// Where the doubling ends.
    pub replay_interval_ms_max: u64,
    /// Wait for a first live batch before asking an engine that may be idle for its history.
    pub join_grace_ms: u64,
    /// Silence after which the tail is probed.
    pub probe_after_ms: u64,
    /// Time between audits of a source that cannot see its own reconnects, also under traffic.
    pub audit_ms: u64,
    /// Without a batch or a successful probe for this long, nothing is proven any more.
    pub lease_ms: u64,
    /// How long a batch that a probe brought may still come live before it counts as lost.
    pub tail_wait_ms: u64,
    /// Least time between two views fetched because the bridges believe more than we do. Too
    /// small: a view that stays behind is fetched again and again. Too large: a lower bound beside
    /// an exact bridge for that long.
    pub refetch_ms: u64,
    /// More lives than this within the window are two publishers on one stream.
    pub epoch_flap_max: usize,
    /// The window of `epoch_flap_max`.
    pub epoch_flap_window_ms: u64,
    /// First quarantine after flapping; doubles up to an hour.
    pub quarantine_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            digest_ring: 4_096,
            verify_run: 3,
            held_batches_max: 4_096,
            held_bytes_max: 64 << 20,
            replay_deadline_ms: 5_000,
            attempts_max: 5,
            replay_interval_ms: 50,
            replay_interval_ms_max: 5_000,
            join_grace_ms: 250,
            probe_after_ms: 10_000,
            audit_ms: 10_000,
            lease_ms: 60_000,
            tail_wait_ms: 1_000,
            refetch_ms: 30_000,
            epoch_flap_max: 5,
            epoch_flap_window_ms: 60_000,
            quarantine_ms: 10_000,
        }
    }
}
