//! What the outside world told the state machine. The shell builds these; the core never asks.

use kvbridge_adapters_api::SourceEvent;
use kvbridge_schemas::Seq;

/// A point in time: milliseconds since process start. Unlike an `Instant` it can be made up in a
/// test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

impl Tick {
    /// The tick so many milliseconds later.
    pub fn plus(self, ms: u64) -> Tick {
        Tick(self.0.saturating_add(ms))
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The source said something.
    Source(SourceEvent),
    /// The view found something out while it applied a batch.
    Finding(Finding),
    /// An operator asks for a return to a proven state.
    Resync,
    /// The replica holds more than this process may keep; the shell chose it to go.
    OverLimit,
    /// There is room again for a replica that went over a limit.
    Release,
    /// Whoever writes a log from this view lacks batches of it from this seq on: a look at the
    /// engine begins there. Nothing is believed less for it.
    LookFrom(Seq),
    /// Whether other ranks of the same instance have delivered batches for long and this one never
    /// did. The shell sees the ranks together; a machine sees its own alone.
    RankMissing(bool),
    /// The moment returned by `next_deadline` has passed.
    DeadlineReached,
}

/// What a view can find out about the stream it folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// A removal of a block that is not there: a store was missed or the engine miscounts.
    CountBelowZero,
    /// The same in another tier than the device's.
    HostCountBelowZero,
    /// Another copy of a block that a snapshot told without its content, and so told once.
    SecondCopy,
    /// Too many blocks wait for their parents; the newest cannot be reached by a prefix any more.
    ParkingOverflow,
    /// A block came below one that is not there, of an engine that has none without its parent: a
    /// store was left out.
    StoreMissing,
}
