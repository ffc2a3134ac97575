//! All ranks of one engine out of one stream: which event is whose, what is missing, which life.
//!
//! Each rank counts its events from 0. An id is counted before anything is left out, so those of
//! other windows and layer groups are batches without events. The empty object that stands for no
//! event has no id: if it used one up, the next one shows a gap, which only costs trust.

use kvbridge_adapters_api::{Batch, Delivery, EngineMetrics, SourceEvent};
use kvbridge_schemas::{Seq, SnapshotRecord};

use crate::{
    fault::{BodyError, Fault},
    jump::Jumps,
    rank::{Meaning, Rank},
    wire::{Head, ServerInfo, events},
};

/// What the events of one engine are read with, all its ranks.
#[derive(Debug)]
pub struct Instance {
    first_rank: u32,
    ranks: Vec<Counted>,
    jumps: Jumps,
}

#[derive(Debug, Default)]
struct Counted {
    rank: Rank,
    /// The id that comes next.
    next_id: u64,
    /// No answer was lost here since an event of it was read: what is missing somebody else has.
    is_unbroken: bool,
    /// It was said that removals go unannounced.
    unannounced: bool,
}

/// What one event of an answer became.
#[derive(Debug, Default)]
pub struct Step {
    /// What each rank is told, by its place among the ranks, in this order.
    pub told: Vec<(usize, Delivery)>,
    /// What could not be read.
    pub faults: Vec<Fault>,
    /// What could not be counted: whose it was or where it belongs is not known.
    pub strange: Option<Strange>,
}

/// Why an event belongs nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Strange {
    /// No id, or a head that cannot be read. All ranks start over.
    #[error("event without a readable id")]
    Unnumbered,
    /// Several ranks are read and the event names none. All start over.
    #[error("event names no rank")]
    NoRank,
    /// The event is of a rank that nobody reads here.
    #[error("event of rank {rank}, which is not configured")]
    OtherRank {
        /// Which.
        rank: u32,
    },
}

impl Instance {
    /// Nothing was seen yet. The ranks have consecutive numbers.
    pub fn new(first_rank: u32, rank_count: u32) -> Instance {
        let ranks = (0..rank_count.max(1)).map(|_| Counted::default()).collect();
        Instance { first_rank, ranks, jumps: Jumps::default() }
    }

    /// What the engine says of itself.
    pub fn told(&mut self, info: &ServerInfo) {
        self.ranks.iter_mut().for_each(|counted| counted.rank.told(info));
    }

    /// A reader of that rank is attached, the first or a new one.
    pub fn attached(&mut self, at: usize) {
        if let Some(counted) = self.ranks.get_mut(at) {
            counted.unannounced = false;
        }
    }

    /// The reader of that rank goes on with a view that was kept: what the engine has said since is
    /// still there, or shows as a jump.
    pub fn resume(&mut self, at: usize, next_seq: Seq, records: Vec<SnapshotRecord>) {
        if let Some(counted) = self.ranks.get_mut(at) {
            counted.next_id = next_seq.0;
            counted.rank.resume(records);
        }
    }

    /// The engine was away, or an answer was lost: every view starts over.
    pub fn lost(&mut self) {
        self.ranks.iter_mut().for_each(|counted| counted.rank.forget());
        self.held_up();
    }

    /// What is missing next may be missing because the engine was not asked for a while, or because
    /// an answer was lost: it shows no other reader.
    pub fn held_up(&mut self) {
        self.ranks.iter_mut().for_each(|counted| counted.is_unbroken = false);
    }

    /// An answer has been read to its end. Whether it shows that another reader takes events away.
    pub fn ends_answer(&mut self) -> bool {
        self.jumps.end()
    }

    /// The events of an answer, each as its bytes.
    pub fn split(body: &[u8]) -> Result<Vec<&str>, BodyError> {
        events(body)
    }

