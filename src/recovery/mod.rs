//! PURE. One replica's state machine: which life is this, is anything missing, what may be
//! believed.
//!
//! No clock, no I/O, no task, no logger inside. Faults are inputs, effects are [`Action`]s, and the
//! whole interface is [`Recovery::step`] and [`Recovery::next_deadline`]. The contract it follows
//! is `docs/specs/recovery.md`; the rows of its table are the variants of [`Fact`], and each row
//! has a test of that name in `tests/table.rs`.
//!
//! Asked of a live batch, in this order (`arrival.rs`):
//!
//! | question | if so |
//! |---|---|
//! | is its life closed, or newer than ours? | `stale_epoch`: drop · `new_epoch`: start anew |
//! | did this seq come before, with other bytes? | `digest_mismatch`: new life |
//! | … with the same bytes? | `duplicate`: drop |
//! | does it reach over the cursor from below? | `straddle`: resync |
//! | is it below the highest seq seen? | `rollback`: new life |
//! | is a replay, snapshot or probe open? | hold it |
//! | is it a reset told by a bridge? | `reset`: install, or clear |
//! | nothing known yet? | `first_is_zero` · `joined_late` |
//! | is its body unreadable? | `undecodable`: ask for it once more |
//! | is it the next one? | apply |
//! | otherwise | `gap`: withdraw trust, hold, replay inclusive of the last applied |
//!
//! The order is part of the logic: a restarted engine counts from 0 again, so `rollback` must be
//! asked before anything that drops old numbers, and bytes must be compared before numbers are
//! believed.
#![deny(clippy::wildcard_enum_match_arm)]

mod action;
mod arrival;
mod asking;
mod checkpoint;
mod epoch;
mod fact;
mod held;
mod input;
mod lag;
mod live;
mod loss;
mod phase;
mod plain;
mod planted;
mod replay;
mod settings;
mod shed;
mod snapshot;
mod standing;
mod timer;
mod upstream;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use kvbridge_adapters_api::{Attempt, SourceEvent};
use kvbridge_schemas::{Cursor, Digest, Epoch, Seq, TierTrust};

pub use action::{Action, ClearReason, TrustReason};
pub use checkpoint::{Checkpoint, CheckpointFault};
pub use fact::Fact;
pub use input::{Finding, Input, Tick};
pub use phase::PhaseKind;
#[cfg(feature = "planted")]
pub use planted::Planted;
pub use settings::{Limits, Settings};

use self::{
    held::{DigestRing, Held},
    phase::Phase,
    plain::Plain,
    standing::{Cap, Lineage},
    timer::Pace,
    upstream::Vouched,
};

/// One replica's recovery. Owned by one task, together with the view it speaks of.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent memories; the phase is an enum")]
pub struct Recovery {
    settings: Settings,
    phase: Phase,
    /// What the view rests on.
    lineage: Lineage,
    /// Sticky loss within this epoch.
    cap: Cap,
    cursor: Cursor,
    ring: DigestRing,
    held: Held,
    /// Highest live seq seen in this epoch.
    highest_live: Option<Seq>,
    /// The view had every seq of this epoch below when the source attached, also when it was
    /// dropped since: its start does not come live any more.
    told_before: Seq,
    /// The wire's own name of this life.
    incarnation: Option<String>,
    /// Names of lives that ended; never entered again.
    closed: VecDeque<String>,
    /// What was last told to the shell.
    announced: (TierTrust, TrustReason),
    /// What is looked into, while it is.
    doubt: TrustReason,
    /// For a source that cannot see its own reconnects: the batch from which on the next answer
    /// must be compared. A life may have been spliced in anywhere behind it, also long before the
    /// newest.
    audit_from: Seq,
    /// When a batch or a probe last proved the view.
    proven_at: Tick,
    /// The lease ran out.
    lapsed: bool,
    attempt: Attempt,
    pace: Pace,
    /// The source returned a digest we keep, at least once: its replay works.
    confirmed: bool,
    /// The source's replay was found to be of no use; it is tried again then.
    replay_unusable_until: Option<Tick>,
    /// The time of the step under way.
    now: Tick,
    /// An unreadable body, seen once.
    poison: Option<(Seq, Digest)>,
    /// Our queue dropped batches while a replay was open: its end is not the end.
    overflow_pending: bool,
    /// A batch that a probe brought and that may still come live.
    tail: Option<(Seq, Tick)>,
    /// When lives began, within the flap window.
    births: VecDeque<Tick>,
    quarantine_until: Option<Tick>,
    quarantine_ms: u64,
    /// The engine lets blocks go without a word.
    unannounced: bool,
    /// The view was kept, and so was what its source knows of it: it goes on with the next batch.
    resumes: bool,
    /// Whoever writes a log from this view lacks batches from here on: the next look brings them.
    look_from: Option<Seq>,
    /// Other ranks of the instance deliver, and this one never did.
    rank_missing: bool,
    vouched: Vouched,
    /// Snapshots failed in this episode; another way is taken until the view is settled.
    snapshot_failed: bool,
    /// Stored cuts that were installed in this episode, none of them proven.
    stored_installs: u32,
    /// Whether the engine is as its snapshots take for granted.
    plain: Plain,
}

