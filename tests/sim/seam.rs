//! Two lives that no byte on the wire tells apart.
//!
//! An engine whose clock stands still may begin its next life with batches that it published
//! before. Whoever asks for its journal compares up to three of them. A journal that has lost the
//! first of these three, and of which the rest is equal byte for byte, is the journal that the old
//! life would have served as well: nobody can say which of both it is. What is believed then may be
//! the old life's beginning with the new one's rest. Only that is let pass here.

use kvbridge::{api::Batch, schemas::Seq};

use crate::world::World;

/// Where a view goes on from one life with another, for all that it could compare.
#[derive(Debug)]
pub(crate) struct Seam {
    /// The life it goes on with.
    life: usize,
    /// The first batch that comes of that one.
    next: Seq,
}

impl World {
    /// The journal is served from `start` on. Is it one that cannot be told from the last life's?
    pub(crate) fn note_seam(&mut self, start: Seq, journal: &[Batch]) {
        let next = self.recovery.cursor().next_seq;
        let overlap: Vec<&Batch> = journal.iter().take_while(|batch| batch.seq < next).collect();
        let begins_late = overlap.first().is_some_and(|first| first.seq > start);
        let ends_there = overlap.last().is_some_and(|last| last.next_seq() == next);
        let ours =
            |batch: &Batch| self.recovery.digests().any(|kept| kept == (batch.seq, batch.digest));
        let is_other = self.is_of_an_ended_life(next);
        if self.engine.profile.frozen_clock
            && begins_late
            && ends_there
            && overlap.iter().all(|batch| ours(batch))
            && is_other
        {
            self.seam = Some(Seam { life: self.engine.life, next });
        }
    }

    /// All that was applied behind the seam is of the life that goes on there.
    pub(crate) fn is_past_a_seam(&self) -> bool {
        self.seam.as_ref().is_some_and(|seam| {
            let made = &self.engine.made[seam.life];
            let mut behind = self.witness.applied(seam.next);
            self.recent(seam.life) && behind.all(|(seq, digest)| made.get(seq) == Some(digest))
        })
    }

    /// The view has nothing but what an ended life held there.
    fn is_of_an_ended_life(&self, next: Seq) -> bool {
        let seen = self.residency();
        (0..self.engine.life).any(|life| {
            let truth = self.engine.truth(life, next.0).unwrap_or_default();
            seen.iter().all(|(key, count)| truth.get(key).is_some_and(|there| count <= there))
        })
    }
}
