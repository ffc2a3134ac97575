//! Deterministic simulator of the bus: an engine, bridges, a shared log and its readers, one seed,
//! one run. The hop from the engine has its own (`tests/sim`), whose engine and links are used
//! here.
//!
//! `KVBRIDGE_SIM_SEED=17 cargo test --features planted --test bus_sim one_seed -- --nocapture`
//! replays a run with its trace; `KVBRIDGE_SIM_SEEDS=5000` widens the sweep,
//! `KVBRIDGE_SIM_FIRST=40` moves it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::struct_excessive_bools, reason = "profiles and faults are lists of switches")]

mod age;
mod bridge;
mod consumer;
mod desk;
#[path = "../sim/engine.rs"]
#[expect(dead_code, reason = "snapshots of engines are the other simulator's")]
mod engine;
#[path = "../sim/events.rs"]
mod events;
#[path = "../sim/faults.rs"]
mod faults;
mod invariants;
#[path = "../sim/link.rs"]
#[expect(dead_code, reason = "hidden reconnects and stragglers are the other simulator's")]
mod link;
mod log;
mod mistakes;
mod reading;
#[path = "../sim/repairs.rs"]
mod repairs;
#[path = "../sim/rng.rs"]
mod rng;
mod sender;
mod setting;
#[path = "../sim/shrink.rs"]
mod shrink;
mod world;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

use faults::{Counts, Fault, Strike};
use mistakes::Mistake;
use repairs::Repairs;
use setting::Trace;
use world::World;

/// Runs a seed; an assertion of a machine counts as a violation like any other.
fn run(seed: u64, mistake: Option<Mistake>, trace: Trace) -> (World, Result<(), String>) {
    run_sparing(seed, mistake, BTreeSet::new(), trace)
}

/// Runs a seed without some of its faults.
fn run_sparing(
    seed: u64,
    mistake: Option<Mistake>,
    spared: BTreeSet<Strike>,
    trace: Trace,
) -> (World, Result<(), String>) {
    let mut world = World::new(seed, mistake, spared, trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let result = match outcome {
        Ok(result) => result.map_err(|violation| violation.to_string()),
        Err(panic) => Err(panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "panic".to_owned())),
    };
    (world, result)
}

#[expect(clippy::disallowed_methods, reason = "a test harness is steered by its environment")]
fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Where a sweep, a survey or a table begins.
fn first() -> u64 {
    env("KVBRIDGE_SIM_FIRST").unwrap_or(0)
}

fn quick(seed: u64, mistake: Option<Mistake>) -> Result<(), String> {
    run(seed, mistake, Trace::default()).1
}

/// What a failing seed can be spared, and in words what is left.
fn fewest_faults(seed: u64, why: &str) -> (BTreeSet<Strike>, String) {
    let mut again = |spared: &BTreeSet<Strike>| {
        let (world, result) = run_sparing(seed, None, spared.clone(), Trace::default());
        (world.faults.struck(), result)
    };
    let spared = shrink::shrink(&mut again, why);
    let told = shrink::told(&again(&spared).0, &spared);
    (spared, told)
}

/// Runs a seed; if it fails, the run with as few of its faults as still make it fail is told.
fn must_hold(seed: u64) -> World {
    let (world, result) = run(seed, None, Trace::default());
    let Err(why) = result else { return world };
    let (spared, told) = fewest_faults(seed, &why);
    let (world, result) = run_sparing(seed, None, spared, Trace::on());
    let lines = world.trace.lines();
    let boring = |line: &&String| line.contains("-> apply") || line.contains(" live ");
    let tail: Vec<&str> =
        lines.iter().rev().filter(|line| !boring(line)).take(45).map(String::as_str).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    let why = result.err().unwrap_or(why);
    let profile = &world.engine.profile;
    let tail = tail.join("\n");
    panic!("seed {seed}: {why}\n{profile:?}\nat {} ms:\n{tail}\n{told}", world.now);
}

#[test]
fn fixed_seeds_are_safe_and_live() {
    let (first, seeds) = (first(), env("KVBRIDGE_SIM_SEEDS").unwrap_or(40));
    let (mut faults, mut repairs, mut replayed) = (Counts::default(), Repairs::default(), 0);
    for seed in first..first + seeds {
        let world = must_hold(seed);
        faults.add(&world.faults.struck());
        replayed += world.consumers.iter().map(|consumer| consumer.replay_work).sum::<u64>();
        world.consumers.iter().for_each(|consumer| repairs.add(&consumer.repairs));
    }
    println!("{seeds} seeds from {first} on, {replayed} batches replayed by readers, {faults}");
    println!("{}\n| all, at readers | {} | {} |", repairs::HEAD, faults.total(), repairs.cells());
    assert!(faults.total() > seeds * 10, "a swarm without faults proves nothing");
}

/// Seeds nobody chose, so that every run of the tests looks somewhere new.
#[test]
fn fresh_seeds_are_safe_and_live() {
    let first = RandomState::new().build_hasher().finish() >> 1;
    for seed in first..first + env("KVBRIDGE_SIM_FRESH").unwrap_or(30) {
        must_hold(seed);
    }
}

