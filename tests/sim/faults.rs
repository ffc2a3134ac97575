//! What goes wrong, in both simulators: which faults a run has and how often, and how often each of
//! them struck. A seed turns most of them off and gives the rest wild rates (swarm).
//!
//! Every fault is struck through [`Faults::strike`], which counts it and can spare it: so a failing
//! run can be made again with fewer and fewer of its faults (`shrink.rs`).

use std::{cell::RefCell, collections::BTreeSet, fmt, rc::Rc};

use crate::rng::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A live frame is lost on the way.
    Drop,
    /// A run of live frames is lost.
    Burst,
    /// The live connection breaks and comes back.
    Detach,
    /// After attaching, the first frames are not delivered.
    SlowJoiner,
    /// The engine restarts.
    Restart,
    /// … just while a replay or snapshot is open.
    RestartMidway,
    /// … so that a source which cannot see its reconnects meets exactly the next seq.
    RestartAligned,
    /// Our own queue overflows.
    Overflow,
    /// A live frame comes twice.
    Twice,
    /// A replay answer is cut at its tail, with its end marker or without.
    Cut,
    /// A replay answer loses one frame inside.
    AnswerDrop,
    /// The end marker is lost.
    EndLost,
    /// The whole answer is lost.
    AnswerLost,
    /// Answers take long.
    AnswerSlow,
    /// A seq is burnt by the publisher.
    Burn,
    /// A body that nobody can read.
    Poison,
    /// A store that cannot be read.
    LoseStore,
    /// An event type of the future.
    UnknownTag,
    /// The engine flushes.
    Clear,
    /// A snapshot answer has a record too few.
    Short,
    /// The source is busy when a snapshot is asked for.
    Busy,
    /// The engine stops publishing for a while.
    Pause,
    /// A batch of a closed life arrives late (wires with epochs).
    Straggler,
    /// A bridge between engine and us clears what it cannot prove (wires with epochs).
    Repair,
    /// The live stream lags: a replay runs far ahead of it.
    Lag,
    /// Another reader of a source that is drained took some batches away.
    Stolen,
    /// Our process ends and comes back with a checkpoint that is some batches old.
    ProcessRestart,
    // Behind the bridges.
    /// A bridge loses the log for a while.
    BridgeCut,
    /// Some messages of a window are not stored, and later ones are.
    NotStored,
    /// A message is stored, and its writer does not hear it.
    AckLost,
    /// A reader loses the log for a while.
    ReaderCut,
    /// A reader's process ends and comes back, with what it kept or without.
    ReaderRestart,
    /// A bridge's process ends and comes back.
    BridgeRestart,
    /// The registry is lost.
    RegistryLost,
    /// The stream is gone and made anew.
    MadeAnew,
    /// Other replicas fill the stream.
    Others,
    /// Heartbeats are lost.
    StatusLost,
    /// Heartbeats take long.
    StatusSlow,
    /// Snapshots are asked of the bus in vain.
    BusBusy,
    /// The live path to a reader leaves out some messages of the stream.
    ReaderMiss,
    /// A bridge comes back with another wall clock, up to a day off either way.
    ClockJump,
    /// A bridge comes back with another decoder: of the same bytes it reads less.
    OtherDecoder,
    /// The server's disk is full for a while: it stores nothing, and heartbeats still come.
    DiskFull,
}

impl Fault {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = Fault::DiskFull as usize + 1;

    /// Between engine and machine: each kind, and its most per ten thousand opportunities.
    pub(crate) const HOP: [(Fault, u64); 25] = [
        (Fault::Drop, 1_500),
        (Fault::Burst, 200),
        (Fault::Detach, 200),
        (Fault::SlowJoiner, 8_000),
        (Fault::Restart, 100),
        (Fault::RestartMidway, 1_000),
        (Fault::RestartAligned, 8_000),
        (Fault::Overflow, 200),
        (Fault::Twice, 1_000),
        (Fault::Cut, 4_000),
        (Fault::AnswerDrop, 3_000),
        (Fault::EndLost, 4_000),
        (Fault::AnswerLost, 2_000),
        (Fault::AnswerSlow, 4_000),
        (Fault::Burn, 150),
        (Fault::Poison, 150),
        (Fault::LoseStore, 100),
        (Fault::UnknownTag, 50),
        (Fault::Clear, 300),
        (Fault::Short, 3_000),
        (Fault::Busy, 4_000),
        (Fault::Pause, 100),
        (Fault::Straggler, 500),
        (Fault::Repair, 100),
        (Fault::Lag, 300),
    ];

