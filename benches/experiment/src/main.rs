//! The reported experiment, simulated: what a fleet loses when its router's table stays empty, and
//! what is left of the loss with other ways to route. Nothing here is measured on an engine.
//!
//! `cargo run --release -- [--seeds N] [--svg FILE]` prints the first table of docs/experiments.md,
//! with `--variations` or `--mooncake FILE` the others.

mod dice;
mod plot;
mod policy;
mod pool;
mod report;
#[cfg(test)]
mod tests;
mod work;
mod world;

use std::{path::PathBuf, process::ExitCode};

use policy::Policy;
use report::Row;
use work::{Chats, Recorded, Work};
use world::{Outcome, Setting, World};

/// The report's fleet and traffic. docs/experiments.md has a line for each figure.
pub const REPORTED: Setting = Setting {
    replicas: 3,
    concurrency: 384,
    first_tokens: 22_000,
    turns: 36,
    output_tokens: 300,
    asked_tokens: 700,
    block_tokens: 128,
    pool_tokens: 16_000_000,
    prefill_tokens_s: 25_000,
    overhead_us: 10_000,
    output_token_us: 25_000,
    events_late_us: 100_000,
    warm_requests: 384 * 12,
    requests: 384 * 18,
};

/// A recorded trace on the same replicas.
const MOONCAKE: Setting =
    Setting { block_tokens: work::MOONCAKE_BLOCK_TOKENS, warm_requests: 2_000, ..REPORTED };

/// How much faster than recorded, so that the load of the replicas is a question at all.
const MOONCAKE_FASTER: [u64; 2] = [1, 3];

struct Arguments {
    seeds: u64,
    mooncake: Option<PathBuf>,
    svg: Option<PathBuf>,
    variations: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut told = Arguments { seeds: 5, mooncake: None, svg: None, variations: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--seeds" => {
                told.seeds = value()?.parse().map_err(|_| "--seeds wants a number")?;
            }
            "--mooncake" => told.mooncake = Some(value()?.into()),
            "--svg" => told.svg = Some(value()?.into()),
            "--variations" => told.variations = true,
            other => return Err(format!("{other} is not known")),
        }
    }
    if told.seeds == 0 { Err("--seeds wants one at least".to_owned()) } else { Ok(told) }
}

/// One closed loop.
pub fn chats(setting: Setting, policy: Policy, seed: u64) -> Outcome {
    World::new(setting, Work::Chats(Chats::new(setting, seed)), policy, seed).run()
}

fn rows(seeds: u64, run: impl Fn(Policy, u64) -> Outcome) -> Vec<Row> {
    let of = |policy: Policy| {
        eprintln!("{} ...", policy.name());
        Row { policy, outcomes: (0..seeds).map(|seed| run(policy, seed)).collect() }
    };
    Policy::ALL.into_iter().map(of).collect()
}

/// What is not reported, half and double: does the order depend on it?
fn variations() -> Vec<(&'static str, Setting)> {
    let it = REPORTED;
    let short = Setting { turns: 30, first_tokens: 31_000, asked_tokens: 300, ..it };
    let long = Setting { turns: 44, first_tokens: 10_500, asked_tokens: 1_050, ..it };
    vec![
        ("half the pool", Setting { pool_tokens: it.pool_tokens / 2, ..it }),
        ("half the prefill rate", Setting { prefill_tokens_s: it.prefill_tokens_s / 2, ..it }),
        ("twice the prefill rate", Setting { prefill_tokens_s: it.prefill_tokens_s * 2, ..it }),
        ("30 turns, 31 000 + 600", short),
        ("44 turns, 10 500 + 1 350", long),
        ("96 conversations", Setting { concurrency: 96, ..it }),
    ]
}

fn run() -> Result<(), String> {
    let told = arguments()?;
    if told.mooncake.is_none() && !told.variations {
        let reported = rows(told.seeds, |policy, seed| chats(REPORTED, policy, seed));
        println!("{}", report::table(&reported));
        if let Some(file) = &told.svg {
            std::fs::write(file, plot::svg(&reported)).map_err(|error| error.to_string())?;
        }
    }
    if told.variations {
        let mut all = Vec::new();
        for (name, setting) in variations() {
            all.push((name, rows(1, |policy, seed| chats(setting, policy, seed))));
        }
        println!("{}", report::variations(&all));
    }
    if let Some(file) = &told.mooncake {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        for faster in MOONCAKE_FASTER {
            let recorded = Recorded::mooncake(&text, faster)?;
            let run = |policy, seed| {
                World::new(MOONCAKE, Work::Recorded(recorded.clone()), policy, seed).run()
            };
            println!(
                "{faster} times as fast as recorded\n\n{}",
                report::table(&rows(told.seeds, run))
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
