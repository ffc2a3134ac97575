//! Deterministic simulator over recovery and view: one thread, one seed, one run.
//!
//! `KVBRIDGE_SIM_SEED=17 cargo test --features planted --test sim one_seed -- --nocapture` replays
//! a run with its trace; `KVBRIDGE_SIM_SEEDS=5000` widens the sweep,
//! `KVBRIDGE_SIM_FIRST=400` moves it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::struct_excessive_bools, reason = "profiles and faults are lists of switches")]

mod engine;
mod events;
mod faults;
mod invariants;
mod link;
mod radix;
mod repairs;
mod restart;
mod rng;
mod seam;
mod shrink;
mod snapshots;
mod source;
mod witness;
mod world;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
};

use faults::{Counts, Fault, Strike};
use kvbridge::recovery::Planted;
use repairs::Repairs;
use world::World;

/// Runs a seed; an assertion of the machine counts as a violation like any other.
fn run(seed: u64, planted: Option<Planted>) -> (World, Result<(), String>) {
    run_sparing(seed, planted, BTreeSet::new())
}

/// Runs a seed without some of its faults.
fn run_sparing(
    seed: u64,
    planted: Option<Planted>,
    spared: BTreeSet<Strike>,
) -> (World, Result<(), String>) {
    let mut world = World::new(seed, planted, spared);
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

/// Runs a seed; if it fails, the run with as few of its faults as still make it fail is told.
fn must_hold(seed: u64) -> World {
    let (world, result) = run(seed, None);
    let Err(why) = result else { return world };
    let (spared, told) = fewest_faults(seed, &why);
    let (world, result) = run_sparing(seed, None, spared);
    let why = result.err().unwrap_or(why);
    panic!("{}\n{told}", report(seed, &world, &why));
}

/// What a failing seed can be spared, and in words what is left.
fn fewest_faults(seed: u64, why: &str) -> (BTreeSet<Strike>, String) {
    let mut again = |spared: &BTreeSet<Strike>| {
        let (world, result) = run_sparing(seed, None, spared.clone());
        (world.faults.struck(), result)
    };
    let spared = shrink::shrink(&mut again, why);
    let told = shrink::told(&again(&spared).0, &spared);
    (spared, told)
}

fn report(seed: u64, world: &World, why: &str) -> String {
    // Batches that come and are applied are the weather; what else happened is the story.
    let story = world.trace.iter().rev().filter(|line| {
        !(line.contains("-> apply") || line.contains(" live ") || line.contains(" batch "))
    });
    let tail: Vec<&str> = story.take(45).map(String::as_str).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    format!(
        "seed {seed}: {why}\nprofile {:?}\nat {} ms, last lines:\n{}",
        world.engine.profile,
        world.now,
        tail.join("\n")
    )
}

#[test]
fn fixed_seeds_are_safe_and_live() {
    let (first, seeds) = (first(), env("KVBRIDGE_SIM_SEEDS").unwrap_or(400));
    let (mut faults, mut repairs, mut steps) = (Counts::default(), Repairs::default(), 0);
    for seed in first..first + seeds {
        let world = must_hold(seed);
        faults.add(&world.faults.struck());
        repairs.add(&world.repairs);
        steps += world.trace.len();
    }
    println!("{seeds} seeds from {first} on, {steps} trace lines, {faults}");
    println!("{}\n| all | {} | {} |", repairs::HEAD, faults.total(), repairs.cells());
    assert!(faults.total() > seeds * 10, "a swarm without faults proves nothing");
}

/// Seeds nobody chose, so that every run of the tests looks somewhere new.
#[test]
fn fresh_seeds_are_safe_and_live() {
    let first = RandomState::new().build_hasher().finish() >> 1;
    for seed in first..first + env("KVBRIDGE_SIM_FRESH").unwrap_or(60) {
        must_hold(seed);
    }
}

/// Seeds that found something: a life that closed its own name, a view of a source that is drained
/// which served a second process in another life, a batch that was held for so long that its life
/// was over when it was believed, and two lives of a clock that stands still which nobody can tell
/// apart.
#[test]
fn seeds_that_failed_once_hold() {
    for seed in [1_001_281, 1_001_803, 100_197, 100_241] {
        must_hold(seed);
    }
}

#[test]
fn one_seed() {
    let Some(seed) = env("KVBRIDGE_SIM_SEED") else { return };
    let (mut world, mut result) = run(seed, None);
    let mut told = String::new();
    if let (Err(why), None) = (&result, env("KVBRIDGE_SIM_WHOLE")) {
        let (spared, left) = fewest_faults(seed, why);
        (world, result) = run_sparing(seed, None, spared);
        told = left;
    }
    println!("{}", world.trace.join("\n"));
    if let Err(why) = result {
        panic!("{}\n{told}", report(seed, &world, &why));
    }
}

/// How many seeds fail, and how: `KVBRIDGE_SIM_SURVEY=1000 … survey -- --nocapture`.
#[test]
fn survey() {
    let Some(seeds) = env("KVBRIDGE_SIM_SURVEY") else { return };
    let first = first();
    let mut failed = 0;
    for seed in first..first + seeds {
        if let Err(why) = run(seed, None).1 {
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
    for kind in
        Fault::HOP.iter().map(|(fault, _)| *fault).chain([Fault::Stolen, Fault::ProcessRestart])
    {
        let (mut struck, mut repairs) = (0, Repairs::default());
        for seed in first..first + seeds {
            let mut world = World::new(seed, None, BTreeSet::new());
            world.faults.only(kind);
            if let Err(why) = world.run() {
                panic!("seed {seed} with {kind:?} alone: {why}");
            }
            struck += world.faults.struck().of(kind);
            repairs.add(&world.repairs);
        }
        if struck > 0 {
            println!("| `{kind:?}` | {struck} | {} |", repairs.cells());
        }
    }
}

#[test]
fn the_same_seed_runs_the_same_way() {
    for seed in [1, 7, 42, 1_234_567] {
        let (first, _) = run(seed, None);
        let (second, _) = run(seed, None);
        assert!(first.trace == second.trace, "seed {seed} took two ways");
    }
}

/// Every planted mistake, with a seed that caught it.
const CAUGHT: &[(Planted, u64)] = &[
    (Planted::GapAsksNext, 30),
    (Planted::RollbackOnlyInLive, 11),
    (Planted::OverlapByNumber, 99),
    (Planted::ProbeRecordsNoOverlap, 7),
    (Planted::EndTrusted, 0),
    (Planted::PartialWithoutClear, 1),
    (Planted::LostStoreKeepsExact, 12),
    (Planted::PoisonReplayed, 7),
    (Planted::TrustRepairClear, 302),
    (Planted::EpochNotEqual, 184),
    (Planted::OldSeqFirst, 11),
    (Planted::DigestSkipped, 13),
    (Planted::HeldFullForgets, 125),
    (Planted::NeverProbes, 20),
    (Planted::NoLease, 28),
    (Planted::OverflowIgnored, 0),
    (Planted::AuditComparesLast, 1938),
    (Planted::IncompleteInstallsExact, 65),
    (Planted::ReattachTrusted, 23),
];

#[test]
fn every_planted_mistake_is_caught() {
    assert_eq!(CAUGHT.len(), Planted::ALL.len(), "a mistake without a seed that caught it");
    for (planted, seed) in CAUGHT {
        let (_, clean) = run(*seed, None);
        assert_eq!(clean, Ok(()), "seed {seed} must pass without {planted:?}");
        let (_, caught) = run(*seed, Some(*planted));
        assert!(caught.is_err(), "{planted:?} went unseen with seed {seed}");
    }
}

/// Finds seeds for [`CAUGHT`]: `KVBRIDGE_SIM_HUNT=2000 cargo test … hunt -- --nocapture`.
#[test]
fn hunt() {
    let Some(most) = env("KVBRIDGE_SIM_HUNT") else { return };
    let only = env("KVBRIDGE_SIM_PLANTED").and_then(|n| usize::try_from(n).ok());
    let all = Planted::ALL.into_iter().enumerate();
    for (_, planted) in all.filter(|(at, _)| only.is_none_or(|only| only == *at)) {
        let found = (0..most).find(|seed| run(*seed, Some(planted)).1.is_err());
        let why = found.map(|seed| run(seed, Some(planted)).1.unwrap_err());
        let why: String = why.unwrap_or_default().chars().take(90).collect();
        println!("(Planted::{planted:?}, {found:?}), // {why}");
    }
}