    /// Reads one event of an answer.
    pub fn step(&mut self, text: &str) -> Step {
        let head = match Head::read(text) {
            Ok(Some(head)) => head,
            Ok(None) => {
                // It may have used an id up.
                self.held_up();
                return Step::default();
            }
            Err(()) => return self.unplaced(Strange::Unnumbered),
        };
        let at = match self.place(head.attention_dp_rank) {
            Ok(at) => at,
            Err(strange @ Strange::OtherRank { .. }) => {
                return Step { strange: Some(strange), ..Step::default() };
            }
            Err(strange) => return self.unplaced(strange),
        };
        let mut told = Vec::new();
        self.count(at, head.event_id, &mut told);
        self.jumps.event();
        let Some(counted) = self.ranks.get_mut(at) else { return Step::default() };
        // Only the newer cache manager has layer groups; the older one lets blocks go silently.
        if head.layer_group_id.is_none() && !std::mem::replace(&mut counted.unannounced, true) {
            told.push((at, SourceEvent::Unannounced.into()));
        }
        let Meaning { batch, faults, pool_blocks } = counted.rank.read(&head, text);
        if pool_blocks.is_some() {
            let figures = EngineMetrics { pool_blocks, ..EngineMetrics::default() };
            told.push((at, Delivery::Figures(figures)));
        }
        told.push((at, live(batch)));
        Step { told, faults, strange: None }
    }

    /// Whether an id says that its process is another one than before.
    pub fn is_restart(&self, text: &str) -> bool {
        let Ok(Some(head)) = Head::read(text) else { return false };
        let at = self.place(head.attention_dp_rank);
        let counted = at.ok().and_then(|at| self.ranks.get(at));
        counted.is_some_and(|counted| head.event_id < counted.next_id)
    }

    fn place(&self, rank: Option<u32>) -> Result<usize, Strange> {
        let Some(rank) = rank else {
            return if self.ranks.len() == 1 { Ok(0) } else { Err(Strange::NoRank) };
        };
        let offset = rank.checked_sub(self.first_rank).and_then(|at| usize::try_from(at).ok());
        offset.filter(|at| *at < self.ranks.len()).ok_or(Strange::OtherRank { rank })
    }

    fn count(&mut self, at: usize, id: u64, told: &mut Vec<(usize, Delivery)>) {
        let expected = self.ranks.get(at).map_or(0, |counted| counted.next_id);
        let mut next = expected;
        if id < expected {
            // A drain returns nothing twice, so this is another process: of all ranks.
            next = 0;
            self.jumps = Jumps::default();
            self.held_up();
            for (at, counted) in self.ranks.iter_mut().enumerate() {
                counted.next_id = 0;
                counted.rank.restart();
                told.push((at, SourceEvent::Restarted.into()));
            }
        }
        if id > next {
            if self.ranks.get(at).is_some_and(|counted| counted.is_unbroken) {
                self.jumps.jump();
            }
            // The engine drops the oldest events of all ranks together, so the newest of a rank may
            // be gone that says nothing afterwards: no number would ever show it.
            for (other, counted) in self.ranks.iter_mut().enumerate() {
                counted.rank.forget();
                if other != at {
                    told.push((other, SourceEvent::Overflowed.into()));
                }
            }
        }
        if let Some(counted) = self.ranks.get_mut(at) {
            counted.next_id = id.saturating_add(1);
            counted.is_unbroken = true;
        }
    }

    /// Something is lost, of whom nobody can tell.
    fn unplaced(&mut self, strange: Strange) -> Step {
        let mut told = Vec::new();
        self.held_up();
        for (at, counted) in self.ranks.iter_mut().enumerate() {
            counted.rank.forget();
            told.push((at, SourceEvent::Overflowed.into()));
        }
        Step { told, faults: Vec::new(), strange: Some(strange) }
    }
}

fn live(batch: Batch) -> Delivery {
    SourceEvent::Live(batch).into()
}
