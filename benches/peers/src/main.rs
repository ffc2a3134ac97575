//! Our index beside those of other routers: the same blocks, the same questions, in turn.
//!
//! Rates are per thread CPU time, latencies are wall time; figures are medians over rounds with the
//! lowest and the highest round. First every peer plays traces with an oracle beside it: whose
//! answers are wrong is said above the table.
//!
//! usage: bench-peers [--rounds N] [--blocks N] [--mooncake FILE] [--json FILE] [--peer WORD]

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use bench_peers::{
    for_each_peer, limit,
    oracle::{holes, judge},
    peer::{Copied, Peer, cpu, events, timed},
    rows::{Row, Rows, spread},
    workload::{Kind, Op, Phase, Trace, mooncake, synthetic},
};

// The product's, and here everybody's: what an allocator gives back to the kernel while a lock is
// held is no matter of the index.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Args {
    rounds: usize,
    blocks: usize,
    mooncake: Option<PathBuf>,
    json: Option<PathBuf>,
    peer: String,
}

fn args() -> anyhow::Result<Args> {
    let mut args =
        Args { rounds: 5, blocks: 2_000_000, mooncake: None, json: None, peer: String::new() };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--rounds" => args.rounds = value.parse()?,
            "--blocks" => args.blocks = value.parse()?,
            "--mooncake" => args.mooncake = Some(value.into()),
            "--json" => args.json = Some(value.into()),
            "--peer" => args.peer = value,
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(args)
}

fn main() -> anyhow::Result<()> {
    let args = args()?;
    judge_all(&args);
    let mut traces = vec![("synthetic", synthetic(64, args.blocks))];
    if let Some(path) = &args.mooncake {
        traces.push(("mooncake", mooncake(path, 16, 65_536)?));
    }
    let mut json = String::new();
    for (name, trace) in &traces {
        let mut rows = Rows::default();
        for _ in 0..args.rounds {
            for_each_peer!(round(trace, &args, &mut rows));
            under_writes_all(trace, &args, &mut rows);
            limits(trace, &mut rows);
        }
        println!("\n## {name}\n\n{rows}");
        json.push_str(&rows.json_lines(name));
        json.push('\n');
    }
    match args.json {
        Some(path) => fs::write(path, json).context("writing the figures"),
        None => Ok(()),
    }
}

fn judge_all(args: &Args) {
    let churn = synthetic(16, 100_000);
    println!(
        "## Wrong answers, of all asked\n\n| | evicted deepest first | holes | holes healed |"
    );
    println!("|---|---|---|---|");
    for_each_peer!(verdicts(&churn, args));
}

fn verdicts<P: Peer>(churn: &Trace, args: &Args) {
    if !P::NAME.contains(&args.peer) {
        return;
    }
    let judged =
        [judge::<P>(churn, 4), judge::<P>(&holes(1, false), 1), judge::<P>(&holes(1, true), 1)];
    let cells = judged.map(|verdict| format!(" {} of {} |", verdict.wrong, verdict.asked));
    println!("| {} |{}", P::NAME, cells.concat());
}

const fn rate(name: &'static str) -> Row {
    Row { name, unit: "M blocks/s", more_is_better: true }
}

const fn time(name: &'static str, unit: &'static str) -> Row {
    Row { name, unit, more_is_better: false }
}

/// What the rows could be, where that can be said.
fn limits(trace: &Trace, rows: &mut Rows) {
    let count = |op: &Op| match op.kind {
        Kind::Stored => op.keys.len() as i64,
        Kind::Removed => -(op.keys.len() as i64),
        Kind::Query => 0,
    };
    let held: i64 = trace.of(Phase::Load).map(count).sum();
    let mut lengths: Vec<usize> =
        last_queries(trace, Phase::Load).iter().map(|op| op.contents.len()).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
    let limits = limit::measure(usize::try_from(held).unwrap_or(0), median);
    for row in [LOADED, REPLAYED, CHURNED, EVICTED] {
        rows.limit(row, limits.writes_per_us);
    }
    rows.limit(HIT.1[0], limits.compare_us);
    rows.limit(MISS.1[0], limits.find_us);
}

