//! What kinds of engine there are, and what their sources promise.

use kvbridge::api::{Capabilities, Continuity, Drain, Removal, Replay, SnapshotSupport};

use crate::{engine::Profile, radix, rng::Rng};

/// The kind of engine of a seed.
pub(crate) fn profile(seed: u64, rng: &mut Rng) -> Profile {
    let profile = drawn(rng);
    // Drawn apart: seeds that were pinned before there were such sources keep their runs.
    let mut apart = Rng::new(seed.rotate_left(29));
    let (drained, counts) = (apart.hit(1_000), !apart.hit(3_000));
    if !drained {
        return Profile { counts, ..profile };
    }
    // What one reader has drained no other sees, and nothing of it is kept.
    Profile {
        drained,
        epoch_on_wire: false,
        replay: false,
        snapshot: false,
        unproven: false,
        ..profile
    }
}

fn drawn(rng: &mut Rng) -> Profile {
    let snapshot = rng.hit(1_500);
    Profile {
        epoch_on_wire: rng.hit(2_500),
        journal_max: [5, 40, 10_000][usize::try_from(rng.below(3)).unwrap()],
        host_tier: rng.hit(4_000),
        groups: 1 + u32::from(rng.hit(3_000)),
        pool: 8 + usize::try_from(rng.below(16)).unwrap(),
        frozen_clock: rng.hit(2_000),
        replay: rng.hit(8_500),
        snapshot,
        unproven: rng.hit(2_500),
        drained: false,
        counts: true,
        radix: None,
    }
}

/// What its source promises.
pub(crate) fn capabilities(profile: &Profile) -> Capabilities {
    Capabilities {
        epoch_on_wire: profile.epoch_on_wire,
        replay: if profile.replay { Replay::Journal } else { Replay::Absent },
        snapshot: profile.snapshot.then_some(if profile.radix.is_some() {
            radix::support()
        } else {
            SnapshotSupport {
                barrier: true,
                tiers: true,
                counts: profile.counts,
                namespaces: true,
                content: true,
                plain: false,
            }
        }),
        continuity: if profile.unproven { Continuity::Unproven } else { Continuity::Proven },
        removal: Removal::PerCopy,
        clear_scope: profile.clear_scope(),
        drain: if profile.drained { Drain::Destructive } else { Drain::Shared },
        one_hash_per_block: true,
    }
}
