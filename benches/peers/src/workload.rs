//! One trace of queries, stores and removals that every index plays: made once, in memory.
//!
//! - [`synthetic`]: replicas with a cache of blocks of 16; sequences of 64 to 512 blocks that begin
//!   with a Zipf-chosen prefix and go on privately; the least recently used go, deepest first.
//! - [`mooncake`]: requests of a public trace, given as a file, played through such caches.

use std::{collections::VecDeque, fs, path::Path};

use anyhow::Context as _;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::lru::Lru;

/// What happens, and where its blocks lie in the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Query,
    Stored,
    Removed,
}

/// Parts of a trace, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The caches fill.
    Load,
    /// Full caches: each store pushes others out.
    Churn,
    /// Half of what is held goes.
    Evict,
}

#[derive(Clone)]
pub struct Op {
    pub kind: Kind,
    pub phase: Phase,
    pub worker: u16,
    /// The block before the first one, if it is not a root.
    pub parent: Option<u64>,
    /// Hashes that an engine gives, one for each block.
    pub keys: Vec<u64>,
    /// Hashes of their tokens; of a removal none.
    pub contents: Vec<u64>,
}

#[derive(Default)]
pub struct Trace {
    pub workers: usize,
    pub ops: Vec<Op>,
}

impl Trace {
    pub fn of(&self, phase: Phase) -> impl Iterator<Item = &Op> {
        self.ops.iter().filter(move |op| op.phase == phase)
    }

    fn push(&mut self, kind: Kind, at: (Phase, usize), parent: Option<u64>, blocks: Blocks<'_>) {
        let (keys, contents) = blocks;
        if !keys.is_empty() {
            let worker = u16::try_from(at.1).expect("few workers");
            let (keys, contents) = (keys.to_vec(), contents.to_vec());
            self.ops.push(Op { kind, phase: at.0, worker, parent, keys, contents });
        }
    }
}

/// Keys and contents.
type Blocks<'a> = (&'a [u64], &'a [u64]);

/// Each block's hash is over the one before it and its own content, as engines do it.
pub fn chain(contents: &[u64]) -> Vec<u64> {
    let mut before = None;
    let keys = contents.iter().map(|content| {
        let key = match before {
            None => *content,
            Some(before) => next(before, *content),
        };
        before = Some(key);
        key
    });
    keys.collect()
}

fn next(before: u64, content: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&before.to_le_bytes());
    bytes[8..].copy_from_slice(&content.to_le_bytes());
    xxh3_64_with_seed(&bytes, 1337)
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    pub fn range(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Prefixes under 64 roots with `branches` each, and a sampler of their ranks.
struct Prefixes {
    all: Vec<Vec<u64>>,
    sums: Vec<f64>,
}

impl Prefixes {
    fn new(random: &mut Random, roots: usize, branches: usize) -> Prefixes {
        let mut all = Vec::new();
        for _ in 0..roots {
            let root: Vec<u64> = (0..random.range(16, 64)).map(|_| random.next()).collect();
            for _ in 0..branches {
                let own = random.range(16, 128);
                all.push(root.iter().copied().chain((0..own).map(|_| random.next())).collect());
            }
        }
        for i in (1..all.len()).rev() {
            all.swap(i, random.below(i + 1));
        }
        let mut sum = 0.0;
        let sums = (1..=all.len()).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        let sums = sums.collect();
        Prefixes { all, sums }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum < at).min(self.all.len() - 1)
    }
}

struct Job {
    worker: usize,
    contents: Vec<u64>,
    keys: Vec<u64>,
    at: usize,
}

/// `blocks` stored into empty caches, as many again into full ones, then half of all removed.
pub fn synthetic(workers: usize, blocks: usize) -> Trace {
    let mut random = Random(7);
    let prefixes = Prefixes::new(&mut random, 64, 32);
    let mut trace = Trace { workers, ops: Vec::new() };
    let mut caches: Vec<Lru> = (0..workers).map(|_| Lru::default()).collect();
    let mut capacity = vec![usize::MAX; workers];
    let (mut phase, mut stored) = (Phase::Load, 0);
    let mut jobs: VecDeque<Job> = VecDeque::new();
    for _ in 0..workers * 4 {
        jobs.push_back(request(&mut random, &prefixes, &mut trace, &mut caches, phase));
    }
    loop {
        let at = random.below(jobs.len());
        let job = &mut jobs[at];
        let cache = &mut caches[job.worker];
        while job.at < job.keys.len() && cache.has(job.keys[job.at]) {
            job.at += 1;
        }
        let parent_lost = job.at > 0 && !cache.has(job.keys[job.at - 1]);
        if job.at >= job.keys.len() || parent_lost {
            cache.release(&job.keys);
            jobs[at] = request(&mut random, &prefixes, &mut trace, &mut caches, phase);
            continue;
        }
        let count = store(&mut random, &mut trace, phase, job, cache);
        let gone = cache.shrink(capacity[job.worker]);
        trace.push(Kind::Removed, (phase, job.worker), None, (&gone, &[]));
        stored += count;
        if stored >= blocks {
            if phase == Phase::Churn {
                break;
            }
            (phase, stored) = (Phase::Churn, 0);
            capacity = caches.iter().map(Lru::len).collect();
        }
    }
    evict_half(&mut random, &mut trace, &mut caches);
    trace
}