/// Everything that one thread can do.
fn round<P: Peer>(trace: &Trace, args: &Args, rows: &mut Rows) {
    if !P::NAME.contains(&args.peer) {
        return;
    }
    let peer = P::new(trace.workers);
    let mut lane = peer.lane(trace.workers);
    let has_churn = trace.of(Phase::Churn).next().is_some();
    let row = if has_churn { LOADED } else { REPLAYED };
    apply(&peer, &mut lane, trace, Phase::Load, row, rows);
    ask(&peer, questions::<P>(trace, Phase::Load, false), HIT, rows);
    if has_churn {
        ask(&peer, questions::<P>(trace, Phase::Churn, false), PARTIAL, rows);
    }
    ask(&peer, questions::<P>(trace, Phase::Load, true), MISS, rows);
    if let Some(Copied { blocks, exported, installed, index }) =
        peer.snapshot(&mut lane, trace.workers)
    {
        let millis = |took: Duration| took.as_secs_f64() * 1e9 / blocks as f64;
        rows.add(time("snapshot, export of 1 M blocks", "ms"), P::NAME, millis(exported));
        rows.add(time("snapshot, install of 1 M blocks", "ms"), P::NAME, millis(installed));
        let asked = questions::<P>(trace, Phase::Load, false).into_iter().step_by(50);
        let differ = asked.filter(|q| peer.scores(q.clone()) != index.scores(q.clone())).count();
        if differ > 0 {
            rows.note(format!("{}: {differ} answers of the installed copy differ", P::NAME));
        }
    }
    if has_churn {
        apply(&peer, &mut lane, trace, Phase::Churn, CHURNED, rows);
    }
    apply(&peer, &mut lane, trace, Phase::Evict, EVICTED, rows);
    let took: Duration = (0..4).map(|worker| peer.remove_worker(&mut lane, worker)).sum();
    rows.add(time("drop of a replica", "ms"), P::NAME, took.as_secs_f64() * 1e3 / 4.0);
    if let Some(note) = peer.note(&lane) {
        rows.note(format!("{}: {note}", P::NAME));
    }
}

/// Of those that more than one thread may use.
fn under_writes_all(trace: &Trace, args: &Args, rows: &mut Rows) {
    under_writes::<bench_peers::ours::Ours<true>>(trace, args, rows);
    under_writes::<bench_peers::ours::Ours<false>>(trace, args, rows);
    #[cfg(feature = "others")]
    {
        under_writes::<bench_peers::chain_index::Chain<false>>(trace, args, rows);
        under_writes::<bench_peers::chain_index::Chain<true>>(trace, args, rows);
        under_writes::<bench_peers::dynamo::Compressed>(trace, args, rows);
    }
}

/// Questions while another thread writes as fast as it can.
fn under_writes<P: Peer + Sync>(trace: &Trace, args: &Args, rows: &mut Rows) {
    if !P::NAME.contains(&args.peer) {
        return;
    }
    let (mut loaded, mut phase) = (Vec::new(), Phase::Load);
    if trace.of(Phase::Churn).next().is_some() {
        (loaded, phase) = (events::<P>(trace.of(Phase::Load)), Phase::Churn);
    }
    let peer = P::new(trace.workers);
    let mut lane = peer.lane(trace.workers);
    peer.apply(&mut lane, loaded);
    let batch = events::<P>(trace.of(phase));
    let questions = questions::<P>(trace, phase, false);
    let pool: Vec<Vec<P::Question>> = (0..20).map(|_| questions.clone()).collect();
    let done = AtomicBool::new(false);
    let mut micros = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            peer.apply(&mut lane, batch);
            done.store(true, Ordering::Release);
        });
        for mut question in pool.into_iter().flatten() {
            let start = Instant::now();
            std::hint::black_box(peer.find(&mut question));
            micros.push(start.elapsed().as_secs_f64() * 1e6);
            if done.load(Ordering::Acquire) {
                break;
            }
        }
    });
    let [p50, p99, _] = percentiles(&mut micros);
    rows.add(time("query under writes, p50", "µs"), P::NAME, p50);
    rows.add(time("query under writes, p99", "µs"), P::NAME, p99);
}

