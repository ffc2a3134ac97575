//! How long a block takes to be visible, at a rate that every reader sustains.

use std::{
    fs,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    engine::Engine,
    folder, row,
    rows::{Rows, percentile},
    server::{Kind, Programs, Server},
    stream::{self, BATCH_BLOCKS, BLOCK_SIZE, CHAIN_BLOCKS},
};

/// Batches are sent so often, all that are due.
const TICK: Duration = Duration::from_millis(1);
/// Between two batches whose arrival is watched.
const MARKS_PER_SECOND: u64 = 100;
/// Between two questions for one of them; each costs the reader some of its core.
const LOOK_EVERY: Duration = Duration::from_micros(200);
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Sequences of one block, beyond all others.
const MARKS: u64 = 1 << 33;

pub struct Paced {
    payloads: Arc<Vec<Vec<u8>>>,
    batches_per_second: u64,
    /// Batches before each mark.
    marked_every: u64,
}

pub fn stream(blocks_per_second: u64, seconds: u64) -> Paced {
    let batches_per_second = (blocks_per_second / BATCH_BLOCKS).max(MARKS_PER_SECOND);
    let chains = (blocks_per_second * seconds / CHAIN_BLOCKS).max(1);
    let marked_every = batches_per_second / MARKS_PER_SECOND;
    let mut payloads = Vec::new();
    for (at, payload) in (0..).zip(stream::stream(chains, u64::MAX).payloads) {
        if at % marked_every == 0 {
            payloads.push(stream::marker(MARKS + at));
        }
        payloads.push(payload);
    }
    Paced { payloads: Arc::new(payloads), batches_per_second, marked_every }
}

pub fn run(kind: Kind, paced: &Paced, programs: &Programs, rows: &mut Rows) -> anyhow::Result<()> {
    let engine = Engine::bind(Arc::clone(&paced.payloads), 0, u64::MAX)?;
    let folder = folder()?;
    let mut server = Server::start(kind, programs, &folder)?;
    server.register(&engine)?;
    let (told, marks) = mpsc::channel();
    let cpu = server.cpu()?;
    let mut millis = thread::scope(|scope| {
        let watch = scope.spawn(|| lags(&mut server, marks));
        send(&engine, paced, &told)?;
        drop(told);
        watch.join().unwrap_or_else(|_| anyhow::bail!("the watch died"))
    })?;
    let cpu = server.cpu()? - cpu;
    let blocks = paced.payloads.len() as u64 * BATCH_BLOCKS;
    let mut add = |name, figure| rows.add(row("lag", name, false), kind.name(), figure);
    add("p50, ms", percentile(&mut millis, 0.5));
    add("p99, ms", percentile(&mut millis, 0.99));
    add("most, ms", percentile(&mut millis, 1.0));
    add("seconds of processor time per M blocks, with the questions", cpu / blocks as f64 * 1e6);
    server.stop()?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn send(engine: &Engine, paced: &Paced, told: &mpsc::Sender<(u64, Instant)>) -> anyhow::Result<()> {
    // A mark and the batches behind it are one step: a mark is no batch of the rate.
    let step = usize::try_from(paced.marked_every)? + 1;
    let started = Instant::now();
    let mut batches = 0_u64;
    for at in 0..paced.payloads.len() {
        if at % step == 0 {
            told.send((MARKS + batches, Instant::now()))?;
            engine.publish()?;
            continue;
        }
        let due = Duration::from_secs_f64(batches as f64 / paced.batches_per_second as f64);
        while started.elapsed() < due {
            thread::sleep(TICK);
        }
        engine.publish()?;
        batches += 1;
    }
    Ok(())
}

/// From being sent to being visible, of the newest mark each time: one that waited for the question
/// about another would count that wait.
fn lags(server: &mut Server, marks: mpsc::Receiver<(u64, Instant)>) -> anyhow::Result<Vec<f64>> {
    let mut millis = Vec::new();
    while let Ok(first) = marks.recv() {
        let (mark, sent) = marks.try_iter().last().unwrap_or(first);
        let prompt = stream::prompt(mark, 1);
        while server.held(&prompt)? < BLOCK_SIZE as u64 {
            anyhow::ensure!(sent.elapsed() < GIVEN_UP, "a block was never visible");
            thread::sleep(LOOK_EVERY);
        }
        millis.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    Ok(millis)
}