/// What every handler needs: the time and where effects go.
struct Cx<'a> {
    now: Tick,
    out: &'a mut Vec<Action>,
}

impl Cx<'_> {
    fn act(&mut self, action: Action) {
        self.out.push(action);
    }

    fn record(&mut self, fact: Fact) {
        self.out.push(Action::Record(fact));
    }
}

impl Recovery {
    /// A machine that waits for its source to attach.
    pub fn new(settings: Settings) -> Recovery {
        let quarantine_ms = settings.limits.quarantine_ms;
        let pace = Pace::new(settings.jitter_seed, &settings.limits);
        Recovery {
            cursor: Cursor { epoch: settings.epoch_floor, next_seq: Seq(0) },
            settings,
            phase: Phase::Detached,
            lineage: Lineage::Empty,
            cap: Cap::default(),
            ring: DigestRing::default(),
            held: Held::default(),
            highest_live: None,
            told_before: Seq(0),
            incarnation: None,
            closed: VecDeque::new(),
            announced: (TierTrust::default(), TrustReason::Detached),
            doubt: TrustReason::Detached,
            audit_from: Seq(0),
            proven_at: Tick(0),
            lapsed: false,
            attempt: Attempt(0),
            pace,
            confirmed: false,
            replay_unusable_until: None,
            now: Tick(0),
            poison: None,
            overflow_pending: false,
            tail: None,
            births: VecDeque::new(),
            quarantine_until: None,
            quarantine_ms,
            unannounced: false,
            resumes: false,
            look_from: None,
            rank_missing: false,
            vouched: Vouched::default(),
            snapshot_failed: false,
            stored_installs: 0,
            plain: Plain::default(),
        }
    }

    /// Takes one input and says what follows. Perform all actions before the next step.
    pub fn step(&mut self, now: Tick, input: Input, actions: &mut Vec<Action>) {
        assert!(actions.is_empty(), "perform all actions before the next step");
        let at_deadline = input == Input::DeadlineReached;
        self.now = now;
        let mut cx = Cx { now, out: actions };
        match input {
            Input::Source(event) => self.source(&mut cx, event),
            Input::Finding(finding) => self.finding(&mut cx, finding),
            Input::Resync => self.resync(&mut cx),
            Input::OverLimit => self.over_limit(&mut cx),
            Input::Release => self.release(&mut cx),
            Input::LookFrom(seq) => self.look_from(&mut cx, seq),
            Input::RankMissing(missing) => self.rank_missing(&mut cx, missing),
            Input::DeadlineReached => self.deadline(&mut cx),
        }
        self.expire_lease(&mut cx);
        self.rank_missing &= !self.has_delivered();
        self.follow_vouch(&mut cx);
        self.announce(&mut cx);
        self.assert_invariants();
        if at_deadline {
            // A deadline that does not move starves the source: the shell asks the timer first.
            assert!(self.next_deadline().is_none_or(|next| next > now), "a deadline must move on");
        }
    }

