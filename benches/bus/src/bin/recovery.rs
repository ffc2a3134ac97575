//! What bringing back one replica of a million blocks costs, and what the others feel of it: its
//! view written to a file and read again, put into the index, and questions about the other
//! replicas meanwhile, on another thread.
//!
//! Figures are medians over rounds with the lowest and the highest round; times are wall times. A
//! round that another program disturbs says so by its spread.
//!
//! usage: recovery [--rounds N] [--blocks N] [--folder DIRECTORY]

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write as _},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use kvbridge::{
    api::Removal,
    checkpoint,
    index::{Index, Prompt, Published, Query, ReplicaSlot},
    schemas::{
        BlockHash, Epoch, Event, Parent, Place, Projection, Replica, Seq, SnapshotHeader, Stored,
        StoredBlock, Tier, TierTrust, Tokens, Trust,
    },
    view::{ORPHANS_MAX, View, ViewSettings},
};

// The product's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SETTINGS: ViewSettings = ViewSettings::of(Projection::Last8, Removal::PerCopy, ORPHANS_MAX);
const OTHERS: u64 = 15;
const OTHERS_BLOCKS: u64 = 50_000;
/// Blocks of a sequence; the first part of it is one of `PREFIXES`, which all replicas have.
const LENGTH: u64 = 256;
const SHARED: u64 = 64;
const PREFIXES: u64 = 32;
/// Questions are asked for so long, with nothing beside them.
const IDLE: Duration = Duration::from_millis(500);

struct Args {
    rounds: usize,
    blocks: u64,
    folder: PathBuf,
}

fn args() -> anyhow::Result<Args> {
    let mut args = Args { rounds: 5, blocks: 1_000_000, folder: std::env::temp_dir() };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--rounds" => args.rounds = value.parse()?,
            "--blocks" => args.blocks = value.parse()?,
            "--folder" => args.folder = value.into(),
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(args)
}

