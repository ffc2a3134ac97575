//! A reader of the log: the same machine and view as a bridge's, behind the reader's own memory.

use std::collections::VecDeque;

use kvbridge::{
    api::{AnswerPart, Attempt, Batch, Removal, SourceEvent, Upstream},
    recovery::{Action, Checkpoint, Finding, Input, Recovery, Settings, Tick, TrustReason},
    schemas::{BusSeq, Cursor, Epoch, Event, TierTrust},
    shared_log::{Follower, Joined, Known, Vouches, log_capabilities},
    view::View,
};

use crate::{
    faults::{Fault, Faults},
    invariants::Violation,
    log::{Log, Stored},
    mistakes::Mistake,
    reading::{self, Part, REORDER},
    repairs::Repairs,
    rng::Rng,
    setting::{STATUS_TTL_MS, Trace, brief, brief_action, bus_limits, view_settings},
};

/// Messages that wait to be read.
const INBOX_MAX: usize = 40;

/// Places remembered: few, so that some are searched for.
const POSITIONS_MAX: usize = 48;

enum Arrived {
    Attached(Joined),
    Detached,
    Overflowed,
    Message(Stored),
}

/// What is asked of the bus.
pub(crate) enum Asked {
    Replay(Known),
    /// The named one, or the best one from behind that reset for who took this one last.
    Snapshot {
        object: Option<String>,
        reset: Option<Cursor>,
        taken: Option<Cursor>,
    },
}

/// One reader.
pub(crate) struct Consumer {
    pub(crate) name: &'static str,
    pub(crate) recovery: Recovery,
    pub(crate) view: View,
    pub(crate) trust: TierTrust,
    pub(crate) repairs: Repairs,
    pub(crate) reason: TrustReason,
    trace: Trace,
    /// Batches that answers brought: what a reader costs the bus.
    pub(crate) replay_work: u64,
    /// The same a second before the end.
    pub(crate) work_before: u64,
    pub(crate) vouches: Vouches,
    /// The newest life that this process of it was in before its last input.
    pub(crate) epoch: Epoch,
    upstream: Option<Upstream>,
    follower: Follower,
    settings: Settings,
    inbox: VecDeque<Arrived>,
    /// Made of what was read, and not taken yet.
    ready: VecDeque<SourceEvent>,
    created: u64,
    through: BusSeq,
    attached: bool,
    /// A place that the live path left out, which a later one will tell.
    missed_at: Option<BusSeq>,
    attach_at: u64,
    look_at: u64,
    /// So many messages a turn.
    pace: u64,
    asked: Option<(u64, Attempt, Asked)>,
    answers: VecDeque<(u64, Attempt, Part)>,
    shadow: Option<(Attempt, View)>,
    /// Of a mistake.
    late_view: Option<View>,
    kept: Option<(Checkpoint, View)>,
    mistake: Option<Mistake>,
    rng: Rng,
}

impl Consumer {
    pub(crate) fn new(
        name: &'static str,
        joins_at: u64,
        mistake: Option<Mistake>,
        trace: Trace,
        mut rng: Rng,
    ) -> Consumer {
        let mut settings = Settings::new(log_capabilities(Removal::PerCopy), 5_000_000);
        settings.limits = bus_limits();
        settings.jitter_seed = rng.next();
        settings.planted = mistake.and_then(Mistake::of_consumer);
        let pace = [1, 3, 50][usize::try_from(rng.below(3)).unwrap()];
        Consumer {
            name,
            recovery: Recovery::new(settings.clone()),
            view: View::new(view_settings()),
            trust: TierTrust::default(),
            repairs: Repairs::default(),
            reason: TrustReason::Detached,
            trace,
            replay_work: 0,
            work_before: 0,
            missed_at: None,
            vouches: Vouches::new(STATUS_TTL_MS),
            epoch: Epoch(0),
            upstream: None,
            follower: Follower::new(REORDER, POSITIONS_MAX),
            settings,
            inbox: VecDeque::new(),
            ready: VecDeque::new(),
            created: 0,
            through: BusSeq(0),
            attached: false,
            attach_at: joins_at,
            look_at: 0,
            pace,
            asked: None,
            answers: VecDeque::new(),
            shadow: None,
            late_view: None,
            kept: None,
            mistake,
            rng,
        }
    }

