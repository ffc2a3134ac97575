//! What must hold after every step, and what must become true once faults have stopped.

use std::fmt;

use kvbridge::{
    recovery::PhaseKind,
    schemas::{Tier, Trust},
};

use crate::{engine::Residency, world::World};

/// A broken promise.
#[derive(Debug)]
pub(crate) struct Violation {
    what: String,
}

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Violation {
        Violation { what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl World {
    /// What is announced must be true of one life, and that life must be the current one or have
    /// ended less than a lease ago.
    pub(crate) fn check_safety(&self) -> Result<(), Violation> {
        if self.recovery.held_count() > self.limits.held_batches_max {
            return Err(Violation::new("more is held than the bound allows"));
        }
        let trust = self.trust;
        if trust.device == Trust::None && trust.host == Trust::None {
            return Ok(());
        }
        if self.now - self.witness.proven_at > self.limits.lease_ms + 50 {
            return Err(Violation::new("believed without a proof for longer than the lease"));
        }
        let seen = self.residency();
        let next_seq = self.recovery.cursor().next_seq.0;
        let lives = 0..=self.engine.life;
        let fits = lives.rev().any(|life| self.recent(life) && self.holds(life, next_seq, &seen));
        if fits {
            return Ok(());
        }
        // A source that cannot see its reconnects is believed as of its last audit, for a lease.
        let grace = self.limits.lease_ms + self.limits.audit_ms + self.limits.replay_deadline_ms;
        if self.engine.profile.unproven && self.hidden_at.is_some_and(|at| self.now - at <= grace) {
            return Ok(());
        }
        if self.is_past_a_seam() {
            return Ok(());
        }
        Err(Violation::new(format!(
            "{trust:?} at seq {next_seq} is not true of any recent life; view {seen:?}; engine {:?}",
            self.engine.truth(self.engine.life, next_seq)
        )))
    }

    pub(crate) fn recent(&self, life: usize) -> bool {
        // One tick and one delivery lie between an expiry and what follows from it.
        let slack = 50;
        self.engine.ended_at[life].is_none_or(|at| self.now - at <= self.limits.lease_ms + slack)
    }

    fn holds(&self, life: usize, next_seq: u64, seen: &Residency) -> bool {
        let Some(truth) = self.engine.truth(life, next_seq) else { return false };
        // An unanchored lower bound speaks of no seq: its view is empty, and that is always true.
        [(Tier::Device, self.trust.device), (Tier::Host, self.trust.host)].iter().all(
            |(tier, trust)| match trust {
                Trust::None => true,
                Trust::LowerBound => of(seen, tier)
                    .all(|(key, count)| truth.get(key).is_some_and(|there| count <= there)),
                Trust::Exact => of(seen, tier).eq(of(&truth, tier)),
            },
        )
    }

    /// Faults are off and traffic goes on: trust must be back, as high as the source can prove.
    pub(crate) fn check_liveness(&self) -> Result<(), Violation> {
        let phase = self.recovery.phase();
        let next_seq = self.recovery.cursor().next_seq.0;
        let behind = self.engine.next_seq.saturating_sub(next_seq);
        if self.engine.tag_lost {
            // An event type of the future caps trust until a flush or an operator; that is the
            // contract.
            return Ok(());
        }
        // Nobody can audit a source that neither sees its reconnects nor keeps a journal that
        // reaches from one audit to the next.
        let journal_reaches = self.engine.profile.replay && self.engine.profile.journal_max >= 40;
        let auditable = journal_reaches || !self.engine.profile.unproven;
        if self.trust.device == Trust::None && auditable {
            return Err(Violation::new(format!(
                "still none ({:?}) in {phase:?} long after the faults, {behind} behind",
                self.reason
            )));
        }
        if behind > 40 {
            return Err(Violation::new(format!("{behind} batches behind a calm engine")));
        }
        let whole = self.engine.profile.replay && self.engine.journal_is_whole();
        // A snapshot that says less than the engine knows is taken first, and is a lower bound.
        let whole = whole && (!self.engine.profile.snapshot || self.engine.profile.counts);
        let provable = whole && !self.engine.spoiled && !self.gave_up;
        if provable && phase == PhaseKind::Partial {
            return Err(Violation::new("a lower bound, although the journal holds the whole life"));
        }
        Ok(())
    }
}

fn of<'a>(
    residency: &'a Residency,
    tier: &'a Tier,
) -> impl Iterator<Item = (&'a (u64, Tier, u32), &'a u32)> {
    residency.iter().filter(move |((_, at, _), _)| at == tier)
}
