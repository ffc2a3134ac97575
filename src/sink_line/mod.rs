//! PURE. What one router is told of one replica: a numbered line of batches in a wire form that it
//! knows already.
//!
//! A router that reads an engine's own stream keeps what it lost and never hears of what was
//! withdrawn. A [`Line`] has its own contiguous numbers, shows a view only while somebody believes
//! it, and can answer every request for its past:
//!
//! - To `none` it tells nothing more and, after a grace, that everything is gone. Out of `none` it
//!   tells that everything is gone, then the whole view, parents first, then what changes. A trust
//!   that comes back within the grace costs what changed meanwhile.
//! - What is shown is closed under parents: a block whose parent leaves goes before it and comes
//!   back behind it. So no router is told of a block whose place it cannot know.
//! - Each (block, tier) is told once and taken back once, however many copies an engine counts:
//!   routers that count and routers that do not end with the same.
//! - A request for numbers that the journal has is answered out of it. Any other is answered by the
//!   whole of what is shown, under numbers of the range that was asked for: never a truncated
//!   range, and "from 0" always.
//! - An idle line has empty batches, so that a lost tail and a late reader show as gaps.
//!
//! Blocks of which no tokens are known (they came with a snapshot) are not told: routers compute
//! hashes of their own. Their number is [`Line::hidden_count`].
#![deny(clippy::wildcard_enum_match_arm)]

mod answer;
mod batch;
mod blocks;
mod change;
mod fan;
mod hearer;
mod held;
mod journal;
mod preset;
#[cfg(feature = "sink-smg")]
pub mod smg;
mod stream;
#[cfg(test)]
mod tests;
mod topic;

use std::sync::Arc;

use kvbridge_schemas::{Tier, TierTrust, Trust};

use crate::recovery::Tick;
pub use answer::{Origin, Past};
use batch::Facts;
use blocks::Blocks;
pub use blocks::Sizes;
pub use change::Change;
pub use fan::{Fan, FanAnswer, FanCounts, FanEvent, FanRefusal, FanSettings};
pub use hearer::Hearer;
use journal::Journal;
pub use preset::{Encoding, Form, HashForms, Needs, Numbers, Preset, Profile, ReplayForm, Topics};
pub use topic::topic_of;

/// Bytes of a batch, shared between journal, socket and answers.
pub type Payload = Arc<[u8]>;

/// What a line depends on beside what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSettings {
    /// The wire form.
    pub profile: Profile,
    /// Rank of the replica, as batches name it.
    pub rank: u32,
    /// Tiers that are told; those of others are not.
    pub tiers: Vec<Tier>,
    /// Blocks of how many tokens are told.
    pub sizes: Sizes,
    /// How long trust may be away before everything is taken back.
    pub grace_ms: u64,
    /// Silence after which an empty batch is sent.
    pub heartbeat_ms: u64,
    /// Batches kept for readers that lost some.
    pub journal_batches_max: usize,
    /// Their bytes.
    pub journal_bytes_max: usize,
    /// A line that begins at 0 begins there again after so many numbers: what a late reader is
    /// answered grows with them.
    pub renumber_after: u64,
}

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// In the process.
    pub now: Tick,
    /// For people and batches, unix ms.
    pub unix_ms: u64,
}

/// What a driver tells after a step.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The changes are all of the view, and take the place of what was known.
    pub whole: bool,
    /// What changed, in order.
    pub changes: &'a [Change],
    /// What is believed of the result.
    pub trust: TierTrust,
}

/// A batch under its number.
#[derive(Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub seq: u64,
    /// Its bytes.
    pub payload: Payload,
}

impl std::fmt::Debug for Numbered {
    // The payload holds token ids, which are customers' prompts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Numbered({}, {} bytes)", self.seq, self.payload.len())
    }
}

/// Whether readers have what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// They have nothing.
    Dark,
    /// They have it.
    Shown,
    /// They have what was held when trust went, until then.
    Paused { until: Tick },
}

/// One replica's line to one router, or to as many as read it.
#[derive(Debug)]
pub struct Line {
    settings: LineSettings,
    held: Blocks,
    standing: Standing,
    /// What readers have is not what `held` says: they must be told that everything is gone.
    must_clear: bool,
    next_seq: u64,
    journal: Journal,
    last_at: Tick,
    clear_count: u64,
    /// Numbers below it were also told as parts of a whole view: who has them may have either.
    resumable_from: u64,
}

