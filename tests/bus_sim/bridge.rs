//! One bridge: its own links to the engine, machine, view and clock, and its end of the log.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use kvbridge::{
    api::{AnswerPart, Batch, Capabilities, Continuity, Drain, Loss, Removal, Replay, SourceEvent},
    recovery::{
        Action, Checkpoint, ClearReason, Fact, Finding, Input, PhaseKind, Recovery, Settings, Tick,
        TrustReason,
    },
    schemas::{
        Cursor, Digest, Engine as EngineName, EngineKind, Envelope, Epoch, Event, Scope, Seq,
        SnapshotHeader, Status, Tier, TierTrust, Trust,
    },
    shared_log::{Author, Lane, Naming, Outgoing, Pointer, UnnamedLimits, events_of},
    view::View,
};

use crate::{
    desk::{Desk, Registry},
    engine::{Engine, Profile},
    faults::{Fault, Faults},
    invariants::Violation,
    link::{AnswerLink, LiveLink},
    log::{Log, Object, Objects},
    mistakes::Mistake,
    rng::Rng,
    sender::Sender,
    setting::{Trace, brief, brief_action, hop_limits, replica, view_settings},
};

/// Heard this long after a name was read, a life is not over: longer than the link lags.
const HEARD_LONG_MS: u64 = 500;

/// How long the engine's journal has to answer.
const FILL_MS: u64 = 200;

/// What may wait for a name.
const UNNAMED: UnnamedLimits = UnnamedLimits { batches_max: 200, bytes_max: 1 << 20 };

/// A cut on its way to the store: the view as it was, and how far the log had come before.
pub(crate) struct Cut {
    store_at: u64,
    pub(crate) object: Object,
    pub(crate) pointer: Pointer,
    /// Where the newest reset ends that its bridge wrote.
    pub(crate) reset: Option<Cursor>,
}

/// One bridge.
pub(crate) struct Bridge {
    pub(crate) name: &'static str,
    pub(crate) recovery: Recovery,
    pub(crate) view: View,
    pub(crate) trust: TierTrust,
    pub(crate) reason: TrustReason,
    trace: Trace,
    pub(crate) sender: Sender,
    pub(crate) live: LiveLink,
    pub(crate) answers: AnswerLink,
    /// Its clock at the model's 0, unix ms.
    unix_at_zero: u64,
    settings: Settings,
    cursor: Cursor,
    told: TierTrust,
    author: Author,
    pub(crate) naming: Naming,
    desk: Desk,
    cut: Option<Cut>,
    /// Where the newest reset ends that it wrote.
    reset: Option<Cursor>,
    snapshot_at: u64,
    beat_at: u64,
    /// What is on its disk.
    kept: Option<(Checkpoint, View, u32)>,
    /// Counts its processes.
    starts: u64,
    /// Of which version its decoder is: a later one reads less of the same bytes.
    pub(crate) decoder: u32,
    /// What it believed at least for the last second of a run.
    pub(crate) least: Trust,
    /// When it was last exact, by the name of the life on the log.
    pub(crate) exact_at: BTreeMap<Epoch, u64>,
    mistake: Option<Mistake>,
    /// Of a mistake.
    sharing: Option<Outgoing>,
    rng: Rng,
}

impl Bridge {
    pub(crate) fn new(
        name: &'static str,
        profile: &Profile,
        mistake: Option<Mistake>,
        trace: Trace,
        mut rng: Rng,
    ) -> Bridge {
        // Clocks may be a day off, either way.
        let unix_at_zero = 200_000_000 + rng.below(2 * 86_400_000) - 86_400_000;
        let mut settings = Settings::new(capabilities(profile), unix_at_zero);
        settings.limits = hop_limits();
        settings.jitter_seed = rng.next();
        let author = author(name, 0);
        let naming = Naming::new(Cursor::default(), HEARD_LONG_MS);
        let desk = Desk::new(name, Epoch(0), mistake, rng.fork());
        Bridge {
            name,
            recovery: Recovery::new(settings.clone()),
            view: View::new(view_settings()),
            trust: TierTrust::default(),
            reason: TrustReason::Detached,
            trace,
            sender: Sender::new(rng.fork()),
            live: LiveLink::default(),
            answers: AnswerLink::default(),
            unix_at_zero,
            settings,
            cursor: Cursor::default(),
            told: TierTrust::default(),
            author,
            naming,
            desk,
            cut: None,
            reset: None,
            snapshot_at: 0,
            beat_at: 0,
            kept: None,
            starts: 0,
            decoder: 1,
            least: Trust::None,
            exact_at: BTreeMap::new(),
            mistake,
            sharing: None,
            rng,
        }
    }

