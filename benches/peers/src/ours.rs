//! Ours: one view for each worker, whose deltas go into the index, as the bridge does it.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use kvbridge::{
    api::Removal,
    index::{Index, Prompt, Published, Query, ReplicaSlot},
    schemas::{
        BlockHash, Event, Parent, Place, Projection, Removed, Replica, Stored, StoredBlock, Tier,
        TierTrust, Tokens, Trust,
    },
    view::{Delta, ORPHANS_MAX, View, ViewSettings},
};

use crate::{
    peer::{Copied, Peer, timed},
    workload::Op,
};

const BLOCK_SIZE: u32 = 16;
const SETTINGS: ViewSettings = ViewSettings::of(Projection::Last8, Removal::PerCopy, ORPHANS_MAX);

/// Whole answers, with names, trust and versions, or (`DEPTHS`) numbers by slot into one list.
pub struct Ours<const DEPTHS: bool> {
    index: Index,
    slots: Vec<ReplicaSlot>,
}

/// The views, and what a batch of them says.
pub struct Lane {
    views: Vec<View>,
    deltas: Vec<Delta>,
    findings: usize,
}

thread_local! {
    /// A caller's list, which it uses for all its questions.
    static LIST: RefCell<Vec<(ReplicaSlot, u64)>> = const { RefCell::new(Vec::new()) };
}

fn replica(worker: usize) -> Replica {
    Replica { model: "m".into(), instance: format!("w{worker}"), rank: 0 }
}

fn published() -> Published {
    Published { trust: TierTrust::all(Trust::Exact), ..Published::nothing() }
}

fn query(hashes: &[u64]) -> Query<'_> {
    let prompt = Prompt::Content { hashes, block_size: BLOCK_SIZE };
    Query { model: "m", prompt, lora: None, salt: None, accept: Trust::Exact, hints: false }
}

impl<const DEPTHS: bool> Peer for Ours<DEPTHS> {
    const NAME: &str = if DEPTHS { "ours, depths" } else { "ours, query" };
    type Event = (u16, [Event; 1]);
    type Question = Vec<u64>;
    type Lane = Lane;

    fn new(workers: usize) -> Self {
        let index = Index::new();
        let slots = (0..workers).map(|worker| index.register(replica(worker))).collect();
        Ours { index, slots }
    }

    fn lane(&self, workers: usize) -> Lane {
        self.slots.iter().for_each(|slot| self.index.publish(*slot, published()));
        let views = (0..workers).map(|_| View::new(SETTINGS)).collect();
        Lane { views, deltas: Vec::new(), findings: 0 }
    }

    fn stored(op: &Op) -> Self::Event {
        let block = |(key, content): (&u64, &u64)| StoredBlock {
            hash: BlockHash::from_u64(*key),
            content: Some(*content),
        };
        let stored = Stored {
            parent: op.parent.map_or(Parent::Root, |key| Parent::Block(BlockHash::from_u64(key))),
            block_size: BLOCK_SIZE,
            tokens: Tokens::default(),
            blocks: op.keys.iter().zip(&op.contents).map(block).collect(),
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        };
        (op.worker, [Event::Stored(stored)])
    }

    fn removed(op: &Op) -> Self::Event {
        let hashes = op.keys.iter().map(|key| BlockHash::from_u64(*key)).collect();
        (op.worker, [Event::Removed(Removed { hashes, place: Place::of(Tier::Device) })])
    }

    fn question(op: &Op) -> Self::Question {
        op.contents.clone()
    }

    fn apply(&self, lane: &mut Lane, events: Vec<Self::Event>) -> Duration {
        let mut findings = Vec::new();
        let (took, ()) = timed(|| {
            for (worker, event) in events {
                let worker = usize::from(worker);
                lane.deltas.clear();
                lane.views[worker].apply(&event, &mut lane.deltas, &mut findings);
                self.index.apply(self.slots[worker], &lane.deltas, published());
            }
        });
        lane.findings += findings.len();
        took
    }

    fn find(&self, prompt: &mut Self::Question) -> usize {
        if DEPTHS {
            return LIST.with_borrow_mut(|depths| {
                self.index.depths(&query(prompt), depths).expect("the model is known");
                depths.len()
            });
        }
        let answer = self.index.query(&query(prompt)).expect("the model is known");
        answer.replicas.iter().filter(|found| found.matched_blocks > 0).count()
    }

    fn scores(&self, prompt: Self::Question) -> BTreeMap<u16, u64> {
        if DEPTHS {
            let mut depths = Vec::new();
            self.index.depths(&query(&prompt), &mut depths).expect("the model is known");
            return depths
                .into_iter()
                .map(|(slot, blocks)| (slot.number() as u16, blocks))
                .collect();
        }
        let answer = self.index.query(&query(&prompt)).expect("the model is known");
        let matched = answer.replicas.iter().filter(|found| found.matched_blocks > 0);
        let number = |name: &str| name.trim_start_matches('w').parse().expect("named by us");
        matched.map(|found| (number(&found.replica.instance), found.matched_blocks)).collect()
    }

    fn remove_worker(&self, lane: &mut Lane, worker: u16) -> Duration {
        let worker = usize::from(worker);
        let remove = || {
            lane.views[worker] = View::new(SETTINGS);
            self.index.drop_replica(self.slots[worker]);
        };
        timed(remove).0
    }

    fn snapshot(&self, lane: &mut Lane, workers: usize) -> Option<Copied<Self>> {
        let export = || lane.views.iter().map(View::snapshot).collect();
        let (exported, records): (_, Vec<_>) = timed(export);
        let blocks = records.iter().map(Vec::len).sum();
        let index: Self = Peer::new(workers);
        let views = RefCell::new(Vec::new());
        let (installed, ()) = timed(|| {
            for (records, slot) in records.into_iter().zip(&index.slots) {
                let view = View::install(SETTINGS, records).expect("our own records");
                index.index.replace(*slot, view.as_deltas(), published());
                views.borrow_mut().push(view);
            }
        });
        Some(Copied { blocks, exported, installed, index })
    }

    fn note(&self, lane: &Lane) -> Option<String> {
        (lane.findings > 0).then(|| format!("{} findings", lane.findings))
    }
}
