//! A failing run with as few of its faults as still make it fail: what is left is the story.
//!
//! Sparing one fault changes everything behind it, so this is a search and no proof: what it leaves
//! is minimal in that no single fault of it could be spared.

use std::collections::BTreeSet;

use crate::faults::{Counts, Strike};

/// Runs made at most. One takes some tens of milliseconds.
const RUNS_MAX: u32 = 600;

/// Makes a run that spares these; what struck in it, and why it failed if it did.
pub(crate) type Runs<'a> = dyn FnMut(&BTreeSet<Strike>) -> (Counts, Result<(), String>) + 'a;

/// What may be spared of a run that fails with `why`, so that it fails for the same reason.
pub(crate) fn shrink(run: &mut Runs<'_>, why: &str) -> BTreeSet<Strike> {
    let mut left = RUNS_MAX;
    let mut fails = |spared: &BTreeSet<Strike>| -> Option<Counts> {
        left = left.checked_sub(1)?;
        let (counts, result) = run(spared);
        result.is_err_and(|other| kind_of(&other) == kind_of(why)).then_some(counts)
    };
    let mut spared = BTreeSet::new();
    let Some(mut counts) = fails(&spared) else { return spared };
    let mut parts = 2;
    loop {
        let struck: Vec<Strike> =
            counts.strikes().into_iter().filter(|strike| !spared.contains(strike)).collect();
        let size = struck.len().div_ceil(parts).max(1);
        // By kind and time: a chunk is a stretch of one kind, or several whole kinds.
        let fewer = struck.chunks(size).find_map(|chunk| {
            let more: BTreeSet<Strike> = spared.iter().chain(chunk).copied().collect();
            fails(&more).map(|counts| (more, counts))
        });
        match fewer {
            Some((more, there)) => {
                (spared, counts) = (more, there);
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => return spared,
            None => parts = (parts * 2).min(struck.len()),
        }
    }
}

/// What is left of a run's faults, in words.
pub(crate) fn told(counts: &Counts, spared: &BTreeSet<Strike>) -> String {
    let left = counts.strikes().into_iter().filter(|strike| !spared.contains(strike));
    let left: Vec<String> = left.map(|(fault, at)| format!("{fault:?} {at}")).collect();
    format!("{} faults were enough: {}", left.len(), left.join(", "))
}

/// A violation's words up to its numbers: another seq is the same failure.
fn kind_of(why: &str) -> String {
    let words = why.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.take(4).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_a_failure_does_not_need_is_spared() {
    use crate::{faults::Fault, faults::Faults, rng::Rng};
    let guilty = [(Fault::Drop, 3), (Fault::Cut, 7)];
    let mut run = |spared: &BTreeSet<Strike>| {
        let mut faults = Faults::sparing(spared.clone());
        faults.set(Fault::Drop, 10_000);
        faults.set(Fault::Cut, 10_000);
        let mut rng = Rng::new(1);
        for _ in 0..20 {
            faults.strike(Fault::Drop, &mut rng);
            faults.strike(Fault::Cut, &mut rng);
        }
        let fails = guilty.iter().all(|strike| !spared.contains(strike));
        let result = if fails { Err("it is 5 behind".to_owned()) } else { Ok(()) };
        (faults.struck(), result)
    };
    let spared = shrink(&mut run, "it is 7 behind");
    let (counts, _) = run(&spared);
    let left: Vec<Strike> =
        counts.strikes().into_iter().filter(|strike| !spared.contains(strike)).collect();
    assert_eq!(left, guilty);
}