    /// Behind the bridges.
    pub(crate) const BUS: [(Fault, u64); 15] = [
        (Fault::BridgeCut, 100),
        (Fault::NotStored, 500),
        (Fault::AckLost, 1_000),
        (Fault::ReaderCut, 150),
        (Fault::ReaderRestart, 60),
        (Fault::BridgeRestart, 40),
        (Fault::RegistryLost, 15),
        (Fault::MadeAnew, 20),
        (Fault::Others, 2_000),
        (Fault::StatusLost, 6_000),
        (Fault::StatusSlow, 4_000),
        (Fault::BusBusy, 5_000),
        (Fault::ReaderMiss, 200),
        (Fault::ClockJump, 8_000),
        (Fault::OtherDecoder, 3_000),
    ];

    /// Of the server alone. Drawn apart, so that the runs of other seeds stay what they were.
    pub(crate) const SERVER: [(Fault, u64); 1] = [(Fault::DiskFull, 25)];

    /// Every kind that a table tells of.
    pub(crate) fn all() -> impl Iterator<Item = (Fault, u64)> {
        Fault::HOP.into_iter().chain(Fault::BUS).chain(Fault::SERVER)
    }
}

/// One fault that struck: its kind, and the how-manieth of that kind in its run.
pub(crate) type Strike = (Fault, u64);

/// What struck in a run, and what is spared.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    struck: RefCell<Counts>,
    spared: BTreeSet<Strike>,
}

/// Rates per ten thousand, per opportunity.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    rates: [u64; Fault::COUNT],
    ledger: Rc<Ledger>,
}

impl Faults {
    /// None, in a run that spares these.
    pub(crate) fn sparing(spared: BTreeSet<Strike>) -> Faults {
        let ledger = Ledger { spared, ..Ledger::default() };
        Faults { rates: [0; Fault::COUNT], ledger: Rc::new(ledger) }
    }

    /// Those of one seed.
    pub(crate) fn swarm(&mut self, kinds: &[(Fault, u64)], each: u64, rng: &mut Rng) {
        for (fault, most) in kinds {
            if rng.hit(each) {
                self.rates[*fault as usize] = 1 + rng.below(*most);
            }
        }
    }

    pub(crate) fn set(&mut self, fault: Fault, rate: u64) {
        self.rates[fault as usize] = rate;
    }

    /// None but one kind, as often as a run ever has it, and those without which it has no
    /// opportunity: what is asked for again after a loss, and for some a restart.
    pub(crate) fn only(&mut self, kind: Fault) {
        self.rates = [0; Fault::COUNT];
        self.set(Fault::Drop, 200);
        if matches!(kind, Fault::RestartAligned | Fault::Straggler) {
            self.set(Fault::Restart, 30);
        }
        if matches!(kind, Fault::ClockJump | Fault::OtherDecoder) {
            self.set(Fault::BridgeRestart, 20);
        }
        let known = Fault::all().find(|(fault, _)| *fault == kind);
        self.set(kind, known.map_or(75, |(_, most)| most));
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.rates[fault as usize] > 0
    }

    /// No more of them, but what struck is still known.
    pub(crate) fn none(&self) -> Faults {
        Faults { rates: [0; Fault::COUNT], ledger: Rc::clone(&self.ledger) }
    }

    /// Whether this one strikes now. It draws always, so that other rates change no other draw.
    pub(crate) fn strike(&self, fault: Fault, rng: &mut Rng) -> bool {
        if !rng.hit(self.rates[fault as usize]) {
            return false;
        }
        let mut struck = self.ledger.struck.borrow_mut();
        let strike = (fault, struck.0[fault as usize]);
        struck.0[fault as usize] += 1;
        !self.ledger.spared.contains(&strike)
    }

    /// How often each kind struck, spared or not.
    pub(crate) fn struck(&self) -> Counts {
        self.ledger.struck.borrow().clone()
    }
}

/// How often each kind struck.
#[derive(Clone, Debug)]
pub(crate) struct Counts([u64; Fault::COUNT]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; Fault::COUNT])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn each(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        let kinds = Fault::all().map(|(fault, _)| fault);
        let kinds = kinds.chain([Fault::Stolen, Fault::ProcessRestart]);
        kinds.map(|fault| (fault, self.0[fault as usize])).filter(|(_, count)| *count > 0)
    }

    /// How often one kind struck.
    pub(crate) fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Each single one.
    pub(crate) fn strikes(&self) -> Vec<Strike> {
        self.each().flat_map(|(fault, count)| (0..count).map(move |at| (fault, at))).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> =
            self.each().map(|(fault, count)| format!("{fault:?} {count}")).collect();
        write!(f, "{} faults: {}", self.total(), each.join(", "))
    }
}
