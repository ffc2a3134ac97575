//! From an engine's socket to the index: this program is the engine (libzmq) on one core, what
//! reads it has the other one. kvbridge and Dynamo's indexer take turns, with the same frames,
//! limits and questions.
//!
//! A rate counts until the last block is visible and nothing is missing; what is missing is asked
//! for sequence by sequence, because an indexer can lose blocks and still show the last one.
//!
//! usage: bench-pipeline --python FILE [--kvbridge FILE] [--rounds N] [--chains N]
//!        [--pace BLOCKS/S] [--seconds N] [--threads N] [--only WORD] [--program WORD]
//!        [--json FILE]
//!
//!     python -m venv V && V/bin/pip install ai-dynamo-runtime==1.6.1
//!     V/bin/pip install --no-deps ai-dynamo==1.6.1
//!     just bench-pipeline --python V/bin/python

mod burst;
mod engine;
mod pace;
mod restart;
mod rows;
mod server;
mod stream;
mod web;

use std::{env, fs, path::PathBuf};

use anyhow::{Context as _, bail};
use rows::{Row, Rows};
use rustix::thread::{CpuSet, sched_setaffinity};
use server::{Kind, Programs};

/// The engine's core; the other one is the reader's.
const OWN_CORE: usize = 0;
const READERS_CORE: usize = 1;

/// What vLLM sets for its PUB, and keeps in its journal.
const HWM: i32 = 100_000;
const JOURNAL: u64 = 10_000;

struct Args {
    programs: Programs,
    rounds: usize,
    chains: u64,
    pace: u64,
    seconds: u64,
    threads: u8,
    only: String,
    program: String,
    json: Option<PathBuf>,
}

fn args() -> anyhow::Result<Args> {
    let target = env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let kvbridge = fs::canonicalize(target)?.join("release/kvbridge");
    let python = "python3".into();
    let mut args = Args {
        programs: Programs { kvbridge, python, core: READERS_CORE },
        rounds: 5,
        chains: 12_500,
        pace: 200_000,
        seconds: 8,
        threads: 4,
        only: String::new(),
        program: String::new(),
        json: None,
    };
    let mut words = env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} lacks its value"))?;
        match name.as_str() {
            "--kvbridge" => args.programs.kvbridge = fs::canonicalize(value)?,
            "--python" => args.programs.python = value.into(),
            "--rounds" => args.rounds = value.parse()?,
            "--chains" => args.chains = value.parse()?,
            "--pace" => args.pace = value.parse()?,
            "--seconds" => args.seconds = value.parse()?,
            "--threads" => args.threads = value.parse()?,
            "--only" => args.only = value,
            "--program" => args.program = value,
            "--json" => args.json = Some(value.into()),
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(args)
}

fn main() -> anyhow::Result<()> {
    let args = args()?;
    let mut own = CpuSet::new();
    own.set(OWN_CORE);
    sched_setaffinity(None, &own).context("taking a core")?;
    let cases = [
        burst::case("stored", args.chains, u64::MAX, (0, u64::MAX)),
        burst::case("stored and removed", args.chains, args.chains / 8, (0, u64::MAX)),
        burst::case("stored, PUB of 100 000", args.chains, u64::MAX, (HWM, JOURNAL)),
    ];
    let restarted = burst::case("restart", args.chains * 5 / 8, u64::MAX, (0, u64::MAX));
    let paced = pace::stream(args.pace, args.seconds);
    let kinds = [Kind::Ours, Kind::Dynamo { threads: args.threads }];
    let mut rows = Rows::default();
    for round in 1..=args.rounds {
        for kind in kinds.into_iter().filter(|kind| kind.name().contains(&args.program)) {
            for case in cases.iter().filter(|case| case.name.contains(&args.only)) {
                burst::run(kind, case, &args.programs, &mut rows)?;
            }
            if "lag".contains(&args.only) {
                pace::run(kind, &paced, &args.programs, &mut rows)?;
            }
        }
        if "restart".contains(&args.only) && Kind::Ours.name().contains(&args.program) {
            restart::run(&restarted, &args.programs, &mut rows)?;
        }
        eprintln!("round {round} of {}\n{rows}", args.rounds);
    }
    println!("{rows}");
    match args.json {
        Some(path) => fs::write(path, rows.json_lines()).context("writing the figures"),
        None => Ok(()),
    }
}

/// Where a server keeps what it keeps; empty.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = env::temp_dir().join(format!("bench-pipeline-{}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

const fn row(case: &'static str, name: &'static str, more_is_better: bool) -> Row {
    Row { case, name, more_is_better }
}
