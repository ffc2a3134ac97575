//! Terms, scores and the choice.

use super::{By, Candidate, Decision, Judged, Verdict};

/// Scores closer than this are one: below it there is only the rounding of divisions.
const SAME: f64 = 1e-9;

/// Chooses among the candidates. `draw` is any random number: it decides between equal ones alone.
/// `None` if there is nobody to choose.
pub fn choose(candidates: &[Candidate], prompt_tokens: u64, draw: u64) -> Option<Decision> {
    let utilisations = utilisations(candidates);
    let lowest = utilisations.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = utilisations.iter().copied().fold(0.0, f64::max);
    let weight = (highest - lowest).min(1.0);
    let judge = |(candidate, utilisation): (&Candidate, &f64)| {
        let match_term = part(candidate.matched_tokens.unwrap_or(0), prompt_tokens);
        let load_term = (utilisation - lowest) * weight;
        let (utilisation, score) = (*utilisation, match_term - load_term);
        Judged { utilisation, match_term, load_term, score, verdict: Verdict::ShorterMatch }
    };
    let mut judged: Vec<Judged> = candidates.iter().zip(&utilisations).map(judge).collect();
    let best = judged.iter().map(|it| it.score).fold(f64::NEG_INFINITY, f64::max);
    let equal: Vec<usize> =
        (0..judged.len()).filter(|at| judged[*at].score >= best - SAME).collect();
    let chosen = draw_less_busy(&equal, &judged, draw)?;
    let winner = judged[chosen];
    for (at, it) in judged.iter_mut().enumerate() {
        it.verdict = verdict(it, &winner, at == chosen);
    }
    let by = match equal.len() {
        _ if candidates.iter().all(|candidate| candidate.matched_tokens.is_none()) => By::Fallback,
        2.. => By::Tie,
        _ if has_the_longest_match(&judged, &winner) => By::Prefix,
        _ => By::Load,
    };
    Some(Decision { chosen, by, judged })
}

fn has_the_longest_match(judged: &[Judged], winner: &Judged) -> bool {
    let shorter = |it: &Judged| it.match_term < winner.match_term;
    judged.iter().any(shorter) && judged.iter().all(|it| it.match_term <= winner.match_term)
}

/// Power of two choices: of two drawn ones the less busy. With all equal ones sent to the least
/// busy, routers that do not know of each other would all choose the same.
fn draw_less_busy(equal: &[usize], judged: &[Judged], draw: u64) -> Option<usize> {
    let count = u64::try_from(equal.len()).ok().filter(|count| *count > 0)?;
    let at = |number: u64| usize::try_from(number).ok().and_then(|at| equal.get(at).copied());
    let first = draw % count;
    let step = if count > 1 { 1 + (draw >> 32) % (count - 1) } else { 0 };
    let (first, second) = (at(first)?, at((first + step) % count)?);
    let less_busy = judged[second].utilisation < judged[first].utilisation;
    Some(if less_busy { second } else { first })
}

fn verdict(it: &Judged, winner: &Judged, chosen: bool) -> Verdict {
    if chosen {
        return Verdict::Chosen;
    }
    if it.score >= winner.score - SAME {
        return Verdict::TieLost;
    }
    let (shorter, busier) = (it.match_term < winner.match_term, it.load_term > winner.load_term);
    match (shorter, busier) {
        (true, true) => Verdict::ShorterAndBusier,
        (false, true) => Verdict::Busier,
        (_, false) => Verdict::ShorterMatch,
    }
}

/// Load by capacity; what is not told is taken from the others.
fn utilisations(candidates: &[Candidate]) -> Vec<f64> {
    let mut told: Vec<u32> =
        candidates.iter().filter_map(|it| it.capacity).filter(|capacity| *capacity > 0).collect();
    told.sort_unstable();
    let middle = told.get(told.len() / 2).map_or_else(|| mean(candidates), |it| f64::from(*it));
    let capacity =
        |it: &Candidate| it.capacity.filter(|capacity| *capacity > 0).map_or(middle, f64::from);
    candidates.iter().map(|it| f64::from(it.load) / capacity(it)).collect()
}

/// The mean load; of an idle fleet one unit, so that one request counts as one.
fn mean(candidates: &[Candidate]) -> f64 {
    let sum: f64 = candidates.iter().map(|it| f64::from(it.load)).sum();
    let count = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
    (sum / f64::from(count.max(1))).max(1.0)
}

/// `part` of `whole`, 0 to 1. Prompts are below 2^53 tokens, where this is exact.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part.min(whole) as f64) / (whole as f64) }
}
