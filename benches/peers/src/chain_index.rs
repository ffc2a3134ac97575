//! `kv-index` 2.0.0: `ChainIndex`, with its result map and without.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use crate::{
    peer::{Copied, Peer, timed},
    workload::Op,
};

pub enum Event {
    Stored(u32, Option<SequenceHash>, Vec<StoredBlock>),
    Removed(u32, Vec<SequenceHash>),
}

/// `find_matches`, or (`SCORE`) `score_into`, which builds no map.
pub struct Chain<const SCORE: bool>(ChainIndex);

/// The maps that the caller keeps, one for each worker, and the refused events.
pub struct Lane {
    maps: Vec<ChainBlockMap>,
    refused: Mutex<usize>,
}

impl<const SCORE: bool> Peer for Chain<SCORE> {
    const NAME: &str = if SCORE { "kv-index, score_into" } else { "kv-index, find_matches" };
    type Event = Event;
    type Question = Vec<ContentHash>;
    type Lane = Lane;

    fn new(workers: usize) -> Self {
        let index = ChainIndex::with_max_workers(256);
        for worker in 0..workers {
            index.intern_worker(&format!("w{worker}")).expect("few workers");
        }
        Chain(index)
    }

    fn lane(&self, workers: usize) -> Lane {
        let maps = (0..workers).map(|_| ChainBlockMap::new()).collect();
        Lane { maps, refused: Mutex::new(0) }
    }

    fn stored(op: &Op) -> Event {
        let pairs = op.keys.iter().zip(&op.contents);
        let block = |(key, content): (&u64, &u64)| StoredBlock {
            seq_hash: SequenceHash(*key),
            content_hash: ContentHash(*content),
        };
        Event::Stored(op.worker.into(), op.parent.map(SequenceHash), pairs.map(block).collect())
    }

    fn removed(op: &Op) -> Event {
        Event::Removed(op.worker.into(), op.keys.iter().map(|key| SequenceHash(*key)).collect())
    }

    fn question(op: &Op) -> Self::Question {
        op.contents.iter().map(|content| ContentHash(*content)).collect()
    }

    fn apply(&self, lane: &mut Lane, events: Vec<Event>) -> Duration {
        let mut refused = 0;
        let (took, ()) = timed(|| {
            for event in events {
                match event {
                    Event::Stored(worker, parent, blocks) => {
                        let map = &mut lane.maps[worker as usize];
                        let stored = self.0.apply_stored(worker, &blocks, parent, map);
                        refused += usize::from(stored.is_err());
                    }
                    Event::Removed(worker, keys) => {
                        self.0.apply_removed(worker, &keys, &mut lane.maps[worker as usize]);
                    }
                }
            }
        });
        *lane.refused.lock().expect("no panic") += refused;
        took
    }

    fn find(&self, question: &mut Self::Question) -> usize {
        if !SCORE {
            return self.0.find_matches(question, false).scores.len();
        }
        let mut count = 0;
        self.0.score_into(
            question,
            |hash| hash.0,
            false,
            |_, blocks| {
                count += usize::from(blocks > 0);
            },
        );
        count
    }

    fn scores(&self, question: Self::Question) -> BTreeMap<u16, u64> {
        let mut scores = BTreeMap::new();
        self.0.score_into(
            &question,
            |hash| hash.0,
            false,
            |worker, blocks| {
                scores.insert(worker as u16, u64::from(blocks));
            },
        );
        scores
    }

    fn remove_worker(&self, lane: &mut Lane, worker: u16) -> Duration {
        let map = std::mem::take(&mut lane.maps[usize::from(worker)]);
        timed(|| self.0.remove_worker(worker.into(), map)).0
    }

    fn snapshot(&self, _: &mut Lane, _: usize) -> Option<Copied<Self>> {
        None
    }

    fn note(&self, lane: &Lane) -> Option<String> {
        let refused = *lane.refused.lock().expect("no panic");
        (refused > 0).then(|| format!("refused {refused} stores"))
    }
}
