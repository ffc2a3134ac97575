//! What a right answer is: for each worker the set of blocks it holds, and nothing else.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::{
    peer::{Peer, events},
    workload::{Kind, Op, Phase, Random, Trace, chain},
};

#[derive(Default)]
pub struct Oracle(Vec<FxHashSet<u64>>);

impl Oracle {
    pub fn new(workers: usize) -> Oracle {
        Oracle((0..workers).map(|_| FxHashSet::default()).collect())
    }

    fn apply(&mut self, op: &Op) {
        let held = &mut self.0[usize::from(op.worker)];
        match op.kind {
            Kind::Stored => held.extend(&op.keys),
            Kind::Removed => {
                for key in &op.keys {
                    held.remove(key);
                }
            }
            Kind::Query => (),
        }
    }

    fn scores(&self, keys: &[u64]) -> BTreeMap<u16, u64> {
        let prefix =
            |held: &FxHashSet<u64>| keys.iter().take_while(|key| held.contains(key)).count();
        let all = self.0.iter().enumerate();
        let scores = all.map(|(worker, held)| (worker as u16, prefix(held) as u64));
        scores.filter(|(_, blocks)| *blocks > 0).collect()
    }
}

/// How a peer's answers compare.
#[derive(Default)]
pub struct Verdict {
    pub asked: usize,
    pub wrong: usize,
}

/// Plays a trace and asks every `every`th of its questions.
pub fn judge<P: Peer>(trace: &Trace, every: usize) -> Verdict {
    let peer = P::new(trace.workers);
    let mut lane = peer.lane(trace.workers);
    let mut oracle = Oracle::new(trace.workers);
    let (mut verdict, mut waiting, mut seen) = (Verdict::default(), Vec::new(), 0);
    for op in &trace.ops {
        oracle.apply(op);
        if op.kind != Kind::Query {
            waiting.push(op);
            continue;
        }
        seen += 1;
        if seen % every == 0 {
            peer.apply(&mut lane, events::<P>(waiting.drain(..)));
            verdict.asked += 1;
            let found = peer.scores(P::question(op));
            verdict.wrong += usize::from(found != oracle.scores(&op.keys));
        }
    }
    verdict
}

/// Blocks go in any order, so that chains have holes; with `heal`, what is missing in the middle is
/// stored again.
pub fn holes(seed: u64, heal: bool) -> Trace {
    let mut random = Random(seed);
    let mut sequences = Vec::new();
    for _ in 0..20 {
        let base: Vec<u64> = (0..random.range(4, 20)).map(|_| random.next()).collect();
        for _ in 0..6 {
            let mut contents = base[..random.range(1, base.len())].to_vec();
            contents.extend((0..random.range(2, 30)).map(|_| random.next()));
            sequences.push((chain(&contents), contents));
        }
    }
    let mut trace = Trace { workers: 8, ops: Vec::new() };
    let mut oracle = Oracle::new(trace.workers);
    let mut ends = vec![vec![0; sequences.len()]; trace.workers];
    for step in 0..6_000 {
        let (worker, number) = (random.below(trace.workers), random.below(sequences.len()));
        let (keys, contents) = &sequences[number];
        let held = &oracle.0[worker];
        let op = |kind, parent, keys: &[u64], contents: &[u64]| Op {
            kind,
            phase: Phase::Load,
            worker: worker as u16,
            parent,
            keys: keys.to_vec(),
            contents: contents.to_vec(),
        };
        let mut made = None;
        if random.unit() < 0.6 {
            let missing = keys.iter().position(|key| !held.contains(key)).unwrap_or(keys.len());
            let from = if heal { missing } else { missing.max(ends[worker][number]) };
            if from < keys.len() && (from == 0 || held.contains(&keys[from - 1])) {
                let max = random.range(1, 8);
                let new = keys[from..].iter().take(max).take_while(|key| !held.contains(key));
                let to = from + new.count();
                ends[worker][number] = to;
                let parent = from.checked_sub(1).map(|before| keys[before]);
                made = Some(op(Kind::Stored, parent, &keys[from..to], &contents[from..to]));
            }
        } else {
            let held: Vec<u64> = keys.iter().copied().filter(|key| held.contains(key)).collect();
            if !held.is_empty() {
                let from = random.below(held.len());
                let to = (from + random.range(1, 3)).min(held.len());
                made = Some(op(Kind::Removed, None, &held[from..to], &[]));
            }
        }
        if let Some(made) = made.filter(|made| !made.keys.is_empty()) {
            oracle.apply(&made);
            trace.ops.push(made);
        }
        if step % 5 == 0 {
            let (keys, contents) = &sequences[random.below(sequences.len())];
            trace.ops.push(op(Kind::Query, None, keys, contents));
        }
    }
    trace
}