impl Line {
    /// A line that begins at a number. Readers of an earlier process may still have what it told,
    /// so after the grace they are told that it is gone, unless a view comes first.
    pub fn new(settings: LineSettings, first_seq: u64, now: Tick) -> Line {
        Line {
            held: Blocks::new(settings.tiers.clone(), settings.sizes),
            journal: Journal::new(settings.journal_batches_max, settings.journal_bytes_max),
            standing: Standing::Paused { until: now.plus(settings.grace_ms) },
            must_clear: true,
            next_seq: first_seq,
            last_at: now,
            clear_count: 0,
            resumable_from: 0,
            settings,
        }
    }

    /// Takes what a driver tells, and appends the batches that follow.
    pub fn told(&mut self, at: Moment, told: Told<'_>, out: &mut Vec<Numbered>) {
        let trusted = told.trust.device > Trust::None;
        if let (false, Standing::Shown) = (trusted, self.standing) {
            self.standing = Standing::Paused { until: at.now.plus(self.settings.grace_ms) };
        }
        self.held.trust_hosts(told.trust.host > Trust::None);
        if told.whole {
            self.held.let_go();
        }
        for change in told.changes {
            if matches!(change, Change::Cleared) {
                self.held.forget();
                self.must_clear = true;
            } else {
                self.held.take(change);
            }
        }
        if trusted {
            self.show(at, out);
        }
        self.due(at, out);
    }

    /// Does what is due now.
    pub fn due(&mut self, at: Moment, out: &mut Vec<Numbered>) {
        if let Standing::Paused { until } = self.standing
            && until <= at.now
        {
            self.go_dark(at, out);
        }
        if self.last_at.plus(self.settings.heartbeat_ms) <= at.now {
            self.publish(at, &Facts::default(), out);
        }
    }

    /// When [`Line::due`] has something to do.
    pub fn next_deadline(&self) -> Tick {
        let beat = self.last_at.plus(self.settings.heartbeat_ms);
        match self.standing {
            Standing::Paused { until } => until.min(beat),
            Standing::Dark | Standing::Shown => beat,
        }
    }

    /// The replica is read no more.
    pub fn end(&mut self, at: Moment, out: &mut Vec<Numbered>) {
        self.go_dark(at, out);
    }

    /// The number of the next batch.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// How many blocks readers have, each tier counted.
    pub fn shown_count(&self) -> u64 {
        self.held.shown_count()
    }

    /// How many blocks are held that readers are not told of: without tokens, of another size, or
    /// behind such a block. While nothing is believed these are all.
    pub fn hidden_count(&self) -> u64 {
        self.held.hidden_count()
    }

    /// How often everything was taken back.
    pub fn clear_count(&self) -> u64 {
        self.clear_count
    }

    /// Whether readers have what is held.
    pub fn is_shown(&self) -> bool {
        self.standing == Standing::Shown
    }

    /// That everything is gone, then all that readers have: for one that has nothing.
    pub fn whole_batches(&self, at: Moment) -> Vec<Payload> {
        self.whole().batches(&self.settings.profile, self.settings.rank, at.unix_ms)
    }

    fn show(&mut self, at: Moment, out: &mut Vec<Numbered>) {
        let mut facts = Facts::default();
        if self.must_clear || self.standing == Standing::Dark {
            self.clear(&mut facts);
        }
        self.standing = Standing::Shown;
        self.held.settle(&mut facts);
        if !facts.is_empty() {
            self.publish(at, &facts, out);
        }
    }

    fn go_dark(&mut self, at: Moment, out: &mut Vec<Numbered>) {
        let mut facts = Facts::default();
        self.clear(&mut facts);
        self.standing = Standing::Dark;
        self.publish(at, &facts, out);
    }

    fn clear(&mut self, facts: &mut Facts) {
        facts.cleared();
        self.held.unshow();
        self.must_clear = false;
        self.clear_count += 1;
    }

    /// Numbers batches. An empty one is a heartbeat.
    fn publish(&mut self, at: Moment, facts: &Facts, out: &mut Vec<Numbered>) {
        let renumbers = self.settings.profile.numbers == Numbers::FromZero
            && self.next_seq >= self.settings.renumber_after;
        if renumbers {
            // Whoever is behind asks from 0, as for an engine that started anew.
            self.next_seq = 0;
            self.journal.forget();
            let whole = self.whole();
            self.number(at, &whole, out);
        } else {
            self.number(at, facts, out);
        }
        self.last_at = at.now;
    }

    fn number(&mut self, at: Moment, facts: &Facts, out: &mut Vec<Numbered>) {
        for payload in facts.batches(&self.settings.profile, self.settings.rank, at.unix_ms) {
            let numbered = Numbered { seq: self.next_seq, payload };
            self.next_seq += 1;
            self.journal.push(numbered.clone());
            out.push(numbered);
        }
    }

    /// That everything is gone, then all that is shown.
    fn whole(&self) -> Facts {
        let mut facts = Facts::default();
        facts.cleared();
        self.held.shown(&mut facts);
        facts
    }
}