fn apply<P: Peer>(
    peer: &P,
    lane: &mut P::Lane,
    trace: &Trace,
    phase: Phase,
    row: Row,
    rows: &mut Rows,
) {
    let ops = || trace.of(phase).filter(|op| op.kind != Kind::Query);
    let blocks: usize = ops().map(|op| op.keys.len()).sum();
    let took = peer.apply(lane, events::<P>(ops()));
    rows.add(row, P::NAME, blocks as f64 / took.as_secs_f64() / 1e6);
}

fn last_queries(trace: &Trace, phase: Phase) -> Vec<&Op> {
    let all: Vec<_> = trace.of(phase).filter(|op| op.kind == Kind::Query).collect();
    all[all.len().saturating_sub(5_000)..].to_vec()
}

/// The last 5000 questions of a phase; with `miss`, about content that nobody has.
fn questions<P: Peer>(trace: &Trace, phase: Phase, miss: bool) -> Vec<P::Question> {
    let question = |op: &Op| {
        let mut op = op.clone();
        if miss {
            op.contents.iter_mut().for_each(|content| *content = !*content);
        }
        P::question(&op)
    };
    last_queries(trace, phase).into_iter().map(question).collect()
}

const LOADED: Row = rate("stored, empty caches");
const REPLAYED: Row = rate("stored and removed");
const CHURNED: Row = rate("stored and removed, full caches");
const EVICTED: Row = rate("removed, half of all");

/// Rate; p50, p99, p99.9.
type Asked = (Row, [Row; 3]);
const fn thousands(name: &'static str) -> Row {
    Row { name, unit: "k/s", more_is_better: true }
}
const HIT: Asked = (
    thousands("query, hit"),
    [time("query, hit, p50", "µs"), time("query, hit, p99", "µs"), time("query, hit, p99.9", "µs")],
);
const PARTIAL: Asked = (
    thousands("query, partial"),
    [
        time("query, partial, p50", "µs"),
        time("query, partial, p99", "µs"),
        time("query, partial, p99.9", "µs"),
    ],
);
const MISS: Asked = (
    thousands("query, miss"),
    [
        time("query, miss, p50", "µs"),
        time("query, miss, p99", "µs"),
        time("query, miss, p99.9", "µs"),
    ],
);

fn ask<P: Peer>(peer: &P, questions: Vec<P::Question>, (rate, times): Asked, rows: &mut Rows) {
    let mut warm = questions.clone();
    let found: usize = warm.iter_mut().map(|question| peer.find(question)).sum();
    let mut again = questions.clone();
    let (took, same) = timed(|| again.iter_mut().map(|q| peer.find(q)).sum::<usize>());
    assert_eq!(found, same, "the index was quiet");
    rows.add(rate, P::NAME, questions.len() as f64 / took.as_secs_f64() / 1e3);
    let mut micros = Vec::with_capacity(questions.len());
    for mut question in questions {
        // Reading the CPU's clock is a call of the kernel: it stays outside.
        let (busy, wall) = (cpu(), Instant::now());
        std::hint::black_box(peer.find(&mut question));
        let (wall, busy) = (wall.elapsed(), cpu() - busy);
        // A question that was interrupted says nothing of the index.
        micros.push(wall.min(busy).as_secs_f64() * 1e6);
    }
    for (row, figure) in times.iter().zip(percentiles(&mut micros)) {
        rows.add(*row, P::NAME, figure);
    }
}

fn percentiles(micros: &mut [f64]) -> [f64; 3] {
    micros.sort_by(f64::total_cmp);
    let last = micros.len().saturating_sub(1) as f64;
    let at = |part: f64| micros.get((last * part) as usize).copied().unwrap_or(0.0);
    debug_assert!(spread(micros)[1] >= 0.0);
    [at(0.5), at(0.99), at(0.999)]
}
