//! One run: engine, links, machine and view in one thread, by one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kvbridge::{
    api::{AnswerPart, Attempt, Batch, Removal, SourceEvent},
    recovery::{
        Action, Fact, Input, Limits, PhaseKind, Planted, Recovery, Settings, Tick, TrustReason,
    },
    schemas::{Epoch, Projection, Seq, TierTrust},
    view::{View, ViewSettings},
};

use crate::{
    engine::{Engine, Quirks, Radix, Residency},
    faults::{Fault, Faults, Strike},
    invariants::Violation,
    link::{AnswerLink, LiveLink},
    radix::Bare,
    repairs::Repairs,
    restart::Disk,
    rng::Rng,
    seam::Seam,
    source::{capabilities, profile},
    witness::Witness,
};

/// Model milliseconds with faults on, then with faults off.
const FAULTY_MS: u64 = 6_000;
const CALM_MS: u64 = 8_000;
const STEP_MS: u64 = 5;

/// Times scaled down, so that every one of them runs out in a run.
pub(crate) fn limits() -> Limits {
    Limits {
        digest_ring: 600,
        verify_run: 3,
        held_batches_max: 24,
        held_bytes_max: 1 << 20,
        replay_deadline_ms: 120,
        attempts_max: 4,
        replay_interval_ms: 5,
        replay_interval_ms_max: 100,
        join_grace_ms: 40,
        probe_after_ms: 150,
        audit_ms: 150,
        lease_ms: 900,
        tail_wait_ms: 60,
        refetch_ms: 2_000,
        epoch_flap_max: 6,
        epoch_flap_window_ms: 400,
        quarantine_ms: 200,
    }
}

