//! Engines with a tree, as SGLang: a clear at their start that no live reader sees, a life in the
//! topic (a draft), pages of two namespaces under one hash, and snapshots of hashes alone.

use std::collections::BTreeSet;

use kvbridge::{
    api::{Batch, SnapshotSupport},
    recovery::Action,
    schemas::{BlockHash, Event, Parent, Projection, SnapshotRecord, Tier},
    view::View,
};

use crate::{
    engine::{Profile, Radix, Residency, place_of},
    invariants::Violation,
    rng::Rng,
    world::view_settings,
};

impl Radix {
    /// One engine in five. Drawn apart, so that other seeds run as before.
    pub(crate) fn turn(profile: &mut Profile, seed: u64) {
        let mut rng = Rng::new(seed ^ 0x5247_4c41_4e47);
        if !rng.hit(2_000) || profile.drained {
            return;
        }
        let named = rng.hit(5_000);
        let bare = rng.hit(6_000);
        // One draft has both: a snapshot says of which life it is, and its marker too.
        let named = named || bare;
        profile.radix = Some(Radix { named, replay_named: named && rng.hit(5_000), bare });
        profile.epoch_on_wire = false;
        profile.groups = 1;
        profile.snapshot = bare;
        profile.host_tier &= !bare;
    }
}

/// What its snapshot is said to carry.
pub(crate) fn support() -> SnapshotSupport {
    SnapshotSupport {
        barrier: true,
        tiers: false,
        counts: false,
        namespaces: false,
        content: false,
        plain: true,
    }
}

/// The view of such a snapshot.
pub(crate) fn install(state: &Residency) -> View {
    let records = state.keys().map(|(hash, ..)| {
        let parent = match place_of(*hash) {
            (_, 0) => Parent::Root,
            _ => Parent::Block(BlockHash::from_u64(hash - 1)),
        };
        SnapshotRecord {
            hash: BlockHash::from_u64(*hash),
            parent,
            content: None,
            block_size: 0,
            tier: Tier::Device,
            group: None,
            count: 1,
            lora: None,
            salt: None,
            extra: None,
            partial: false,
            bigram: false,
            parked: false,
            hint: false,
        }
    });
    View::install(view_settings(), records.collect::<Vec<_>>()).expect("hashes install")
}

/// Blocks of which only a snapshot told.
#[derive(Clone, Default)]
pub(crate) struct Bare(BTreeSet<u64>);

impl Bare {
    /// Ahead of an action.
    pub(crate) fn follow(&mut self, action: &Action) {
        match action {
            Action::Apply(batch) => self.hear(batch),
            Action::Clear { .. } => self.0.clear(),
            _ => (),
        }
    }

    /// A snapshot was swapped in.
    pub(crate) fn installed(&mut self, view: &View) {
        let bare =
            |record: &SnapshotRecord| record.content.is_none() && record.parent != Parent::Unknown;
        let hash = |record: SnapshotRecord| Projection::Last8.apply(&record.hash);
        self.0 = view.snapshot().into_iter().filter(bare).map(hash).collect();
    }

    fn hear(&mut self, batch: &Batch) {
        for event in &batch.events {
            match event {
                Event::Stored(stored) => {
                    for block in &stored.blocks {
                        self.0.remove(&Projection::Last8.apply(&block.hash));
                    }
                }
                Event::Removed(removed) => {
                    for hash in &removed.hashes {
                        self.0.remove(&Projection::Last8.apply(hash));
                    }
                }
                Event::Cleared(_) => self.0.clear(),
                _ => (),
            }
        }
    }

    /// While one is held, a match by tokens would leave it out.
    pub(crate) fn check(&self, view: &View) -> Result<(), Violation> {
        if self.0.is_empty() || view.lacks_content() {
            return Ok(());
        }
        Err(Violation::new(format!("content is claimed, and {} blocks have none", self.0.len())))
    }
}