    /// What it asks of the bus and is due to be answered now.
    pub(crate) fn due(&mut self, now: u64) -> Option<(Attempt, Asked)> {
        let (_, attempt, asked) = self.asked.take_if(|(at, _, _)| *at <= now)?;
        Some((attempt, asked))
    }

    /// A slow reader falls behind only while there are faults.
    pub(crate) fn hurry(&mut self) {
        self.pace = 50;
    }

    /// Its answer, part by part.
    pub(crate) fn answer(&mut self, now: u64, attempt: Attempt, parts: Vec<Part>) {
        let mut at = now + 1;
        for part in parts {
            at += self.rng.below(2);
            self.answers.push_back((at, attempt, part));
        }
    }

    /// One turn: the connection, what it brings, and the machine.
    pub(crate) fn turn(&mut self, now: u64, log: &Log, faults: &Faults) -> Result<(), Violation> {
        if let Some(view) = self.late_view.take_if(|_| self.rng.hit(2_000)) {
            self.view = view;
        }
        self.process(now, faults);
        self.connection(now, log, faults);
        self.hear(now)?;
        let mut left = self.pace;
        while left > 0 {
            left -= 1;
            let inbox_first = self.rng.hit(5_000);
            let read = (inbox_first && self.read(now)?) || self.take_answer(now)?;
            if !read && !self.read(now)? {
                break;
            }
        }
        if self.follower.deadline().is_some_and(|at| at <= Tick(now)) {
            let mut out = Vec::new();
            self.follower.expire(Tick(now), &mut out);
            self.deliver(now, out)?;
        }
        let mut guard = 0;
        while self.recovery.next_deadline().is_some_and(|at| at <= Tick(now)) {
            self.step(now, Input::DeadlineReached)?;
            guard += 1;
            assert!(guard < 50, "deadlines do not move on");
        }
        Ok(())
    }

    /// What bridges say, if that has changed.
    fn hear(&mut self, now: u64) -> Result<(), Violation> {
        let mut best = self.vouches.best(now);
        if let (Upstream::Vouched { cursor, view, .. }, Some(Mistake::ViewsIgnored)) =
            (&mut best, self.mistake)
        {
            *view = cursor.next_seq;
        }
        if self.upstream == Some(best) || self.mistake == Some(Mistake::UpstreamIgnored) {
            return Ok(());
        }
        self.upstream = Some(best);
        self.step(now, Input::Source(SourceEvent::Upstream(best)))
    }

    fn read(&mut self, now: u64) -> Result<bool, Violation> {
        let Some(arrived) = self.inbox.pop_front() else { return Ok(false) };
        let mut out = Vec::new();
        let said = match arrived {
            Arrived::Attached(joined) => {
                self.follower.attached(joined.continuous, joined.same_log);
                Some(SourceEvent::Attached)
            }
            Arrived::Detached => {
                self.answers.clear();
                self.follower.detached(&mut out);
                Some(SourceEvent::Detached)
            }
            Arrived::Overflowed => {
                self.follower.overflowed(&mut out);
                Some(SourceEvent::Overflowed)
            }
            Arrived::Message(stored) => {
                if stored.envelope.span == 0 {
                    self.said(now, &stored);
                } else {
                    let batch = reading::read(&stored);
                    self.follower.live(Tick(now), batch, stored.at, &mut out);
                }
                None
            }
        };
        self.ready.extend(out.into_iter().map(SourceEvent::Live));
        self.ready.extend(said);
        self.drain(now)?;
        Ok(true)
    }

    /// A word of a bridge that stands in the log itself.
    fn said(&mut self, now: u64, stored: &Stored) {
        if let Some(Event::Trust(said)) = stored.envelope.events.first() {
            let at = Cursor { epoch: stored.envelope.epoch, next_seq: stored.envelope.seq };
            self.vouches.said(now, &said.bridge, at, said.trust);
        }
    }

    fn deliver(&mut self, now: u64, batches: Vec<Batch>) -> Result<(), Violation> {
        let live = batches.into_iter().map(SourceEvent::Live);
        self.ready.extend(live);
        self.drain(now)
    }

    fn drain(&mut self, now: u64) -> Result<(), Violation> {
        while let Some(event) = self.ready.pop_front() {
            self.step(now, Input::Source(event))?;
        }
        Ok(())
    }