/// The whole of one run.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) engine: Engine,
    pub(crate) recovery: Recovery,
    pub(crate) view: View,
    pub(crate) trust: TierTrust,
    pub(crate) reason: TrustReason,
    pub(crate) limits: Limits,
    /// When a reconnect was last hidden from a source that cannot see it.
    pub(crate) hidden_at: Option<u64>,
    pub(crate) trace: Vec<String>,
    pub(crate) facts: Vec<Fact>,
    /// History was given up for lost in this life, by a fault of the answer link.
    pub(crate) gave_up: bool,
    pub(crate) settings: Settings,
    pub(crate) disk: Disk,
    pub(crate) live: LiveLink,
    pub(crate) answers: AnswerLink,
    pub(crate) shadows: VecDeque<(Attempt, View)>,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    paused_until: u64,
    old_life: Option<Batch>,
    stepped: bool,
    unreadable: BTreeMap<Seq, u32>,
    pub(crate) witness: Witness,
    pub(crate) bare: Bare,
    pub(crate) repairs: Repairs,
    /// Where the view went on with a life that could not be told from its own.
    pub(crate) seam: Option<Seam>,
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>, spared: BTreeSet<Strike>) -> World {
        let mut rng = Rng::new(seed);
        let mut profile = profile(seed, &mut rng);
        let mut faults = Faults::sparing(spared);
        faults.swarm(&Fault::HOP, 3_500, &mut rng);
        let mut disk = Disk::new(seed);
        if planted.is_none() {
            // A planted mistake keeps the run that its pinned seed was found in.
            faults.set(Fault::ProcessRestart, disk.restart_rate());
            Radix::turn(&mut profile, seed);
        }
        if profile.drained {
            faults.set(Fault::Stolen, 200);
        }
        let limits = limits();
        let mut settings = Settings::new(capabilities(&profile), 1_000_000);
        settings.limits = limits.clone();
        settings.jitter_seed = seed;
        settings.planted = planted;
        let engine = Engine::new(profile, &mut rng.fork());
        World {
            now: 0,
            engine,
            recovery: Recovery::new(settings.clone()),
            settings,
            disk,
            view: View::new(view_settings()),
            trust: TierTrust::default(),
            reason: TrustReason::Detached,
            limits,
            hidden_at: None,
            trace: Vec::new(),
            facts: Vec::new(),
            gave_up: false,
            live: LiveLink::default(),
            answers: AnswerLink::default(),
            shadows: VecDeque::new(),
            rng,
            faults,
            paused_until: 0,
            old_life: None,
            stepped: false,
            unreadable: BTreeMap::new(),
            witness: Witness::default(),
            bare: Bare::default(),
            repairs: Repairs::default(),
            seam: None,
        }
    }

    /// Runs both phases; the first violation ends it.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        // Half of the engines have served for a while before we come.
        if self.rng.hit(5_000) {
            for _ in 0..self.rng.below(60) {
                self.engine.step(0, Quirks::default());
            }
        }
        self.live.attach(0, &self.faults.clone(), &mut self.rng);
        while self.now < FAULTY_MS {
            self.tick()?;
        }
        self.heal();
        while self.now < FAULTY_MS + CALM_MS {
            self.tick()?;
        }
        self.check_liveness()
    }

    fn heal(&mut self) {
        self.faults = self.faults.none();
        self.trace.push(format!("{:>6} ---- faults off ----", self.now));
    }

    fn tick(&mut self) -> Result<(), Violation> {
        self.now += STEP_MS;
        self.engine_turn();
        self.process_turn();
        if self.live.reattach_at.is_some_and(|at| at <= self.now) {
            self.live.attach(self.now, &self.faults.clone(), &mut self.rng);
        }
        loop {
            // The two sockets race: which one is read first is the seed's choice.
            let live_first = self.rng.hit(5_000);
            let event = if live_first {
                self.live.due(self.now).or_else(|| self.answers.due(self.now))
            } else {
                self.answers.due(self.now).or_else(|| self.live.due(self.now))
            };
            let Some(event) = event else { break };
            self.step(Input::Source(event))?;
        }
        let mut guard = 0;
        while self.recovery.next_deadline().is_some_and(|at| at <= Tick(self.now)) {
            self.step(Input::DeadlineReached)?;
            guard += 1;
            assert!(guard < 50, "deadlines do not move on");
        }
        // Between steps only time passes; a lease that runs out is a step too.
        if !std::mem::take(&mut self.stepped) {
            return Ok(());
        }
        self.repairs.looked();
        self.check_safety()
    }

    fn engine_turn(&mut self) {
        let faults = self.faults.clone();
        if faults.strike(Fault::Pause, &mut self.rng) {
            self.paused_until = self.now + self.rng.below(2_000);
        }
        let midway =
            matches!(self.recovery.phase(), PhaseKind::Replaying | PhaseKind::Snapshotting);
        if faults.strike(Fault::Restart, &mut self.rng)
            || (midway && faults.strike(Fault::RestartMidway, &mut self.rng))
        {
            self.restart(&faults);
        }
        if faults.strike(Fault::Detach, &mut self.rng) {
            let back_after = 5 + self.rng.below(300);
            self.live.detach(self.now, back_after);
        }
        // A straggler comes behind its successor; ahead of it only a vouch could tell (the bus has
        // one).
        let successor_seen = self.recovery.cursor().epoch.0 == 1_000 + self.engine.life as u64;
        if let Some(batch) = &self.old_life
            && successor_seen
            && faults.strike(Fault::Straggler, &mut self.rng)
        {
            self.live.send_raw(self.now, batch.clone());
        }
        if self.now < self.paused_until || !self.rng.hit(4_000) {
            return;
        }
        let quirks = Quirks {
            burn_seq: faults.strike(Fault::Burn, &mut self.rng),
            poison: faults.strike(Fault::Poison, &mut self.rng),
            lose_store: faults.strike(Fault::LoseStore, &mut self.rng),
            unknown_tag: faults.strike(Fault::UnknownTag, &mut self.rng),
            clear: faults.strike(Fault::Clear, &mut self.rng),
            repair: faults.strike(Fault::Repair, &mut self.rng),
        };
        if let Some(batch) = self.engine.step(self.now, quirks) {
            self.live.send(self.now, batch, &faults, &mut self.rng);
        }
    }

    fn restart(&mut self, faults: &Faults) {
        if self.engine.profile.epoch_on_wire {
            self.old_life = self.engine.replay(Seq(0)).pop();
        }
        let next_seq = self.recovery.cursor().next_seq.0;
        self.engine.restart(self.now);
        if self.engine.profile.drained {
            return self.live.restarted(self.now);
        }
        if !self.engine.profile.unproven {
            let back_after = 5 + self.rng.below(200);
            self.live.detach(self.now, back_after);
            return;
        }
        // Nobody says a word; the first frame seen may be exactly the one expected.
        self.hidden_at = Some(self.now);
        let lost = match self.rng.below(3) {
            0 if faults.strike(Fault::RestartAligned, &mut self.rng) => next_seq,
            1 => self.rng.below(next_seq + 8),
            _ => self.rng.below(8),
        };
        self.live.hidden_reconnect(lost);
        if let Some(clear) = self.engine.start_clear() {
            self.live.send(self.now, clear, &faults.none(), &mut self.rng);
        }
        for _ in 0..lost.min(400) {
            if let Some(batch) = self.engine.step(self.now, Quirks::default()) {
                self.live.send(self.now, batch, &faults.none(), &mut self.rng);
            }
        }
    }

    pub(crate) fn step(&mut self, input: Input) -> Result<(), Violation> {
        self.stepped = true;
        let mut findings = VecDeque::from([input]);
        while let Some(input) = findings.pop_front() {
            self.trace.push(format!("{:>6} {}", self.now, brief(&input)));
            let mut actions = Vec::new();
            self.witness.before(&self.recovery, &input);
            self.recovery.step(Tick(self.now), input, &mut actions);
            self.witness.after(&self.recovery, &actions)?;
            if actions.iter().any(|action| self.proves(action)) {
                self.witness.proven_at = self.now;
            }
            for action in actions {
                let installs = matches!(action, Action::Install { .. });
                self.bare.follow(&action);
                findings.extend(self.perform(action)?.into_iter().map(Input::Finding));
                if installs {
                    self.bare.installed(&self.view);
                }
            }
            self.bare.check(&self.view)?;
        }
        Ok(())
    }

    fn perform(&mut self, action: Action) -> Result<Vec<kvbridge::recovery::Finding>, Violation> {
        self.trace.push(format!("       -> {}", brief_action(&action)));
        let mut findings = Vec::new();
        match action {
            Action::Apply(batch) => {
                self.view.apply(&batch.events, &mut Vec::new(), &mut findings);
            }
            Action::Clear { .. } => (self.view, self.seam) = (View::new(view_settings()), None),
            Action::Install { attempt, .. } => {
                let at = self.shadows.iter().position(|(open, _)| *open == attempt);
                let Some((_, shadow)) = at.and_then(|at| self.shadows.remove(at)) else {
                    return Err(Violation::new("install without a shadow view"));
                };
                (self.view, self.seam) = (shadow, None);
                self.shadows.clear();
            }
            Action::RequestReplay { attempt, start_seq } => {
                if self.engine.profile.replay {
                    let batches = self.engine.replay(start_seq);
                    self.note_seam(start_seq, &batches);
                    let faults = self.faults.clone();
                    self.answers.replay((self.now, attempt), batches, &faults, &mut self.rng);
                }
            }
            Action::RequestSnapshot { attempt, .. } => self.serve_snapshot(attempt),
            Action::CancelRequest => (),
            Action::Announce { trust, reason } => {
                self.repairs.announced(self.now, trust.device);
                (self.trust, self.reason) = (trust, reason);
            }
            Action::Record(fact) => {
                match fact {
                    Fact::Rollback(_) | Fact::DigestMismatch(_) if self.engine.life == 0 => {
                        return Err(Violation::new("a restart was seen that never was"));
                    }
                    Fact::Undecodable(seq) => {
                        let times = self.unreadable.entry(seq).or_default();
                        *times += 1;
                        if *times > 4 {
                            return Err(Violation::new("an unreadable body is asked for for ever"));
                        }
                    }
                    // Each connection may look once more: the view still stands before it.
                    Fact::Reattached => self.unreadable.clear(),
                    Fact::NewEpoch(_) | Fact::ResyncAsked => {
                        self.gave_up = false;
                        self.unreadable.clear();
                        self.spend_kept();
                    }
                    Fact::Truncated(_) => {
                        self.gave_up = true;
                        // A view that begins anew with what the journal has comes by it again.
                        self.unreadable.clear();
                    }
                    Fact::NoHistory | Fact::PermanentHole(_) => self.gave_up = true,
                    _ => (),
                }
                self.facts.push(fact);
            }
        }
        Ok(findings)
    }

    /// Whether an action tells of a proof: a batch where reconnects are seen, or an answer
    /// compared.
    fn proves(&self, action: &Action) -> bool {
        match action {
            Action::Apply(_) => !self.engine.profile.unproven,
            Action::Install { .. } | Action::Clear { .. } => true,
            // Nothing that its body could have taken away is in an empty view.
            Action::Record(Fact::Undecodable(_)) => {
                !self.engine.profile.unproven && self.view.snapshot().is_empty()
            }
            Action::Record(fact) => matches!(fact, Fact::Replayed | Fact::Flushed(_)),
            _ => false,
        }
    }

    /// Nothing that was asked before is answered to a process that did not ask.
    pub(crate) fn forget_answers(&mut self) {
        self.answers.forget();
        self.shadows.clear();
        self.unreadable.clear();
    }

    /// The process is away from its live stream.
    pub(crate) fn end_live(&mut self, back_after: u64) {
        self.live.end(self.now, back_after);
    }

    /// What the view holds, in the engine's terms.
    pub(crate) fn residency(&self) -> Residency {
        let mut residency = Residency::new();
        for record in self.view.snapshot() {
            let hash = Projection::Last8.apply(&record.hash);
            let group = record.group.map_or(0, |group| group.index);
            *residency.entry((hash, record.tier, group)).or_default() += record.count;
        }
        residency
    }
}

pub(crate) fn view_settings() -> ViewSettings {
    ViewSettings {
        projection: Projection::Last8,
        removal: Removal::PerCopy,
        orphans_max: 10_000,
        describes: false,
        told_singly: false,
        leaves_out: false,
    }
}

/// An input in one short word; a batch by its seq alone.
fn brief(input: &Input) -> String {
    match input {
        Input::Source(SourceEvent::Live(batch)) => {
            format!("live {}{}", batch.seq, epoch(batch.epoch))
        }
        Input::Source(SourceEvent::Answer { attempt, part: AnswerPart::Batch(batch) }) => {
            format!("answer {attempt} batch {}", batch.seq)
        }
        Input::Source(SourceEvent::Answer { attempt, part }) => {
            format!("answer {attempt} {part:?}")
        }
        other => format!("{other:?}"),
    }
}

fn epoch(epoch: Option<Epoch>) -> String {
    epoch.map(|epoch| format!(" of {epoch}")).unwrap_or_default()
}

fn brief_action(action: &Action) -> String {
    match action {
        Action::Apply(batch) => format!("apply {}", batch.seq),
        other => format!("{other:?}"),
    }
}
