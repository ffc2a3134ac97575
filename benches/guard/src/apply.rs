//! A view's fold with the index behind it, and questions to the index: 16 replicas that share the
//! first half of every sequence.

use std::hint::black_box;

use kvbridge::{
    api::Removal,
    index::{Index, Prompt, Published, Query, ReplicaSlot},
    schemas::{
        BlockHash, Event, Parent, Place, Projection, Removed, Replica, Stored, StoredBlock, Tier,
        TierTrust, Tokens, Trust,
    },
    view::{Delta, View, ViewSettings},
};

use crate::BLOCKS;

const REPLICAS: usize = 16;
/// Sequences that are there before anything is counted: some thousand blocks a replica, so that
/// tables have their depth and none grows while it is counted.
const SEQUENCES: usize = 2_048;
/// What sequences begin with: each of them on one replica.
const PREFIXES: usize = 32;
/// What may be asked for. All of it is made beforehand, however much is used, so that it falls out
/// of the difference of two runs.
const TIMES_MAX: usize = 512;
const SETTINGS: ViewSettings = ViewSettings::of(Projection::Last8, Removal::PerCopy, 1_024);

struct Fleet {
    index: Index,
    slots: Vec<ReplicaSlot>,
    views: Vec<View>,
    deltas: Vec<Delta>,
}

fn mixed(of: usize) -> u64 {
    let of = (of as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (of ^ of >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The contents of one sequence: half of it is a prefix that others have.
fn contents(sequence: usize) -> Vec<u64> {
    let (half, prefix) = (BLOCKS / 2, sequence % PREFIXES);
    let shared = (0..half).map(|at| mixed(1 << 40 | prefix << 8 | at));
    shared.chain((half..BLOCKS).map(|at| mixed(sequence << 8 | at))).collect()
}

/// An engine's hashes: a block's is made of all before it.
fn hashes(contents: &[u64]) -> Vec<BlockHash> {
    let chain = contents.iter().scan(0_u64, |before, content| {
        *before = (*before ^ content).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(*before)
    });
    chain.map(BlockHash::from_u64).collect()
}

/// What an engine stores of it: of a prefix that it has, nothing again.
fn stored(sequence: usize) -> Event {
    let contents = contents(sequence);
    let block = |(hash, content)| StoredBlock { hash, content: Some(content) };
    let hashes = hashes(&contents);
    let from = if sequence < PREFIXES { 0 } else { BLOCKS / 2 };
    Event::Stored(Stored {
        parent: match from.checked_sub(1) {
            Some(before) => Parent::Block(hashes[before].clone()),
            None => Parent::Root,
        },
        block_size: 16,
        tokens: Tokens::default(),
        blocks: hashes.into_iter().zip(contents).skip(from).map(block).collect(),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    })
}

/// What an engine evicts of it: the end, deepest first.
fn removed(sequence: usize) -> Event {
    let mut hashes = hashes(&contents(sequence)).split_off(BLOCKS / 2);
    hashes.reverse();
    Event::Removed(Removed { hashes, place: Place::of(Tier::Device) })
}

fn published() -> Published {
    Published { trust: TierTrust::all(Trust::Exact), ..Published::nothing() }
}

impl Fleet {
    fn new() -> Fleet {
        let index = Index::new();
        let replica =
            |at| Replica { model: "m".into(), instance: format!("10.0.0.{at}:8000"), rank: 0 };
        let slots: Vec<_> = (0..REPLICAS).map(|at| index.register(replica(at))).collect();
        let views = (0..REPLICAS).map(|_| View::new(SETTINGS)).collect();
        let mut fleet = Fleet { index, slots, views, deltas: Vec::new() };
        for sequence in 0..SEQUENCES {
            fleet.apply(sequence % REPLICAS, &[stored(sequence)]);
        }
        fleet
    }

    fn apply(&mut self, replica: usize, events: &[Event]) {
        let mut findings = Vec::new();
        self.deltas.clear();
        self.views[replica].apply(events, &mut self.deltas, &mut findings);
        self.index.apply(self.slots[replica], &self.deltas, published());
        assert!(findings.is_empty(), "a clean trace");
    }
}

/// Of each two, both bring half a unit of blocks. Replicas take turns.
fn new_sequences() -> impl Iterator<Item = (usize, [usize; 2])> {
    let first = |time| SEQUENCES + time % REPLICAS + time / REPLICAS * 2 * REPLICAS;
    (0..TIMES_MAX).map(move |time| (time % REPLICAS, [first(time), first(time) + REPLICAS]))
}

fn prompts() -> Vec<Vec<u64>> {
    (0..TIMES_MAX).map(contents).collect()
}

/// Of new sequences, behind what is there.
pub fn stores(times: usize) {
    let mut fleet = Fleet::new();
    let batch = |(replica, new): (_, [_; 2])| (replica, new.map(stored));
    let batches: Vec<_> = new_sequences().map(batch).collect();
    for (replica, batch) in batches.iter().take(times) {
        fleet.apply(*replica, batch);
    }
}

/// Sequences come, old ones lose their ends.
pub fn stores_and_removals(times: usize) {
    let mut fleet = Fleet::new();
    let batch = |(replica, [a, b]): (_, [_; 2])| {
        let old = [removed(a - SEQUENCES), removed(b - SEQUENCES)];
        (replica, [stored(a), stored(b)].into_iter().chain(old).collect::<Vec<_>>())
    };
    let batches: Vec<_> = new_sequences().map(batch).collect();
    for (replica, batch) in batches.iter().take(times) {
        fleet.apply(*replica, batch);
    }
}

fn query(hashes: &[u64]) -> Query<'_> {
    let prompt = Prompt::Content { hashes, block_size: 16 };
    Query { model: "m", prompt, lora: None, salt: None, accept: Trust::Exact, hints: false }
}

/// Numbers into a list of the caller.
pub fn depths(times: usize) {
    let (fleet, mut found) = (Fleet::new(), Vec::new());
    for prompt in prompts().iter().take(times) {
        fleet.index.depths(&query(prompt), &mut found).expect("the model is known");
        assert!(found.iter().any(|(_, blocks)| *blocks == BLOCKS as u64), "one holds all of it");
    }
}

/// The whole answer.
pub fn answers(times: usize) {
    let fleet = Fleet::new();
    for prompt in prompts().iter().take(times) {
        let answer = fleet.index.query(&query(prompt)).expect("the model is known");
        assert_eq!(black_box(answer).replicas.len(), REPLICAS);
    }
}
