//! One replica's log as its reader knows it: what was delivered, what is out of order, and where an
//! answer to recovery's next question begins.
//!
//! What is missing is told by the numbers of the log alone. The seq of whatever comes first says
//! nothing: messages may be out of order, and a replica may have been quiet for long.

use kvbridge_adapters_api::{
    Batch, Capabilities, Continuity, Drain, Removal, Replay, SnapshotSupport,
};
use kvbridge_schemas::{BusSeq, Cursor, Epoch, Event, Scope, Seq};

use super::{Place, Positions, Reorder, ReorderLimits, Start};
use crate::recovery::Tick;

/// How far above the seq asked for a known place may lie and still be the asker's own: recovery
/// asks for some batches before the one it needs.
const RUN_MAX: u64 = 16;

/// What a log says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnds {
    /// When it was made, unix ns: another log under the same name has another time.
    pub created: u64,
    /// Its oldest message, or the one after its newest if it is empty.
    pub first: BusSeq,
    /// Its newest message, kept or not.
    pub last: BusSeq,
}

/// How the live path joins what was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The first message that it brings.
    pub from: BusSeq,
    /// Nothing was stored between what was read last and what comes now that will not come.
    pub continuous: bool,
    /// It is the log of before, not another one under its name.
    pub same_log: bool,
}

impl Joined {
    /// A reader that had read everything up to `through` of the log made at `created`.
    pub fn after(created: u64, through: BusSeq, ends: LogEnds) -> Joined {
        let same_log = created == ends.created && ends.last >= through;
        let next = BusSeq(through.0.saturating_add(1));
        let continuous = same_log && next >= ends.first;
        let from = if continuous { next } else { BusSeq(ends.last.0.saturating_add(1)) };
        Joined { from, continuous, same_log }
    }
}

/// The reader's side of one replica's log.
#[derive(Debug)]
pub struct Follower {
    window: Reorder<Batch>,
    positions: Positions,
    /// The newest end of what was delivered.
    newest: Cursor,
    /// Everything that the log holds of this replica up to here was delivered.
    through: Option<BusSeq>,
    /// Where the log goes on behind the last snapshot.
    stored: Option<Start>,
    /// The cut of that snapshot.
    taken: Option<Cursor>,
    /// Where the newest reset ends that was delivered.
    reset: Option<Cursor>,
}

impl Follower {
    /// One that has read nothing.
    pub fn new(limits: ReorderLimits, positions_max: usize) -> Follower {
        Follower {
            window: Reorder::new(limits),
            positions: Positions::new(positions_max),
            newest: Cursor::default(),
            through: None,
            stored: None,
            taken: None,
            reset: None,
        }
    }

    /// The live path begins.
    pub fn attached(&mut self, continuous: bool, same_log: bool) {
        if !same_log {
            self.positions.clear();
            (self.stored, self.taken, self.reset) = (None, None, None);
        }
        if !(continuous && same_log) {
            self.through = None;
        }
    }

    /// It broke: what waits is all that will come.
    pub fn detached(&mut self, out: &mut Vec<Batch>) {
        self.released(out, Reorder::restart);
    }

    /// Messages were dropped on their way to us.
    pub fn overflowed(&mut self, out: &mut Vec<Batch>) {
        self.through = None;
        self.released(out, Reorder::restart);
    }

    /// A message of the live path; whatever may go on is added to `out`.
    pub fn live(&mut self, now: Tick, batch: Batch, at: BusSeq, out: &mut Vec<Batch>) {
        self.note(&batch, at);
        self.released(out, |window, out| window.push(now, Place::of(&batch), batch, out));
    }

    /// When [`Follower::expire`] has something to do.
    pub fn deadline(&self) -> Option<Tick> {
        self.window.deadline()
    }

    /// What has waited long enough goes on.
    pub fn expire(&mut self, now: Tick, out: &mut Vec<Batch>) {
        self.released(out, |window, out| window.expire(now, out));
    }

    /// A message of an answer.
    pub fn replayed(&mut self, batch: &Batch, at: BusSeq) {
        self.note(batch, at);
        self.delivered(batch);
    }

    /// Where the newest reset ends that was met: a view from before it leads to it again.
    pub fn reset(&self) -> Option<Cursor> {
        self.reset
    }

    /// An answer brought everything up to there: whoever stands at this cursor misses nothing.
    pub fn ended(&mut self, through: BusSeq) -> Cursor {
        self.through = self.through.max(Some(through));
        self.newest
    }

    /// A snapshot comes, and the log goes on behind it here.
    pub fn snapshot(&mut self, stored: Option<Start>) {
        self.stored = stored;
        self.taken = stored.map(|start| start.cursor);
    }

    /// The cut that was taken last: whoever asks for a snapshot again was not helped by it.
    pub fn taken(&self) -> Option<Cursor> {
        self.taken
    }