fn request(
    random: &mut Random,
    prefixes: &Prefixes,
    trace: &mut Trace,
    caches: &mut [Lru],
    phase: Phase,
) -> Job {
    let number = prefixes.draw(random);
    let length = random.range(64, 512);
    let mut contents: Vec<u64> = prefixes.all[number].iter().copied().take(length).collect();
    contents.extend((contents.len()..length).map(|_| random.next()));
    let keys = chain(&contents);
    let worker = if random.unit() < 0.8 {
        // Four home workers for each prefix.
        let home = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20) as usize;
        home.wrapping_add(random.below(4) * 17) % caches.len()
    } else {
        random.below(caches.len())
    };
    trace.push(Kind::Query, (phase, worker), None, (&keys, &contents));
    let at = caches[worker].prefix(&keys);
    keys[..at].iter().for_each(|key| caches[worker].touch(*key));
    Job { worker, contents, keys, at }
}

/// Stores up to 64 missing blocks of a sequence.
fn store(
    random: &mut Random,
    trace: &mut Trace,
    phase: Phase,
    job: &mut Job,
    cache: &mut Lru,
) -> usize {
    let max = random.range(1, 64);
    let new = job.keys[job.at..].iter().take(max).take_while(|key| cache.insert(**key)).count();
    let parent = job.at.checked_sub(1).map(|before| job.keys[before]);
    let range = job.at..job.at + new;
    let blocks = (&job.keys[range.clone()], &job.contents[range]);
    trace.push(Kind::Stored, (phase, job.worker), parent, blocks);
    job.at += new;
    new
}

fn evict_half(random: &mut Random, trace: &mut Trace, caches: &mut [Lru]) {
    let mut left: Vec<usize> = caches.iter().map(|cache| cache.len() / 2).collect();
    let mut live: Vec<usize> = (0..caches.len()).filter(|worker| left[*worker] > 0).collect();
    while !live.is_empty() {
        let at = random.below(live.len());
        let worker = live[at];
        let count = random.range(1, 64).min(left[worker]);
        let gone = caches[worker].shrink(caches[worker].len() - count);
        trace.push(Kind::Removed, (Phase::Evict, worker), None, (&gone, &[]));
        left[worker] -= count;
        if left[worker] == 0 {
            live.swap_remove(at);
        }
    }
}

#[derive(serde::Deserialize)]
struct Row {
    input_length: usize,
    output_length: usize,
    hash_ids: Vec<u64>,
}

/// Tokens that one hash of the trace stands for.
const TOKENS_PER_HASH: usize = 512;

/// A trace's requests on `workers` caches of `capacity` blocks of 16 tokens. A request goes to the
/// longest match unless that worker has more than 1.5 times the mean load or holds under a tenth of
/// it; then to the least loaded. Generated tokens are stored block by block.
pub fn mooncake(path: &Path, workers: usize, capacity: usize) -> anyhow::Result<Trace> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut trace = Trace { workers, ops: Vec::new() };
    let mut caches: Vec<Lru> = (0..workers).map(|_| Lru::default()).collect();
    let mut loads = vec![0.0_f64; workers];
    let mut fresh = Random(12_345);
    for line in text.lines() {
        let row: Row = serde_json::from_str(line)?;
        let parts = TOKENS_PER_HASH / 16;
        let all = row.hash_ids.iter().flat_map(|id| {
            (0..parts).map(move |part| Random((id << 20) ^ ((part as u64) << 8) ^ 0xABCD).next())
        });
        let mut contents: Vec<u64> = all.take(row.input_length / 16).collect();
        let mut keys = chain(&contents);
        if keys.is_empty() {
            continue;
        }
        loads.iter_mut().for_each(|load| *load *= 0.995);
        let worker = place(&caches, &loads, &keys);
        trace.push(Kind::Query, (Phase::Load, worker), None, (&keys, &contents));
        let cache = &mut caches[worker];
        let held = cache.prefix(&keys);
        loads[worker] += (keys.len() - held) as f64 + 1.0;
        keys[..held].iter().for_each(|key| cache.touch(*key));
        let asked = keys.len();
        for _ in 0..row.output_length / 16 {
            contents.push(fresh.next());
            keys.push(next(keys[keys.len() - 1], contents[contents.len() - 1]));
        }
        fill(&mut trace, worker, cache, (&keys, &contents), (asked, capacity));
        cache.release(&keys);
    }
    evict_half(&mut Random(99), &mut trace, &mut caches);
    Ok(trace)
}

fn place(caches: &[Lru], loads: &[f64], keys: &[u64]) -> usize {
    let workers = 0..caches.len();
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    let held = workers.clone().map(|worker| (caches[worker].prefix(keys), worker));
    let by_match = |a: &(usize, usize), b: &(usize, usize)| {
        a.0.cmp(&b.0).then(loads[b.1].total_cmp(&loads[a.1]))
    };
    let (held, best) = held.max_by(by_match).unwrap_or((0, 0));
    if held * 10 >= keys.len() && loads[best] <= mean * 1.5 + 1.0 {
        return best;
    }
    workers.min_by(|a, b| loads[*a].total_cmp(&loads[*b])).unwrap_or(0)
}

/// Stores what a worker lacks: the prompt in batches of 64, what it generates block by block.
fn fill(
    trace: &mut Trace,
    worker: usize,
    cache: &mut Lru,
    (keys, contents): Blocks<'_>,
    (asked, capacity): (usize, usize),
) {
    let mut at = 0;
    while at < keys.len() {
        if cache.has(keys[at]) {
            at += 1;
            continue;
        }
        if at >= asked && !cache.has(keys[at - 1]) {
            return; // what it generated on is gone already
        }
        let max = if at < asked { (asked - at).min(64) } else { 1 };
        let new = keys[at..at + max].iter().take_while(|key| cache.insert(**key)).count();
        let parent = at.checked_sub(1).map(|before| keys[before]);
        let blocks = (&keys[at..at + new], &contents[at..at + new]);
        trace.push(Kind::Stored, (Phase::Load, worker), parent, blocks);
        at += new;
        let gone = cache.shrink(capacity);
        trace.push(Kind::Removed, (Phase::Load, worker), None, (&gone, &[]));
    }
}
