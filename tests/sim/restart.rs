//! The process that holds machine and view ends, and comes back with what it kept a while ago.

use std::collections::VecDeque;

use kvbridge::{
    recovery::{Checkpoint, Recovery, Settings, TrustReason},
    schemas::{Epoch, TierTrust},
    view::View,
};

use crate::{faults::Fault, radix::Bare, rng::Rng, witness::Witness, world::World};

/// Checkpoints that a restart may find, the oldest first.
const KEPT_MAX: usize = 8;

/// What is on the disk.
pub(crate) struct Disk {
    kept: VecDeque<Kept>,
    /// Of its own, so that runs without this fault are the same as before it was there.
    rng: Rng,
}

struct Kept {
    checkpoint: Checkpoint,
    view: View,
    gave_up: bool,
    bare: Bare,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Disk {
        Disk { kept: VecDeque::new(), rng: Rng::new(seed.rotate_left(17)) }
    }

    /// How often the process restarts in this run, per ten thousand.
    pub(crate) fn restart_rate(&mut self) -> u64 {
        if self.rng.hit(3_500) { 1 + self.rng.below(150) } else { 0 }
    }
}

impl World {
    /// Keeps, and sometimes ends and comes back.
    pub(crate) fn process_turn(&mut self) {
        if !self.faults.has(Fault::ProcessRestart) {
            return;
        }
        if self.disk.rng.hit(1_000)
            && let Some(checkpoint) = self.recovery.checkpoint("sim")
        {
            let kept = Kept {
                checkpoint,
                view: self.view.clone(),
                gave_up: self.gave_up,
                bare: self.bare.clone(),
            };
            self.disk.kept.push_back(kept);
            if self.disk.kept.len() > KEPT_MAX {
                self.disk.kept.pop_front();
            }
        }
        if self.faults.strike(Fault::ProcessRestart, &mut self.disk.rng) {
            self.restart_process();
        }
    }

    /// What was kept of a source that is drained serves one process, and none in another life. (To
    /// write a new life takes the program up to a second: docs/specs/recovery.md 7.6.)
    pub(crate) fn spend_kept(&mut self) {
        if self.engine.profile.drained {
            self.disk.kept.clear();
        }
    }

    fn restart_process(&mut self) {
        // How old the file is that was found; the newer ones were never written.
        let count = self.disk.kept.len() as u64;
        let keep = usize::try_from(self.disk.rng.below(count + 1)).unwrap();
        self.disk.kept.truncate(keep);
        let floor = self.disk.kept.back().map_or(Epoch(0), |kept| kept.checkpoint.cursor.epoch);
        let usable = self.disk.rng.hit(8_000);
        let settings: Settings = self.settings.clone();
        match self.disk.kept.back().filter(|_| usable) {
            Some(kept) => {
                self.trace.push(format!(
                    "{:>6} ---- process back at {:?} ----",
                    self.now, kept.checkpoint.cursor
                ));
                self.view = kept.view.clone();
                self.bare = kept.bare.clone();
                self.gave_up = kept.gave_up;
                self.recovery =
                    Recovery::restored(settings, kept.checkpoint.clone()).expect("our own");
            }
            None => {
                self.trace.push(format!("{:>6} ---- process back empty ----", self.now));
                self.view = View::new(crate::world::view_settings());
                self.bare = Bare::default();
                self.gave_up = false;
                self.recovery = Recovery::new(Settings { epoch_floor: floor, ..settings });
            }
        }
        self.spend_kept();
        self.trust = TierTrust::default();
        self.repairs.announced(self.now, self.trust.device);
        self.reason = TrustReason::Detached;
        self.forget_answers();
        // Who watches knows what this process was told, not what an earlier one was.
        self.witness = Witness::knowing(self.recovery.digests());
        let back_after = 5 + self.disk.rng.below(300);
        self.end_live(back_after);
    }
}