    /// What is known of where to read from, for a question. `idle_at` = what the live path has
    /// brought, if nothing of that is on its way to recovery.
    pub fn known(&mut self, start_seq: Seq, idle_at: Option<BusSeq>) -> Known {
        if self.window.is_empty() && self.through.is_some() {
            self.through = self.through.max(idle_at);
        }
        let mut starts = Vec::from_iter(self.stored);
        starts.extend(self.through.map(|BusSeq(at)| {
            let from = BusSeq(at.saturating_add(1));
            Start { from, proven_from: from, cursor: self.newest }
        }));
        Known { start_seq, positions: self.positions.clone(), starts }
    }

    fn note(&mut self, batch: &Batch, at: BusSeq) {
        if let Some(epoch) = batch.epoch {
            self.positions.note(epoch, batch.seq, at);
        }
    }

    fn released(
        &mut self,
        out: &mut Vec<Batch>,
        change: impl FnOnce(&mut Reorder<Batch>, &mut Vec<Batch>),
    ) {
        let before = out.len();
        change(&mut self.window, out);
        for batch in &out[before..] {
            self.delivered(batch);
        }
    }

    fn delivered(&mut self, batch: &Batch) {
        self.newest = self.newest.max(behind(batch));
        if batch.events.iter().any(|event| matches!(event, Event::Reset(_))) {
            self.reset = self.reset.max(Some(behind(batch)));
        }
    }
}

/// Where a question may begin, before the log was asked what it still has.
#[derive(Clone, Debug)]
pub struct Known {
    start_seq: Seq,
    positions: Positions,
    /// Places known otherwise: behind a snapshot, behind everything that was read.
    starts: Vec<Start>,
}

impl Known {
    /// No place is known.
    pub fn nothing(start_seq: Seq) -> Known {
        Known { start_seq, positions: Positions::new(1), starts: Vec::new() }
    }

    /// The first seq that is wanted.
    pub fn start_seq(&self) -> Seq {
        self.start_seq
    }

    /// The known place that serves, of a log that still has `first`.
    pub fn begin(&self, first: BusSeq) -> Option<Start> {
        let mut starts = self.starts.clone();
        starts.extend(self.positions.start(self.start_seq, first));
        let epoch = starts.iter().map(|start| start.cursor.epoch).max()?;
        let near = self.start_seq.plus(RUN_MAX);
        let known = starts.into_iter().filter(|start| {
            start.cursor.epoch == epoch
                && start.proven_from >= first
                && start.cursor.next_seq <= near
        });
        // The nearest one at or below what is asked for, or else the lowest above it.
        known.min_by_key(|start| {
            let seq = start.cursor.next_seq;
            (seq > self.start_seq, seq.0.abs_diff(self.start_seq.0))
        })
    }
}

/// Looks for a seq in a log of which no place is known, by halves.
#[derive(Debug)]
pub struct Search {
    wanted: (Epoch, Seq),
    first: u64,
    below: u64,
    above: u64,
    /// A log can be out of order by so much: nearer than that it is just read.
    slack: u64,
}

impl Search {
    /// Between the oldest message, which lies below what is wanted, and the newest one.
    pub fn between(
        wanted: (Epoch, Seq),
        (first, oldest, newest): (BusSeq, BusSeq, BusSeq),
        slack: u64,
    ) -> Search {
        Search { wanted, first: first.0, below: oldest.0, above: newest.0, slack }
    }

    /// The place to look at next; `None` = found.
    pub fn next(&self) -> Option<BusSeq> {
        let distance = self.above.saturating_sub(self.below);
        (distance > self.slack).then_some(BusSeq(self.below + distance / 2))
    }

    /// What the first message at or behind the place is, if there is one; without a place if it is
    /// not ours.
    pub fn found(&mut self, message: Option<(BusSeq, Option<(Epoch, Seq)>)>) {
        let Some(BusSeq(middle)) = self.next() else { return };
        match message {
            Some((BusSeq(at), place)) if at < self.above => {
                if place.is_none_or(|place| place >= self.wanted) {
                    self.above = middle;
                } else {
                    self.below = at;
                }
            }
            Some(_) | None => self.above = middle,
        }
    }

    /// Where to read from.
    pub fn from(&self) -> BusSeq {
        BusSeq(self.below.saturating_sub(self.slack).max(self.first))
    }
}

/// A reader of the log is told of every break of its connection, and all that the log held is still
/// there to be asked for.
pub fn log_capabilities(removal: Removal) -> Capabilities {
    Capabilities {
        epoch_on_wire: true,
        replay: Replay::Journal,
        snapshot: Some(SnapshotSupport {
            barrier: false,
            tiers: true,
            counts: true,
            namespaces: true,
            content: true,
            plain: false,
        }),
        continuity: Continuity::Proven,
        removal,
        clear_scope: Scope::All,
        drain: Drain::Shared,
        one_hash_per_block: false,
    }
}

/// The cursor behind a batch.
fn behind(batch: &Batch) -> Cursor {
    Cursor { epoch: batch.epoch.unwrap_or_default(), next_seq: batch.next_seq() }
}
