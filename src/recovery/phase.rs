//! What the machine is doing, with the data that only means something while it does it.

use kvbridge_adapters_api::{Attempt, Batch, SnapshotIntro};
use kvbridge_schemas::{Digest, Seq};

use super::Tick;

/// The phase. Transitions go through `Recovery::enter`, which asserts [`PhaseKind::may_become`].
#[derive(Debug)]
pub(super) enum Phase {
    /// Not attached. The view is kept, trust is none.
    Detached,
    /// Two publishers answer under one name; everything is ignored until then.
    Quarantined { until: Tick },
    /// Over a limit of this process: nothing is kept and nothing is read until it is released.
    Shed { attached: bool },
    /// Attached, view empty, no proof yet that the first batch we see is the first one ever sent.
    Joining { ask_at: Tick },
    /// Reattached with the old view: the engine is asked whether it is the same life.
    Verifying(Asking),
    /// Batches are missing and asked for.
    Replaying(Asking),
    /// The whole state is being fetched.
    Snapshotting(Fetch),
    /// Contiguous since a proven start.
    Live(Probe),
    /// Contiguous since a point; history before is unknown and nobody can give it to us.
    Partial(Probe),
}

/// The phase without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseKind {
    /// See [`Recovery::phase`](super::Recovery::phase): not attached.
    Detached,
    /// Ignoring two publishers under one name.
    Quarantined,
    /// Given up to keep the process within its limits.
    Shed,
    /// Attached, nothing known.
    Joining,
    /// Reattached, lineage in doubt.
    Verifying,
    /// A replay is open.
    Replaying,
    /// A snapshot is open.
    Snapshotting,
    /// Contiguous since a proven start.
    Live,
    /// Contiguous since a point.
    Partial,
}

impl PhaseKind {
    /// Every phase, in the order of the contract.
    pub const ALL: [PhaseKind; 9] = [
        PhaseKind::Detached,
        PhaseKind::Quarantined,
        PhaseKind::Shed,
        PhaseKind::Joining,
        PhaseKind::Verifying,
        PhaseKind::Replaying,
        PhaseKind::Snapshotting,
        PhaseKind::Live,
        PhaseKind::Partial,
    ];

    /// The word shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            PhaseKind::Detached => "detached",
            PhaseKind::Quarantined => "quarantined",
            PhaseKind::Shed => "shed",
            PhaseKind::Joining => "joining",
            PhaseKind::Verifying => "verifying",
            PhaseKind::Replaying => "replaying",
            PhaseKind::Snapshotting => "snapshotting",
            PhaseKind::Live => "live",
            PhaseKind::Partial => "partial",
        }
    }

    /// Whether the machine may go from here to `next` in one move.
    pub(super) fn may_become(self, next: PhaseKind) -> bool {
        match self {
            // Nothing is believed of a stream that was just attached, so never straight to Live.
            PhaseKind::Detached => !matches!(next, PhaseKind::Live | PhaseKind::Replaying),
            PhaseKind::Quarantined => matches!(
                next,
                PhaseKind::Quarantined | PhaseKind::Joining | PhaseKind::Detached | PhaseKind::Shed
            ),
            // Released, a replica starts as one that was never attached.
            PhaseKind::Shed => next == PhaseKind::Detached,
            // Verifying is about a kept view; it is entered from Detached alone.
            PhaseKind::Joining
            | PhaseKind::Replaying
            | PhaseKind::Snapshotting
            | PhaseKind::Live
            | PhaseKind::Partial => next != PhaseKind::Verifying,
            PhaseKind::Verifying => true,
        }
    }
}

impl Phase {
    pub(super) fn kind(&self) -> PhaseKind {
        match self {
            Phase::Detached => PhaseKind::Detached,
            Phase::Quarantined { .. } => PhaseKind::Quarantined,
            Phase::Shed { .. } => PhaseKind::Shed,
            Phase::Joining { .. } => PhaseKind::Joining,
            Phase::Verifying(_) => PhaseKind::Verifying,
            Phase::Replaying(_) => PhaseKind::Replaying,
            Phase::Snapshotting(_) => PhaseKind::Snapshotting,
            Phase::Live(_) => PhaseKind::Live,
            Phase::Partial(_) => PhaseKind::Partial,
        }
    }

