//! One run: an engine, bridges, a log and its readers in one thread, by one seed.

use std::collections::{BTreeSet, VecDeque};

use kvbridge::{
    api::{Attempt, SnapshotRefusal},
    schemas::{Cursor, Status, Trust},
    shared_log::Pointer,
};

use crate::{
    age::Age,
    bridge::{Bridge, Cut},
    consumer::{Asked, Consumer},
    desk::Registry,
    engine::{Engine, Profile, Quirks},
    faults::{Fault, Faults, Strike},
    invariants::Violation,
    log::{Log, Objects},
    mistakes::Mistake,
    reading::{self, Part},
    rng::Rng,
    setting::Trace,
};

/// Model milliseconds with faults on, then with faults off.
const FAULTY_MS: u64 = 4_000;
const CALM_MS: u64 = 4_000;
const STEP_MS: u64 = 5;

/// How long a bridge waits for the log before it says that it has no view to give.
const PUBLISHED_MS: u64 = 60;

/// A cut that waits for the log, for a reader.
struct Fresh {
    asker: (usize, Attempt),
    cut: Cut,
    /// Where the newest reset ends that it met.
    reset: Option<Cursor>,
    /// The one it had last, if that still serves.
    again: Option<Pointer>,
    until: u64,
}

/// The whole of one run.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) engine: Engine,
    pub(crate) age: Age,
    pub(crate) bridges: Vec<Bridge>,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) log: Log,
    pub(crate) trace: Trace,
    /// How often a bridge came back to a life that nobody could compare.
    pub(crate) unknown: u64,
    /// How late a heartbeat may come.
    pub(crate) status_delay_max: u64,
    pub(crate) registry: Registry,
    pub(crate) objects: Objects,
    pub(crate) faults: Faults,
    /// Snapshots on their way for whoever asked.
    fresh: Vec<Fresh>,
    /// Somebody who stood here was told that the log has passed it.
    pub(crate) truncated: Option<Cursor>,
    /// How many messages the log had a second before the end.
    log_before: u64,
    /// Heartbeats under way, for each reader.
    words: Vec<VecDeque<(u64, Status)>>,
    paused_until: u64,
    rate: u64,
    mistake: Option<Mistake>,
    rng: Rng,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        mistake: Option<Mistake>,
        spared: BTreeSet<Strike>,
        trace: Trace,
    ) -> World {
        let mut rng = Rng::new(seed);
        let profile = profile(&mut rng);
        let mut faults = Faults::sparing(spared);
        faults.swarm(&Fault::HOP, 3_500, &mut rng);
        // The first hop has its own simulator: here it is a little kinder.
        for fault in [Fault::RestartMidway, Fault::RestartAligned, Fault::Straggler] {
            faults.set(fault, 0);
        }
        faults.swarm(&Fault::BUS, 4_000, &mut rng);
        let mut server = Rng::new(!seed);
        faults.swarm(&Fault::SERVER, 2_500, &mut server);
        let bridges = bridges(&profile, mistake, &trace, &mut rng);
        let names = ["near", "late"];
        let joins = [rng.below(200), rng.below(FAULTY_MS + CALM_MS / 4)];
        let consumers: Vec<Consumer> = names
            .into_iter()
            .zip(joins)
            .map(|(name, at)| Consumer::new(name, at, mistake, trace.clone(), rng.fork()))
            .collect();
        let kept_max = [30, 150, 100_000][usize::try_from(rng.below(3)).unwrap()];
        let objects = Objects {
            last_writer_wins: mistake == Some(Mistake::LastWriterWins),
            ..Objects::default()
        };
        World {
            now: 0,
            engine: Engine::new(profile, &mut rng.fork()),
            age: Age::default(),
            bridges,
            words: consumers.iter().map(|_| VecDeque::new()).collect(),
            consumers,
            log: Log::new(kept_max, 400 + rng.below(1_000), server),
            trace,
            unknown: 0,
            status_delay_max: if faults.has(Fault::StatusSlow) { 120 } else { 10 },
            registry: Registry::default(),
            objects,
            fresh: Vec::new(),
            truncated: None,
            log_before: 0,
            faults,
            paused_until: 0,
            rate: 500 + rng.below(3_000),
            mistake,
            rng,
        }
    }

    /// Runs both phases; the first violation ends it.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        if self.rng.hit(5_000) {
            for _ in 0..self.rng.below(60) {
                self.engine.step(0, Quirks::default());
            }
        }
        for bridge in &mut self.bridges {
            bridge.live.reattach_at = Some(self.rng.below(100));
        }
        while self.now < FAULTY_MS {
            self.turn()?;
        }
        self.faults = self.faults.none();
        self.consumers.iter_mut().for_each(Consumer::hurry);
        self.trace.say(|| format!("{:>6} ---- faults off ----", self.now));
        while self.now < FAULTY_MS + CALM_MS {
            self.turn()?;
        }
        self.check_liveness()
    }

    fn turn(&mut self) -> Result<(), Violation> {
        self.now += STEP_MS;
        self.engine_turn();
        self.age.note(self.now, &self.engine);
        self.bridges_turn()?;
        let last_second = self.now > FAULTY_MS + CALM_MS - 1_000;
        if !last_second {
            self.log_before = self.log.ends().last.0;
            self.consumers.iter_mut().for_each(|it| it.work_before = it.replay_work);
        }
        for bridge in &mut self.bridges {
            let least = if last_second { bridge.least } else { Trust::Exact };
            bridge.least = least.min(bridge.trust.device);
        }
        self.log_turn();
        self.words_turn();
        for at in 0..self.consumers.len() {
            self.consumers[at].turn(self.now, &self.log, &self.faults)?;
            if let Some((attempt, asked)) = self.consumers[at].due(self.now)
                && let Some(parts) = self.answer((at, attempt), asked)
            {
                self.consumers[at].answer(self.now, attempt, parts);
            }
            let consumer = &mut self.consumers[at];
            consumer.repairs.announced(self.now, consumer.trust.device);
            consumer.repairs.looked();
        }
        self.fresh_turn();
        self.check_told()?;
        self.check_safety()
    }

    fn engine_turn(&mut self) {
        if self.faults.strike(Fault::Pause, &mut self.rng) {
            self.paused_until = self.now + self.rng.below(1_500);
        }
        if self.faults.strike(Fault::Restart, &mut self.rng) {
            self.trace.say(|| format!("{:>6} ---- engine restarts ----", self.now));
            self.engine.restart(self.now);
            for bridge in &mut self.bridges {
                let back_after = 5 + self.rng.below(200);
                bridge.live.detach(self.now, back_after);
            }
        }
        for bridge in &mut self.bridges {
            if self.faults.strike(Fault::Detach, &mut self.rng) {
                let back_after = 5 + self.rng.below(600);
                bridge.live.detach(self.now, back_after);
            }
        }
        if self.now < self.paused_until || !self.rng.hit(self.rate) {
            return;
        }
        let quirks = Quirks {
            burn_seq: self.faults.strike(Fault::Burn, &mut self.rng),
            poison: self.faults.strike(Fault::Poison, &mut self.rng),
            lose_store: self.faults.strike(Fault::LoseStore, &mut self.rng),
            unknown_tag: self.faults.strike(Fault::UnknownTag, &mut self.rng),
            clear: self.faults.strike(Fault::Clear, &mut self.rng),
            repair: self.faults.strike(Fault::Repair, &mut self.rng),
        };
        if let Some(batch) = self.engine.step(self.now, quirks) {
            for bridge in &mut self.bridges {
                bridge.live.send(self.now, batch.clone(), &self.faults, &mut self.rng);
            }
        }
    }

    fn bridges_turn(&mut self) -> Result<(), Violation> {
        for bridge in &mut self.bridges {
            if self.faults.strike(Fault::BridgeRestart, &mut self.rng) {
                self.unknown += 1;
                bridge.restart(self.now, &self.faults);
            }
            bridge.turn(self.now, &mut self.engine, &self.faults)?;
            let bus = (&mut self.log, &mut self.registry, &mut self.objects);
            bridge.bus_turn(self.now, bus, &self.faults)?;
        }
        Ok(())
    }

    fn log_turn(&mut self) {
        self.log.turn(self.now, &self.faults);
        if self.faults.strike(Fault::MadeAnew, &mut self.rng) {
            self.trace.say(|| format!("{:>6} ---- log made anew ----", self.now));
            self.log.make_anew(self.now);
        }
        if self.faults.strike(Fault::RegistryLost, &mut self.rng) {
            self.trace.say(|| format!("{:>6} ---- registry lost ----", self.now));
            self.registry.lose();
        }
        if self.mistake == Some(Mistake::RegistryWithTtl) {
            self.registry.expire(self.now);
        }
        if self.faults.strike(Fault::Others, &mut self.rng) {
            self.log.others_write(1 + self.rng.below(12));
        }
    }

    /// Heartbeats, each on its own way to each reader.
    fn words_turn(&mut self) {
        for bridge in &mut self.bridges {
            let Some(status) = bridge.status(self.now) else { continue };
            self.registry.say(self.now, bridge.name, status.clone());
            for words in &mut self.words {
                if self.faults.strike(Fault::StatusLost, &mut self.rng) {
                    continue;
                }
                let slow = self.faults.strike(Fault::StatusSlow, &mut self.rng);
                let delay = 1 + self.rng.below(if slow { 110 } else { 5 });
                words.push_back((self.now + delay, status.clone()));
            }
        }
        for (consumer, words) in self.consumers.iter_mut().zip(&mut self.words) {
            while let Some((_, status)) = words.pop_front_if(|(at, _)| *at <= self.now) {
                consumer.vouches.heard(self.now, &status);
            }
        }
    }

    /// How many messages came in the last second.
    pub(crate) fn news(&self) -> u64 {
        self.log.ends().last.0.saturating_sub(self.log_before)
    }

    /// `None` = the answer comes later.
    fn answer(&mut self, (at, attempt): (usize, Attempt), asked: Asked) -> Option<Vec<Part>> {
        if !self.consumers[at].is_attached(&self.log) {
            return Some(vec![Part::Failed]);
        }
        match asked {
            Asked::Replay(known) => {
                let parts = reading::replay(&self.log, &known, self.mistake);
                if matches!(parts[..], [Part::Truncated]) {
                    self.truncated = Some(self.consumers[at].recovery.cursor());
                }
                Some(parts)
            }
            Asked::Snapshot { object: None, reset, taken } => {
                self.best_snapshot((at, attempt), reset, taken)
            }
            Asked::Snapshot { object: Some(object), .. } => {
                Some(match self.objects.stored.get(&object) {
                    Some(object) => reading::snapshot(object, None),
                    None => vec![Part::Refused(SnapshotRefusal::Unavailable)],
                })
            }
        }
    }

    /// The pointed one, if all that came behind it is still there, it is from behind the reset that
    /// the reader met, and it was not taken last; else a fresh one, or the same again if none is to
    /// be had.
    fn best_snapshot(
        &mut self,
        asker: (usize, Attempt),
        reset: Option<Cursor>,
        taken: Option<Cursor>,
    ) -> Option<Vec<Part>> {
        if self.faults.strike(Fault::BusBusy, &mut self.rng) {
            return Some(vec![Part::Refused(SnapshotRefusal::Busy)]);
        }
        let pointed = self.objects.pointer.clone().filter(|it| self.is_usable(it, reset));
        let again = match pointed {
            Some(pointer) if !pointer.is_cut(taken) => return Some(self.stored(&pointer)),
            again => again,
        };
        // One of those that are there answers.
        let count = self.bridges.len();
        let first = usize::try_from(self.rng.below(count as u64)).unwrap();
        let mut order = (0..count).map(|at| (first + at) % count);
        let there = order.find(|at| self.bridges[*at].sender.is_connected());
        let cut = there.and_then(|there| self.bridges[there].cut_for(self.now, &self.log));
        match (cut, again) {
            (Some(cut), again) => {
                let until = self.now + PUBLISHED_MS;
                self.fresh.push(Fresh { asker, cut, reset, again, until });
                None
            }
            (None, Some(again)) => Some(self.stored(&again)),
            (None, None) if there.is_none() => {
                Some(vec![Part::Refused(SnapshotRefusal::Unavailable)])
            }
            (None, None) => Some(vec![Part::Refused(SnapshotRefusal::Busy)]),
        }
    }

    fn is_usable(&self, pointer: &Pointer, reset: Option<Cursor>) -> bool {
        pointer.leads_on(self.log.ends(), self.log.life()) && pointer.is_behind(reset)
    }

    fn stored(&self, pointer: &Pointer) -> Vec<Part> {
        match self.objects.stored.get(&pointer.object) {
            Some(object) => reading::snapshot(object, Some(reading::behind(pointer))),
            None => vec![Part::Refused(SnapshotRefusal::Busy)],
        }
    }

    /// Cuts are stored when the log has all that they were folded from.
    fn fresh_turn(&mut self) {
        for fresh in std::mem::take(&mut self.fresh) {
            let Fresh { asker: (at, attempt), cut, reset, again, until } = fresh;
            let published = cut.is_published(&self.log);
            let parts = if published && self.is_usable(&cut.pointer, reset) {
                self.objects.advance(cut.pointer.clone(), cut.object, cut.reset.max(reset));
                self.stored(&cut.pointer)
            } else if self.now < until && !published {
                self.fresh.push(Fresh { asker: (at, attempt), cut, reset, again, until });
                continue;
            } else if let Some(again) = again.filter(|again| self.is_usable(again, reset)) {
                self.stored(&again)
            } else {
                vec![Part::Refused(SnapshotRefusal::Busy)]
            };
            self.consumers[at].answer(self.now, attempt, parts);
        }
    }
}

fn bridges(
    profile: &Profile,
    mistake: Option<Mistake>,
    trace: &Trace,
    rng: &mut Rng,
) -> Vec<Bridge> {
    let names: &[&'static str] = if rng.hit(7_000) { &["a", "b"] } else { &["a"] };
    names.iter().map(|it| Bridge::new(it, profile, mistake, trace.clone(), rng.fork())).collect()
}

fn profile(rng: &mut Rng) -> Profile {
    Profile {
        epoch_on_wire: false,
        journal_max: [5, 40, 10_000][usize::try_from(rng.below(3)).unwrap()],
        host_tier: rng.hit(4_000),
        groups: 1 + u32::from(rng.hit(3_000)),
        pool: 8 + usize::try_from(rng.below(16)).unwrap(),
        // Bridges that compare three batches cannot tell lives of which more are the same.
        frozen_clock: false,
        replay: rng.hit(9_000),
        snapshot: false,
        unproven: false,
        drained: false,
        counts: true,
        radix: None,
    }
}
