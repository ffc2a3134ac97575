//! Which faults a run has. A seed turns most of them off and gives the rest wild rates (swarm).

use crate::rng::Rng;

/// Rates per ten thousand, per opportunity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// A live frame is lost on the way.
    pub(crate) drop: u64,
    /// A run of live frames is lost.
    pub(crate) burst: u64,
    /// The live connection breaks and comes back.
    pub(crate) detach: u64,
    /// After attaching, the first frames are not delivered.
    pub(crate) slow_joiner: u64,
    /// The engine restarts.
    pub(crate) restart: u64,
    /// … just while a replay or snapshot is open.
    pub(crate) restart_midway: u64,
    /// … so that a source which cannot see its reconnects meets exactly the next seq.
    pub(crate) restart_aligned: u64,
    /// Our own queue overflows.
    pub(crate) overflow: u64,
    /// A live frame comes twice.
    pub(crate) twice: u64,
    /// A replay answer is cut at its tail, with its end marker or without.
    pub(crate) cut: u64,
    /// A replay answer loses one frame inside.
    pub(crate) answer_drop: u64,
    /// The end marker is lost.
    pub(crate) end_lost: u64,
    /// The whole answer is lost.
    pub(crate) answer_lost: u64,
    /// Answers take long.
    pub(crate) answer_slow: u64,
    /// A seq is burnt by the publisher.
    pub(crate) burn: u64,
    /// A body that nobody can read.
    pub(crate) poison: u64,
    /// A store that cannot be read.
    pub(crate) lose_store: u64,
    /// An event type of the future.
    pub(crate) unknown_tag: u64,
    /// The engine flushes.
    pub(crate) clear: u64,
    /// A snapshot answer has a record too few.
    pub(crate) short: u64,
    /// The source is busy when a snapshot is asked for.
    pub(crate) busy: u64,
    /// The engine stops publishing for a while.
    pub(crate) pause: u64,
    /// A batch of a closed life arrives late (wires with epochs).
    pub(crate) straggler: u64,
    /// A bridge between engine and us clears what it cannot prove (wires with epochs).
    pub(crate) repair: u64,
    /// The live stream lags: a replay runs far ahead of it.
    pub(crate) lag: u64,
    /// Our process ends and comes back with a checkpoint that is some batches old. Drawn apart from
    /// the others (see `restart.rs`).
    pub(crate) process_restart: u64,
}

impl Faults {
    /// The faults of one seed.
    pub(crate) fn swarm(rng: &mut Rng) -> Faults {
        let mut faults = Faults::default();
        for (rate, most) in faults.all() {
            if rng.hit(3_500) {
                *rate = 1 + rng.below(most);
            }
        }
        faults
    }

    fn all(&mut self) -> [(&mut u64, u64); 25] {
        [
            (&mut self.drop, 1_500),
            (&mut self.burst, 200),
            (&mut self.detach, 200),
            (&mut self.slow_joiner, 8_000),
            (&mut self.restart, 100),
            (&mut self.restart_midway, 1_000),
            (&mut self.restart_aligned, 8_000),
            (&mut self.overflow, 200),
            (&mut self.twice, 1_000),
            (&mut self.cut, 4_000),
            (&mut self.answer_drop, 3_000),
            (&mut self.end_lost, 4_000),
            (&mut self.answer_lost, 2_000),
            (&mut self.answer_slow, 4_000),
            (&mut self.burn, 150),
            (&mut self.poison, 150),
            (&mut self.lose_store, 100),
            (&mut self.unknown_tag, 50),
            (&mut self.clear, 300),
            (&mut self.short, 3_000),
            (&mut self.busy, 4_000),
            (&mut self.pause, 100),
            (&mut self.straggler, 500),
            (&mut self.repair, 100),
            (&mut self.lag, 300),
        ]
    }
}