    /// The replay work in this phase, a probe's included.
    pub(super) fn asking(&mut self) -> Option<&mut Asking> {
        match self {
            Phase::Verifying(asking) | Phase::Replaying(asking) => Some(asking),
            Phase::Live(Probe::Open(asking)) | Phase::Partial(Probe::Open(asking)) => Some(asking),
            Phase::Live(_)
            | Phase::Partial(_)
            | Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. }
            | Phase::Snapshotting(_) => None,
        }
    }

    /// The attempt whose answer is awaited.
    pub(super) fn open_attempt(&self) -> Option<Attempt> {
        match self {
            Phase::Verifying(asking)
            | Phase::Replaying(asking)
            | Phase::Live(Probe::Open(asking))
            | Phase::Partial(Probe::Open(asking)) => asking.ask.attempt(),
            Phase::Snapshotting(fetch) => fetch.ask.attempt(),
            Phase::Live(_)
            | Phase::Partial(_)
            | Phase::Detached
            | Phase::Quarantined { .. }
            | Phase::Shed { .. }
            | Phase::Joining { .. } => None,
        }
    }

    /// The moment at which this phase must act.
    pub(super) fn deadline(&self) -> Option<Tick> {
        match self {
            Phase::Detached | Phase::Shed { .. } => None,
            Phase::Quarantined { until } => Some(*until),
            Phase::Joining { ask_at } => Some(*ask_at),
            Phase::Verifying(asking) | Phase::Replaying(asking) => Some(asking.ask.at()),
            Phase::Snapshotting(fetch) => Some(fetch.ask.at()),
            Phase::Live(probe) | Phase::Partial(probe) => match probe {
                Probe::Off => None,
                Probe::At(at) => Some(*at),
                Probe::Open(asking) => Some(asking.ask.at()),
            },
        }
    }
}

/// The look at an engine that is settled.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per replica, and no allocation per probe")]
pub(super) enum Probe {
    /// The source cannot be probed.
    Off,
    /// The next one is due then.
    At(Tick),
    /// One is open; trust stays as it was.
    Open(Asking),
}

/// A request that is due, or the open answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Due(Tick),
    Open { attempt: Attempt, deadline: Tick },
}

impl Ask {
    pub(super) fn attempt(self) -> Option<Attempt> {
        match self {
            Ask::Due(_) => None,
            Ask::Open { attempt, .. } => Some(attempt),
        }
    }

    pub(super) fn at(self) -> Tick {
        match self {
            Ask::Due(at) => at,
            Ask::Open { deadline, .. } => deadline,
        }
    }
}

/// A replay in the making: requests are repeated until it is proven complete or given up.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what one answer has shown so far, fact by fact")]
pub(super) struct Asking {
    pub(super) ask: Ask,
    /// A look at a settled engine: withdraws nothing while it is open.
    pub(super) probe: bool,
    /// The seq this answer must bring next; unknown before its first batch.
    pub(super) expect: Option<Seq>,
    /// This answer returned the last applied batch with the digest we keep.
    pub(super) anchored: bool,
    /// The log's own numbers said that the view misses nothing before the rest of this answer.
    pub(super) continues: bool,
    /// This answer brought batches that were not applied before.
    pub(super) advanced: bool,
    /// Where this answer jumped. What follows is not applied.
    pub(super) jump: Option<Jump>,
    /// Where an earlier answer jumped, proven complete behind the jump.
    pub(super) earlier_jump: Option<(Seq, Digest)>,
    /// Answers in a row that held nothing but their end marker.
    pub(super) end_only: u32,
    /// Attempts in a row that brought us no nearer to the newest batch.
    pub(super) fruitless: u32,
    /// The smallest distance to the newest batch so far.
    pub(super) distance: u64,
    /// Held batches were dropped once; the journal returns them.
    pub(super) held_dropped: bool,
}

/// A place where a replay answer skipped seqs.
#[derive(Debug)]
pub(super) struct Jump {
    /// The first batch behind the jump.
    pub(super) batch: Batch,
    /// A live batch lies behind it, so the answer was not merely cut there.
    pub(super) complete: bool,
}

impl Asking {
    pub(super) fn due(at: Tick, probe: bool) -> Asking {
        Asking {
            ask: Ask::Due(at),
            probe,
            expect: None,
            anchored: false,
            continues: false,
            advanced: false,
            jump: None,
            earlier_jump: None,
            end_only: 0,
            fruitless: 0,
            distance: u64::MAX,
            held_dropped: false,
        }
    }

    /// Forgets what belongs to one answer, ahead of the next.
    pub(super) fn reopen(&mut self, ask: Ask) {
        self.ask = ask;
        self.expect = None;
        self.anchored = false;
        self.continues = false;
        self.advanced = false;
        self.jump = None;
    }
}

/// A snapshot in the making.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) ask: Ask,
    pub(super) object: Option<String>,
    pub(super) intro: Option<SnapshotIntro>,
    pub(super) records: u64,
    pub(super) ended: bool,
    pub(super) fruitless: u32,
}