/// They found: a bridge that was killed with a hole in its window, and whose next process had
/// nothing to fill it with; a reader that came back beside a log which had been late for seconds,
/// and gave it a lease of its own; a bridge that said at the end of a twin's log what it believed
/// of a view far beyond; and three mistakes of this model, which took an empty lower bound for an
/// old one, a number under which nothing was sent for news, and what the log had dropped for what
/// it never had.
#[test]
fn a_seed_that_failed_once_holds() {
    for seed in [100_533, 300_093, 301_462, 300_931, 302_701, 300_951] {
        must_hold(seed);
    }
}

#[test]
fn one_seed() {
    let Some(seed) = env("KVBRIDGE_SIM_SEED") else { return };
    let (spared, told) = match quick(seed, None) {
        Err(why) if env("KVBRIDGE_SIM_WHOLE").is_none() => fewest_faults(seed, &why),
        Err(_) | Ok(()) => (BTreeSet::new(), String::new()),
    };
    let (world, result) = run_sparing(seed, None, spared, Trace::on());
    println!("{}\n{told}", world.trace.lines().join("\n"));
    assert_eq!(result, Ok(()), "seed {seed}");
}

/// How many of many seeds fail, and how: for whoever changes something.
#[test]
fn survey() {
    let Some(seeds) = env("KVBRIDGE_SIM_SURVEY") else { return };
    let first = first();
    let mut failed = 0;
    for seed in first..first + seeds {
        if let Err(why) = quick(seed, None) {
            failed += 1;
            println!("{seed}: {}", why.chars().take(150).collect::<String>());
        }
    }
    println!("{failed} of {seeds} fail");
}

/// What each kind of fault costs by itself: `KVBRIDGE_SIM_KINDS=500 … kind_by_kind -- --nocapture`
/// prints a table of so many runs of each.
#[test]
fn kind_by_kind() {
    let Some(seeds) = env("KVBRIDGE_SIM_KINDS") else { return };
    let first = first();
    println!("{}", repairs::HEAD);
    for kind in Fault::all().map(|(fault, _)| fault) {
        let (mut struck, mut repairs) = (0, Repairs::default());
        for seed in first..first + seeds {
            let mut world = World::new(seed, None, BTreeSet::new(), Trace::default());
            world.faults.only(kind);
            if let Err(why) = world.run() {
                panic!("seed {seed} with {kind:?} alone: {why}");
            }
            struck += world.faults.struck().of(kind);
            world.consumers.iter().for_each(|consumer| repairs.add(&consumer.repairs));
        }
        if struck > 0 {
            println!("| `{kind:?}` | {struck} | {} |", repairs.cells());
        }
    }
}

#[test]
fn the_same_seed_runs_the_same_way() {
    for seed in [1, 7, 42, 1_234_567] {
        let first = run(seed, None, Trace::on()).0.trace.lines();
        let second = run(seed, None, Trace::on()).0.trace.lines();
        assert!(first == second, "seed {seed} took two ways");
    }
}

/// Every mistake, with a seed that catches it.
const CAUGHT: &[(Mistake, u64)] = &[
    (Mistake::UpstreamIgnored, 3),
    (Mistake::NothingOnResync, 17),
    (Mistake::BatchesShareMessage, 0),
    (Mistake::AnnounceOvertakesInstall, 2),
    (Mistake::AdoptedWithoutAnchor, 7),
    (Mistake::MintedWithoutComparing, 2),
    (Mistake::RegistryWithTtl, 32),
    (Mistake::SnapshotWithoutCounts, 2),
    (Mistake::SnapshotWithoutSalt, 1),
    (Mistake::ContentIgnored, 55),
    (Mistake::LastWriterWins, 0),
    (Mistake::RetentionByAppSeq, 1),
    (Mistake::EpochNotEqual, 20),
    (Mistake::ViewsIgnored, 16),
];

#[test]
fn every_planted_mistake_is_caught() {
    assert_eq!(CAUGHT.len(), Mistake::ALL.len(), "a mistake without a seed that caught it");
    for (mistake, seed) in CAUGHT {
        assert_eq!(quick(*seed, None), Ok(()), "seed {seed} must pass without {mistake:?}");
        assert!(quick(*seed, Some(*mistake)).is_err(), "{mistake:?} unseen with seed {seed}");
    }
}

/// Which seed catches which mistake: `KVBRIDGE_SIM_HUNT=2000 cargo test … hunt -- --nocapture`.
#[test]
fn hunt() {
    let Some(most) = env("KVBRIDGE_SIM_HUNT") else { return };
    let only = env("KVBRIDGE_SIM_PLANTED").and_then(|n| usize::try_from(n).ok());
    let all = Mistake::ALL.into_iter().enumerate();
    for (_, mistake) in all.filter(|(at, _)| only.is_none_or(|only| only == *at)) {
        let caught = |seed| quick(seed, None).is_ok().then(|| quick(seed, Some(mistake)).err());
        let found = (0..most).find_map(|seed| Some((seed, caught(seed)??)));
        let why = found.as_ref().map(|(_, why)| why.chars().take(90).collect::<String>());
        println!("(Mistake::{mistake:?}, {:?}), // {why:?}", found.map(|(seed, _)| seed));
    }
}