    /// The moment at which the shell must step with [`Input::DeadlineReached`].
    pub fn next_deadline(&self) -> Option<Tick> {
        let tail_at = self.tail.map(|(_, at)| at);
        let (vouch_at, awaited) = (self.vouch_at(), self.awaited_until());
        let timers = [self.phase.deadline(), self.lease_at(), tail_at, vouch_at, awaited];
        timers.into_iter().flatten().min()
    }

    /// What the machine is doing.
    pub fn phase(&self) -> PhaseKind {
        self.phase.kind()
    }

    /// Where the view stands.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// What may be believed, and why it is no better: the last announcement.
    pub fn standing(&self) -> (TierTrust, TrustReason) {
        self.announced
    }

    /// Whether the source's replay was found to be of no use and is not asked at present.
    pub fn replay_unusable(&self) -> bool {
        self.replay_unusable_until.is_some_and(|until| until > self.now)
    }

    /// Whether the source does not see its own reconnects.
    pub fn is_blind(&self) -> bool {
        self.settings.unproven()
    }

    /// How many live batches wait.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// The newest applied batches, oldest first: the proof of this life for a checkpoint.
    pub fn digests(&self) -> impl Iterator<Item = (Seq, Digest)> + '_ {
        self.ring.iter()
    }

    fn source(&mut self, cx: &mut Cx<'_>, event: SourceEvent) {
        match event {
            SourceEvent::Attached => self.attach(cx),
            SourceEvent::Detached => self.detach(cx),
            SourceEvent::Overflowed => self.overflowed(cx),
            SourceEvent::Upstream(said) => self.upstream(cx, said),
            SourceEvent::EndMarker => cx.record(Fact::EndMarker),
            SourceEvent::Live(batch) => self.live(cx, batch),
            SourceEvent::Answer { attempt, part } => self.answer(cx, attempt, part),
            SourceEvent::Restarted => {
                cx.record(Fact::Restarted);
                self.new_epoch(cx, None, None);
            }
            SourceEvent::Disproved => self.disproved(cx),
            SourceEvent::Unannounced => {
                cx.record(Fact::Unannounced);
                self.unannounced = true;
            }
            SourceEvent::Competing => self.competing(cx),
        }
    }

    /// Moves to the next phase; the only place that does.
    fn enter(&mut self, next: Phase) {
        let (from, to) = (self.phase.kind(), next.kind());
        assert!(from.may_become(to), "no way from {from:?} to {to:?}");
        self.phase = next;
    }

    fn assert_invariants(&self) {
        match &self.phase {
            Phase::Live(_) => {
                assert!(matches!(self.lineage, Lineage::Proven(_)), "Live rests on a proven start");
            }
            Phase::Partial(_) => {
                assert!(matches!(self.lineage, Lineage::Since { .. }), "Partial was cleared");
            }
            Phase::Joining { .. } => {
                assert!(self.lineage == Lineage::Empty, "Joining has an empty view");
                assert!(self.held.is_empty(), "Joining holds nothing");
            }
            Phase::Detached | Phase::Quarantined { .. } | Phase::Shed { .. } => {
                assert!(self.held.is_empty(), "nothing is held without a stream");
            }
            Phase::Verifying(_) | Phase::Replaying(_) | Phase::Snapshotting(_) => (),
        }
        let settled = matches!(self.phase, Phase::Live(_) | Phase::Partial(_));
        assert!(
            settled || self.announced.0 == TierTrust::default(),
            "only settled views have trust"
        );
        assert!(!self.settled() || self.held.is_empty(), "nothing waits without a reason");
        assert!(self.ring.last().is_none_or(|(seq, _)| seq < self.cursor.next_seq));
        assert!(self.cursor.epoch >= self.settings.epoch_floor || self.cursor.epoch == Epoch(0));
    }
}