    /// Everything between engine and log, for one turn.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        engine: &mut Engine,
        faults: &Faults,
    ) -> Result<(), Violation> {
        if self.live.reattach_at.is_some_and(|at| at <= now) {
            self.live.attach(now, faults, &mut self.rng);
        }
        loop {
            let live_first = self.rng.hit(5_000);
            let event = if live_first {
                self.live.due(now).or_else(|| self.answers.due(now))
            } else {
                self.answers.due(now).or_else(|| self.live.due(now))
            };
            let Some(event) = event else { break };
            let event = self.decoded(event);
            if event == SourceEvent::Attached {
                let (view, blind) = (self.recovery.anchored(), self.recovery.is_blind());
                self.author.attached(&mut self.naming, view, blind);
            }
            self.offer(now, &event);
            self.take(now, Input::Source(event), engine, faults);
        }
        let mut guard = 0;
        while self.recovery.next_deadline().is_some_and(|at| at <= Tick(now)) {
            self.take(now, Input::DeadlineReached, engine, faults);
            guard += 1;
            assert!(guard < 50, "deadlines do not move on");
        }
        self.catch_up(now);
        self.note_exact(now);
        if let Some(seq) =
            self.author.wish(self.unix_at_zero + now, self.trust.device > Trust::None)
        {
            self.take(now, Input::LookFrom(seq), engine, faults);
        }
        Ok(())
    }

    /// Steps until nothing follows any more, and then says what may be believed.
    fn take(&mut self, now: u64, input: Input, engine: &mut Engine, faults: &Faults) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.trace.say(|| format!("{now:>6} {} {}", self.name, brief(&input)));
            let mut actions = Vec::new();
            self.recovery.step(Tick(now), input, &mut actions);
            let starts_over =
                |action: &Action| matches!(action, Action::Clear { .. } | Action::Install { .. });
            if !actions.iter().any(starts_over) {
                self.cursor.epoch = self.recovery.cursor().epoch;
            }
            for action in actions {
                let findings = self.perform(now, action, engine, faults);
                inputs.extend(findings.into_iter().map(Input::Finding));
            }
        }
        (self.trust, self.reason) = self.recovery.standing();
        self.told = self.trust;
        self.cursor = self.recovery.cursor();
        self.note_exact(now);
        let standing = (self.trust.device, self.reason.as_str());
        let unix_ms = self.unix_ms(now);
        self.author.settled(unix_ms, self.cursor, standing, Some(&mut self.naming));
        self.hand_over();
        if let Some(seq) =
            self.author.wish(self.unix_at_zero + now, self.trust.device > Trust::None)
        {
            self.take(now, Input::LookFrom(seq), engine, faults);
        }
    }

    fn note_exact(&mut self, now: u64) {
        let name = self.naming.epoch_of(self.cursor.epoch);
        if let (Trust::Exact, Some(epoch)) = (self.trust.device, name) {
            self.exact_at.insert(epoch, now);
        }
    }

    fn perform(
        &mut self,
        now: u64,
        action: Action,
        engine: &mut Engine,
        faults: &Faults,
    ) -> Vec<Finding> {
        self.trace.say(|| format!("       -> {}", brief_action(&action)));
        let mut findings = Vec::new();
        match action {
            Action::Apply(batch) => {
                self.view.apply(&batch.events, &mut Vec::new(), &mut findings);
                self.cursor.next_seq = batch.next_seq();
                let envelope = Arc::new(self.envelope(batch));
                let unix_ms = self.unix_ms(now);
                self.author.applied(unix_ms, envelope, Some(&mut self.naming));
                self.hand_over();
            }
            Action::Clear { epoch, cause } => {
                if cause == ClearReason::Unproven {
                    self.author.cleared(Some(&mut self.naming));
                }
                self.view = View::new(view_settings());
                self.cursor = Cursor { epoch, next_seq: Seq(0) };
            }
            Action::RequestReplay { attempt, start_seq } => {
                let phase = self.recovery.phase();
                if matches!(phase, PhaseKind::Verifying | PhaseKind::Replaying) {
                    // A view that lacks something asks for it; another bridge may have written it.
                    self.naming.look_again();
                }
                if engine.profile.replay {
                    let batches = engine.replay(start_seq);
                    self.answers.replay((now, attempt), batches, faults, &mut self.rng);
                }
            }
            Action::Announce { trust, reason } => {
                if trust.device < self.told.device || trust.host < self.told.host {
                    let (trust, reason) = (trust.device, reason.as_str());
                    self.author.withdrawn(trust, reason, Some(&mut self.naming));
                    self.hand_over();
                    self.told = TierTrust::default();
                }
            }
            Action::Record(Fact::Replayed) => self.naming.proven(self.unix_ms(now)),
            Action::Install { .. }
            | Action::RequestSnapshot { .. }
            | Action::CancelRequest
            | Action::Record(_) => (),
        }
        findings
    }

    fn envelope(&self, batch: Batch) -> Envelope {
        Envelope {
            replica: replica(),
            epoch: self.cursor.epoch,
            incarnation: batch.incarnation,
            seq: batch.seq,
            span: batch.span,
            digest: batch.digest,
            trust: self.told.device,
            ts: batch.ts,
            engine: EngineName { kind: EngineKind::Vllm, format: batch.format.to_owned() },
            hash: batch.hash,
            events: events_of(batch.events, batch.loss),
        }
    }
}

/// By ids that no earlier process of this bridge gave.
fn author(name: &str, starts: u64) -> Author {
    let ids = Arc::from(format!("{name}-{starts}"));
    let lane = Lane::new(replica(), EngineKind::Vllm, ids);
    Author::new(lane, UNNAMED, FILL_MS).by(Arc::from(name))
}

fn capabilities(profile: &Profile) -> Capabilities {
    Capabilities {
        epoch_on_wire: profile.epoch_on_wire,
        replay: if profile.replay { Replay::Journal } else { Replay::Absent },
        snapshot: None,
        continuity: Continuity::Proven,
        removal: Removal::PerCopy,
        clear_scope: Scope::Tiers(vec![Tier::Device]),
        drain: Drain::Shared,
        one_hash_per_block: true,
    }
}

#[path = "bridge_log.rs"]
mod log_side;
