//! A reader's connection, and how its process ends.

use super::*;

impl Consumer {
    pub(super) fn process(&mut self, now: u64, faults: &Faults) {
        if self.rng.hit(100)
            && let Some(checkpoint) = self.recovery.checkpoint("sim")
        {
            self.kept = Some((checkpoint, self.view.clone()));
        }
        if !faults.strike(Fault::ReaderRestart, &mut self.rng) {
            return;
        }
        let kept = self.kept.clone().filter(|_| self.rng.hit(6_000));
        let (name, whole) = (self.name, kept.is_some());
        self.trace.say(|| format!("{now:>6} {name} ---- back, with a checkpoint: {whole} ----"));
        match kept {
            Some((checkpoint, view)) => {
                self.view = view;
                self.recovery = Recovery::restored(self.settings.clone(), checkpoint).unwrap();
            }
            None => {
                self.view = View::new(view_settings());
                self.recovery = Recovery::new(self.settings.clone());
            }
        }
        (self.trust, self.reason) = (TierTrust::default(), TrustReason::Detached);
        self.follower = Follower::new(REORDER, POSITIONS_MAX);
        self.vouches = Vouches::new(STATUS_TTL_MS);
        self.upstream = None;
        self.epoch = Epoch(0);
        (self.created, self.through, self.attached) = (0, BusSeq(0), false);
        self.attach_at = now + self.rng.below(300);
        self.inbox.clear();
        (self.asked, self.shadow) = (None, None);
        self.answers.clear();
    }

    pub(super) fn connection(&mut self, now: u64, log: &Log, faults: &Faults) {
        let ends = log.ends();
        if self.attached && faults.strike(Fault::ReaderCut, &mut self.rng) {
            let back_at = now + 5 + self.rng.below(400);
            self.detach(back_at);
        }
        if self.attached && self.look_at <= now {
            // Whether it is still the same log is looked at now and then, not with each message.
            self.look_at = now + 40;
            if ends.created != self.created || ends.last < self.through {
                self.detach(now + 10);
            }
        }
        if !self.attached && self.attach_at <= now {
            let joined = Joined::after(self.created, self.through, ends);
            (self.created, self.attached) = (ends.created, true);
            self.through = BusSeq(joined.from.0 - 1);
            self.inbox.push_back(Arrived::Attached(joined));
        }
        if self.attached && ends.created == self.created {
            self.pull(now, log, faults);
        }
    }

    fn lose(&mut self) {
        if !matches!(self.inbox.back(), Some(Arrived::Overflowed)) {
            self.inbox.push_back(Arrived::Overflowed);
        }
    }

    fn detach(&mut self, back_at: u64) {
        self.missed_at = None;
        (self.attached, self.attach_at) = (false, back_at);
        self.inbox.push_back(Arrived::Detached);
        self.asked = None;
    }

    /// What the live path brings. A place that it left out is told by a later one, of whichever
    /// replica; until then nobody knows.
    fn pull(&mut self, now: u64, log: &Log, faults: &Faults) {
        let seen = self.missed_at.map_or(self.through, |at| at.max(self.through));
        for stored in log.from(BusSeq(seen.0 + 1)) {
            if stored.stored_at + 3 > now {
                return;
            }
            if faults.strike(Fault::ReaderMiss, &mut self.rng) {
                self.missed_at = Some(stored.at);
                continue;
            }
            self.came(stored.at);
            if self.inbox.len() < INBOX_MAX {
                self.inbox.push_back(Arrived::Message(stored.clone()));
            } else {
                self.lose();
            }
        }
        self.came(log.ends().last);
    }

    fn came(&mut self, at: BusSeq) {
        if self.missed_at.is_some_and(|missed| missed >= at) {
            return;
        }
        if self.missed_at.take().is_some() {
            self.lose();
        }
        self.through = self.through.max(at);
    }
}