    fn take_answer(&mut self, now: u64) -> Result<bool, Violation> {
        if self.answers.front().is_none_or(|(at, _, _)| *at > now) {
            return Ok(false);
        }
        let Some((_, attempt, part)) = self.answers.pop_front() else { return Ok(false) };
        let part = match part {
            Part::Batch(batch, at) => {
                self.replay_work += 1;
                self.follower.replayed(&batch, at);
                AnswerPart::Batch(batch)
            }
            Part::Continues(cursor) => AnswerPart::Continues(cursor),
            Part::End(through) => {
                if let Some(through) = through {
                    let newest = self.follower.ended(through);
                    let part = AnswerPart::Continues(newest);
                    self.ready.push_back(SourceEvent::Answer { attempt, part });
                }
                AnswerPart::End
            }
            Part::Truncated => AnswerPart::Truncated,
            Part::Failed => AnswerPart::Failed,
            Part::Intro(intro, behind) => {
                self.follower.snapshot(behind);
                AnswerPart::SnapshotIntro(intro)
            }
            Part::Records(records) => {
                let count = records.len() as u64;
                if let Some((open, shadow)) = &mut self.shadow
                    && *open == attempt
                {
                    for record in records {
                        shadow.install_record(record).map_err(|e| Violation::new(e.to_string()))?;
                    }
                }
                AnswerPart::SnapshotRecords(count)
            }
            Part::SnapshotEnd => AnswerPart::SnapshotEnd,
            Part::Refused(refusal) => AnswerPart::SnapshotRefused(refusal),
        };
        self.tell(now, attempt, part)?;
        Ok(true)
    }

    fn tell(&mut self, now: u64, attempt: Attempt, part: AnswerPart) -> Result<(), Violation> {
        self.ready.push_back(SourceEvent::Answer { attempt, part });
        self.drain(now)
    }

    fn step(&mut self, now: u64, input: Input) -> Result<(), Violation> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.trace.say(|| format!("{now:>6} {} {}", self.name, brief(&input)));
            let mut actions = Vec::new();
            self.epoch = self.epoch.max(self.recovery.cursor().epoch);
            self.recovery.step(Tick(now), input, &mut actions);
            for action in actions {
                inputs.extend(self.perform(now, action)?.into_iter().map(Input::Finding));
            }
        }
        Ok(())
    }

    fn perform(&mut self, now: u64, action: Action) -> Result<Vec<Finding>, Violation> {
        self.trace.say(|| format!("       -> {}", brief_action(&action)));
        let mut findings = Vec::new();
        match action {
            Action::Apply(batch) => {
                self.view.apply(&batch.events, &mut Vec::new(), &mut findings);
            }
            Action::Clear { .. } => self.view = View::new(view_settings()),
            Action::Install { attempt, .. } => {
                let shadow = self.shadow.take_if(|(open, _)| *open == attempt);
                let Some((_, shadow)) = shadow else {
                    return Err(Violation::new("install without a shadow view"));
                };
                if self.mistake == Some(Mistake::AnnounceOvertakesInstall) {
                    self.late_view = Some(shadow);
                } else {
                    self.view = shadow;
                }
            }
            Action::RequestReplay { attempt, start_seq } => {
                let idle = self.inbox.is_empty() && self.ready.is_empty();
                let known = self.follower.known(start_seq, idle.then_some(self.through));
                self.ask(now, attempt, Asked::Replay(known));
            }
            Action::RequestSnapshot { attempt, object } => {
                self.shadow = Some((attempt, View::new(view_settings())));
                let (reset, taken) = (self.follower.reset(), self.follower.taken());
                self.ask(now, attempt, Asked::Snapshot { object, reset, taken });
            }
            Action::CancelRequest => {
                (self.asked, self.shadow) = (None, None);
                self.answers.clear();
            }
            Action::Announce { trust, reason } => (self.trust, self.reason) = (trust, reason),
            Action::Record(_) => (),
        }
        Ok(findings)
    }

    fn ask(&mut self, now: u64, attempt: Attempt, asked: Asked) {
        let delay = 2 + self.rng.below(12);
        self.asked = Some((now + delay, attempt, asked));
    }

    /// Whether it reads the log that there is now.
    pub(crate) fn is_attached(&self, log: &Log) -> bool {
        self.attached && self.created == log.ends().created
    }
}

#[path = "consumer_link.rs"]
mod link_side;
