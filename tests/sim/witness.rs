//! What anyone who watches the inputs can demand of the very step that takes them.

use std::collections::BTreeMap;

use kvbridge::{
    api::{AnswerPart, SourceEvent},
    recovery::{Action, Fact, Input, PhaseKind, Recovery},
    schemas::{Digest, Epoch, Seq, TierTrust},
};

use crate::invariants::Violation;

/// Remembers what was applied and seen in the current epoch.
#[derive(Default)]
pub(crate) struct Witness {
    epoch: Epoch,
    applied: BTreeMap<Seq, Digest>,
    live: BTreeMap<Seq, Digest>,
    arrived: Option<(Seq, Digest)>,
    /// The open answer brought batches that were new.
    advanced: bool,
    demand: Option<&'static str>,
    end_alone: bool,
    overflowed: bool,
    /// When something last proved the view.
    pub(crate) proven_at: u64,
}

impl Witness {
    /// One that begins with what a restored machine remembers.
    pub(crate) fn knowing(digests: impl Iterator<Item = (Seq, Digest)>) -> Witness {
        Witness { applied: digests.collect(), ..Witness::default() }
    }

    /// What was applied to the view from there on.
    pub(crate) fn applied(&self, from: Seq) -> impl Iterator<Item = (&Seq, &Digest)> {
        self.applied.range(from..)
    }

    /// Ahead of a step: what must follow from this input?
    pub(crate) fn before(&mut self, recovery: &Recovery, input: &Input) {
        self.demand = None;
        self.end_alone = false;
        self.arrived = None;
        self.overflowed = *input == Input::Source(SourceEvent::Overflowed);
        let phase = recovery.phase();
        match input {
            Input::Source(SourceEvent::Live(batch)) => {
                if matches!(phase, PhaseKind::Detached | PhaseKind::Quarantined) {
                    return self.live.clear();
                }
                let same_epoch = batch.epoch.is_none_or(|epoch| epoch == recovery.cursor().epoch);
                let seen = self.applied.get(&batch.seq).or_else(|| self.live.get(&batch.seq));
                if same_epoch && seen.is_some_and(|digest| *digest != batch.digest) {
                    self.demand = Some("a seq seen twice with two contents went unnoticed");
                }
                let highest = self.live.last_key_value().map(|(seq, _)| *seq);
                let below = highest.is_some_and(|highest| batch.seq < highest);
                if batch.epoch.is_none() && below && seen.is_none() {
                    self.demand = Some("the live seq went backwards, and nothing followed");
                }
                self.arrived = same_epoch.then_some((batch.seq, batch.digest));
            }
            // What was held is dropped with the connection; only what is applied is still known.
            Input::Source(SourceEvent::Detached | SourceEvent::Attached) => self.live.clear(),
            Input::Source(SourceEvent::Answer { part: AnswerPart::End, .. }) => {
                let asking = matches!(phase, PhaseKind::Replaying | PhaseKind::Verifying);
                self.end_alone = asking && recovery.held_count() == 0;
            }
            _ => (),
        }
    }

    /// After it: did it?
    pub(crate) fn after(
        &mut self,
        recovery: &Recovery,
        actions: &[Action],
    ) -> Result<(), Violation> {
        let cleared = actions.iter().any(|action| matches!(action, Action::Clear { .. }));
        if let Some(demand) = self.demand
            && !cleared
        {
            return Err(Violation::new(demand));
        }
        if self.overflowed && !cleared && recovery.standing().0 != TierTrust::default() {
            return Err(Violation::new("an overflow left trust standing"));
        }
        let replayed = actions.contains(&Action::Record(Fact::Replayed));
        if self.end_alone && replayed && self.advanced {
            // Its end may have been cut off; only an answer with nothing new says there is no more.
            return Err(Violation::new("an end marker counts as proof"));
        }
        if recovery.cursor().epoch != self.epoch {
            self.epoch = recovery.cursor().epoch;
            self.live.clear();
        }
        if cleared {
            // What was held from before the new start was dropped with the view it belonged to.
            let next = recovery.cursor().next_seq;
            self.live.retain(|seq, _| *seq >= next);
        }
        // Below the cursor with nothing left to compare: dropped unread, so there is nothing to
        // recall.
        let unread = |action: &Action| matches!(action, Action::Record(Fact::OverlapUnproven(_)));
        if !actions.iter().any(unread) {
            self.live.extend(self.arrived);
        }
        for action in actions {
            match action {
                Action::Apply(batch) => {
                    self.applied.insert(batch.seq, batch.digest);
                    self.advanced = true;
                }
                Action::RequestReplay { .. } => self.advanced = false,
                Action::Clear { .. } | Action::Install { .. } => self.applied.clear(),
                // A full buffer is emptied: the journal returns what was in it.
                Action::Record(Fact::HeldFull) => self.live.clear(),
                _ => (),
            }
        }
        Ok(())
    }
}
