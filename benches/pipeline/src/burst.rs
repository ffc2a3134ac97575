//! All frames as fast as the engine's library takes them.

use std::{
    fs,
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    engine::Engine,
    folder, row,
    rows::Rows,
    server::{Kind, Programs, Server},
    stream::{self, BLOCK_SIZE, CHAIN_BLOCKS, Stream},
};

/// How often the last block is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Without anything new for so long it will not come any more.
const GIVEN_UP: Duration = Duration::from_secs(10);
/// Of so many sequences one is asked for whole.
const SAMPLE: usize = 8;
/// The sequence of one block that comes last.
const LAST: u64 = 1 << 32;

pub struct Case {
    pub name: &'static str,
    pub payloads: Arc<Vec<Vec<u8>>>,
    blocks: u64,
    held: Range<u64>,
    gone: Range<u64>,
    pub hwm: i32,
    pub journal: u64,
}

pub fn case(name: &'static str, chains: u64, kept: u64, (hwm, journal): (i32, u64)) -> Case {
    let Stream { mut payloads, stored, removed, held } = stream::stream(chains, kept);
    payloads.push(stream::marker(LAST));
    let (blocks, gone) = (stored + removed + 1, 0..held.start);
    Case { name, payloads: Arc::new(payloads), blocks, held, gone, hwm, journal }
}

pub fn run(kind: Kind, case: &Case, programs: &Programs, rows: &mut Rows) -> anyhow::Result<()> {
    let engine = Engine::bind(Arc::clone(&case.payloads), case.hwm, case.journal)?;
    let folder = folder()?;
    let mut server = Server::start(kind, programs, &folder)?;
    server.register(&engine)?;
    // For whoever wants to look into it meanwhile.
    eprintln!("{}: {}, process {}", case.name, kind.name(), server.id());
    let (idle, cpu, started) = (server.resident()?, server.cpu()?, Instant::now());
    let seen = thread::scope(|scope| {
        let watch = scope.spawn(|| see_last(&mut server));
        for _ in case.payloads.iter() {
            engine.publish()?;
        }
        watch.join().unwrap_or_else(|_| anyhow::bail!("the watch died"))
    })?;
    let took = seen.unwrap_or_else(Instant::now) - started;
    let (cpu, resident) = (server.cpu()? - cpu, server.resident()?);
    let missing = settle(&mut server, case)?;
    let ghosts = case.gone.clone().step_by(SAMPLE).try_fold(0, |ghosts, chain| {
        Ok::<u64, anyhow::Error>(ghosts + held(&mut server, chain)?)
    })?;
    let millions = case.blocks as f64 / 1e6;
    let mut add = |name, more_is_better, figure| {
        rows.add(row(case.name, name, more_is_better), kind.name(), figure);
    };
    if missing == 0 {
        add("M blocks/s until all is visible", true, millions / took.as_secs_f64());
        add("seconds of processor time per M blocks", false, cpu / millions);
        add("resident MiB above idle", false, resident - idle);
    }
    add("blocks missing at the end, sampled", false, missing as f64);
    add("blocks that are gone and told, sampled", false, ghosts as f64);
    add("batches or events applied, by its metrics", true, server.applied()? as f64);
    server.stop()?;
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// When the last block was visible; `None` if it never was.
pub fn see_last(server: &mut Server) -> anyhow::Result<Option<Instant>> {
    let prompt = stream::prompt(LAST, 1);
    let started = Instant::now();
    while started.elapsed() < 6 * GIVEN_UP {
        if server.held(&prompt)? == BLOCK_SIZE as u64 {
            return Ok(Some(Instant::now()));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(None)
}

/// Blocks of a sequence that are told, from its first one on.
fn held(server: &mut Server, chain: u64) -> anyhow::Result<u64> {
    Ok(server.held(&stream::prompt(chain, CHAIN_BLOCKS))? / BLOCK_SIZE as u64)
}

/// How many sampled blocks are missing when nothing more comes.
pub fn settle(server: &mut Server, case: &Case) -> anyhow::Result<u64> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        let mut missing = 0;
        for chain in case.held.clone().step_by(SAMPLE) {
            missing += CHAIN_BLOCKS - held(server, chain)?;
        }
        if missing < least {
            (least, since) = (missing, Instant::now());
        }
        if missing == 0 || since.elapsed() > GIVEN_UP {
            return Ok(missing);
        }
    }
}