fn mixed(of: u64) -> u64 {
    let of = (of + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (of ^ of >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The contents of a sequence of one replica.
fn contents(replica: u64, sequence: u64) -> Vec<u64> {
    let of = |at| match at < SHARED {
        true => mixed(1 << 60 | sequence % PREFIXES << 20 | at),
        false => mixed(replica << 50 | sequence << 20 | at),
    };
    (0..LENGTH).map(of).collect()
}

/// A view of about so many blocks.
fn view(replica: u64, blocks: u64) -> anyhow::Result<View> {
    let mut view = View::new(SETTINGS);
    let (mut deltas, mut findings) = (Vec::new(), Vec::new());
    for sequence in 0..blocks.div_ceil(LENGTH - SHARED) {
        let contents = contents(replica, sequence);
        let hash = |content: u64| BlockHash::from_u64(mixed(content ^ replica));
        let from = if sequence < PREFIXES { 0 } else { SHARED };
        let stored = contents.iter().skip(from as usize);
        let stored = Stored {
            parent: match contents.get(from.wrapping_sub(1) as usize) {
                Some(before) => Parent::Block(hash(*before)),
                None => Parent::Root,
            },
            block_size: 16,
            tokens: Tokens::default(),
            blocks: stored
                .map(|content| StoredBlock { hash: hash(*content), content: Some(*content) })
                .collect(),
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        };
        view.apply(&[Event::Stored(stored)], &mut deltas, &mut findings);
        deltas.clear();
    }
    anyhow::ensure!(findings.is_empty(), "a clean trace");
    Ok(view)
}

fn replica(number: u64) -> Replica {
    Replica { model: "m".into(), instance: format!("10.0.0.{number}:8000"), rank: 0 }
}

fn published() -> Published {
    Published { trust: TierTrust::all(Trust::Exact), ..Published::nothing() }
}

/// Microseconds of questions about sequences of the other replicas, until it is done.
fn ask(index: &Index, whole: bool, done: &AtomicBool) -> anyhow::Result<Vec<f64>> {
    let prompts: Vec<Vec<u64>> =
        (0..512).map(|at| contents(1 + at % OTHERS, at * 7 % 200)).collect();
    let (mut found, mut micros) = (Vec::new(), Vec::new());
    while !done.load(Ordering::Acquire) {
        for hashes in &prompts {
            let prompt = Prompt::Content { hashes, block_size: 16 };
            let accept = Trust::Exact;
            let query = Query { model: "m", prompt, lora: None, salt: None, accept, hints: false };
            let started = Instant::now();
            let count = if whole {
                index.query(&query)?.replicas.len()
            } else {
                index.depths(&query, &mut found)?;
                found.len()
            };
            micros.push(started.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(count > 0, "some replica has the prefix");
        }
    }
    Ok(micros)
}

/// p50 and p99 of questions while something is done beside them.
fn beside(index: &Index, whole: bool, mut work: impl FnMut() + Send) -> anyhow::Result<[f64; 2]> {
    let done = AtomicBool::new(false);
    let mut micros = thread::scope(|scope| {
        let asking = scope.spawn(|| ask(index, whole, &done));
        work();
        done.store(true, Ordering::Release);
        asking.join().unwrap_or_else(|_| bail!("the one who asks died"))
    })?;
    micros.sort_by(f64::total_cmp);
    let at = |part: f64| micros[((micros.len() - 1) as f64 * part) as usize];
    Ok([at(0.5), at(0.99)])
}

#[derive(Default)]
struct Rows(Vec<(&'static str, Vec<f64>)>);

impl Rows {
    fn add(&mut self, name: &'static str, figure: f64) {
        match self.0.iter_mut().find(|(row, _)| *row == name) {
            Some((_, figures)) => figures.push(figure),
            None => self.0.push((name, vec![figure])),
        }
    }
}

fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let started = Instant::now();
    let done = work()?;
    Ok((started.elapsed().as_secs_f64() * 1e3, done))
}

fn round(
    view: &View,
    index: &Index,
    slot: ReplicaSlot,
    args: &Args,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let file = args.folder.join("kvbridge-recovery.ckpt");
    let header = SnapshotHeader {
        replica: replica(0),
        epoch: Epoch(1),
        resume_seq: Seq(1),
        bus_seq: None,
        last_digest: None,
        trust: Trust::Exact,
        block_count: view.record_count(),
        state: None,
    };
    let (took, bytes) = timed(|| {
        let mut to = BufWriter::new(File::create(&file)?);
        let bytes = checkpoint::write(&mut to, &header, view)?;
        to.flush()?;
        to.get_ref().sync_all()?;
        Ok(bytes)
    })?;
    rows.add("checkpoint written and synced, ms", took);
    rows.add("checkpoint, MB", bytes as f64 / 1e6);
    let (took, loaded) = timed(|| {
        let (_, loaded) = checkpoint::read(BufReader::new(File::open(&file)?), SETTINGS)?;
        Ok(loaded?)
    })?;
    rows.add("checkpoint loaded into a view, ms", took);
    fs::remove_file(&file)?;
    let records = view.snapshot();
    let (took, installed) = timed(|| Ok(View::install(SETTINGS, records)?))?;
    rows.add("records of a snapshot into a view, ms", took);
    let replace = || index.replace(slot, installed.as_deltas(), published());
    let (took, ()) = timed(|| Ok(replace()))?;
    rows.add("view into the index, ms", took);
    anyhow::ensure!(loaded == *view && installed == *view, "another view came back");
    for (whole, names) in [
        (
            false,
            [
                "depths, idle: p50, µs",
                "depths, idle: p99, µs",
                "depths, during: p50, µs",
                "depths, during: p99, µs",
            ],
        ),
        (
            true,
            [
                "answer, idle: p50, µs",
                "answer, idle: p99, µs",
                "answer, during: p50, µs",
                "answer, during: p99, µs",
            ],
        ),
    ] {
        let idle = beside(index, whole, || thread::sleep(IDLE))?;
        let mut took = 0.0;
        let during = beside(index, whole, || {
            let started = Instant::now();
            replace();
            took = started.elapsed().as_secs_f64() * 1e3;
        })?;
        for (name, figure) in names.into_iter().zip(idle.into_iter().chain(during)) {
            rows.add(name, figure);
        }
        let name = ["into the index beside depths, ms", "into the index beside answers, ms"];
        rows.add(name[usize::from(whole)], took);
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let args = args()?;
    let index = Index::new();
    let slot = index.register(replica(0));
    for number in 1..=OTHERS {
        let slot = index.register(replica(number));
        index.replace(slot, view(number, OTHERS_BLOCKS)?.as_deltas(), published());
    }
    let view = view(0, args.blocks)?;
    let mut rows = Rows::default();
    for _ in 0..args.rounds {
        round(&view, &index, slot, &args, &mut rows)?;
    }
    println!(
        "{} blocks, {} rounds\n\n| | median | lowest | highest |\n|---|---|---|---|",
        view.block_count(),
        args.rounds
    );
    for (name, mut figures) in rows.0 {
        figures.sort_by(f64::total_cmp);
        let [low, middle, high] = [0, figures.len() / 2, figures.len() - 1].map(|at| figures[at]);
        println!("| {name} | {middle:.2} | {low:.2} | {high:.2} |");
    }
    Ok(())
}
