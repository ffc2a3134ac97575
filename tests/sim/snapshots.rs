//! Snapshots as the model's engines give them.

use kvbridge::{
    api::{AnswerPart, Attempt, SnapshotIntro, SnapshotRefusal},
    schemas::{BlockHash, Group, GroupKind, Parent, SnapshotRecord, TierTrust, Trust},
    view::View,
};

use crate::{
    engine::{Profile, Residency},
    faults::Fault,
    radix,
    world::{World, view_settings},
};

impl World {
    pub(crate) fn serve_snapshot(&mut self, attempt: Attempt) {
        let at = self.now + 2 + self.rng.below(30);
        if self.faults.strike(Fault::Busy, &mut self.rng) {
            let part = AnswerPart::SnapshotRefused(SnapshotRefusal::Busy);
            return self.answers.push(at, attempt, part);
        }
        let bare = self.engine.profile.radix.is_some_and(|radix| radix.bare);
        let state = self.engine.state();
        let shadow =
            if bare { radix::install(&state) } else { install(&state, &self.engine.profile) };
        let records = shadow.snapshot().len() as u64;
        let barrier = self.engine.barrier(self.now);
        let intro = SnapshotIntro {
            epoch: barrier.epoch,
            incarnation: barrier.incarnation.clone(),
            // Whether the marker itself is covered differs among engines.
            resume_seq: if bare { barrier.next_seq() } else { barrier.seq },
            last_digest: None,
            record_count: records,
            barrier: Some(barrier.seq),
            trust: TierTrust::all(Trust::Exact),
        };
        let faults = self.faults.clone();
        self.live.send(self.now, barrier, &faults, &mut self.rng);
        self.shadows.push_back((attempt, shadow));
        let sent = if faults.strike(Fault::Short, &mut self.rng) && records > 0 {
            records - 1
        } else {
            records
        };
        self.answers.push(at, attempt, AnswerPart::SnapshotIntro(intro));
        self.answers.push(at + 1, attempt, AnswerPart::SnapshotRecords(sent));
        self.answers.push(at + 2, attempt, AnswerPart::SnapshotEnd);
    }
}

fn install(state: &Residency, profile: &Profile) -> View {
    let records = state.iter().map(|((hash, tier, group), count)| SnapshotRecord {
        hash: BlockHash::from_u64(*hash),
        parent: Parent::Unknown,
        content: None,
        block_size: 0,
        tier: tier.clone(),
        group: (profile.groups > 1).then(|| Group {
            index: *group,
            kind: (*group > 0).then_some(GroupKind::SlidingWindow),
            window: None,
        }),
        count: if profile.counts { *count } else { 1 },
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    });
    View::install(view_settings(), records.collect::<Vec<_>>()).expect("the model's state installs")
}
