//! What goes wrong behind the bridges. A seed turns most of it off and gives the rest wild rates.

use crate::rng::Rng;

/// Rates per ten thousand, per opportunity.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusFaults {
    /// A bridge loses the log for a while.
    pub(crate) bridge_cut: u64,
    /// Some messages of a window are not stored, and later ones are.
    pub(crate) not_stored: u64,
    /// A message is stored, and its writer does not hear it.
    pub(crate) ack_lost: u64,
    /// A reader loses the log for a while.
    pub(crate) reader_cut: u64,
    /// A reader's process ends and comes back, with what it kept or without.
    pub(crate) reader_restart: u64,
    /// A bridge's process ends and comes back.
    pub(crate) bridge_restart: u64,
    /// The registry is lost.
    pub(crate) registry_lost: u64,
    /// The stream is gone and made anew.
    pub(crate) made_anew: u64,
    /// Other replicas fill the stream.
    pub(crate) others: u64,
    /// Heartbeats are lost.
    pub(crate) status_lost: u64,
    /// Heartbeats take long.
    pub(crate) status_slow: u64,
    /// Snapshots are asked for in vain.
    pub(crate) busy: u64,
}

impl BusFaults {
    pub(crate) fn swarm(rng: &mut Rng) -> BusFaults {
        let mut faults = BusFaults::default();
        for (rate, most) in faults.all() {
            if rng.hit(4_000) {
                *rate = 1 + rng.below(most);
            }
        }
        faults
    }

    fn all(&mut self) -> [(&mut u64, u64); 12] {
        [
            (&mut self.bridge_cut, 100),
            (&mut self.not_stored, 500),
            (&mut self.ack_lost, 1_000),
            (&mut self.reader_cut, 150),
            (&mut self.reader_restart, 60),
            (&mut self.bridge_restart, 40),
            (&mut self.registry_lost, 15),
            (&mut self.made_anew, 20),
            (&mut self.others, 2_000),
            (&mut self.status_lost, 6_000),
            (&mut self.status_slow, 4_000),
            (&mut self.busy, 5_000),
        ]
    }
}
