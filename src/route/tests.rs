//! What a choice owes to whoever routes by it, at every size of a fleet.

use proptest::prelude::*;

use super::*;

fn at(load: u32, capacity: u32, matched_tokens: Option<u64>) -> Candidate {
    Candidate { load, capacity: Some(capacity), matched_tokens }
}

fn chosen(candidates: &[Candidate], prompt_tokens: u64) -> (usize, &'static str) {
    let decision = choose(candidates, prompt_tokens, 0).unwrap();
    (decision.chosen, decision.by.as_str())
}

#[test]
fn a_match_is_worth_the_part_of_the_prefill_it_saves() {
    // Balanced: the longest match, whatever the jitter of the load is.
    assert_eq!(
        chosen(&[at(61, 128, Some(0)), at(64, 128, Some(900)), at(58, 128, Some(500))], 1000),
        (1, "prefix")
    );
    // 90 % of the prompt is not worth a replica that is full beside an idle one.
    assert_eq!(chosen(&[at(128, 128, Some(900)), at(0, 128, Some(0))], 1000), (1, "load"));
    // It is worth half a replica: half of its load term, because the fleet is half balanced.
    assert_eq!(chosen(&[at(64, 128, Some(300)), at(0, 128, Some(0))], 1000), (0, "prefix"));
    // Equal matches: the less busy by its own capacity.
    assert_eq!(chosen(&[at(60, 64, Some(10)), at(90, 256, Some(10))], 10), (1, "load"));
    // The least busy has it, and would lose without.
    assert_eq!(
        chosen(&[at(1, 2, Some(0)), at(0, 2, Some(9)), at(1, 100, Some(8))], 10),
        (1, "prefix")
    );
    assert_eq!(choose(&[], 10, 0), None);
}

#[test]
fn every_candidate_is_told_why() {
    let decision = choose(
        &[
            at(10, 100, Some(800)),
            at(10, 100, Some(500)),
            at(90, 100, Some(900)),
            at(90, 100, None),
        ],
        1000,
        0,
    );
    let verdicts: Vec<_> = decision.unwrap().judged.iter().map(|it| it.verdict.as_str()).collect();
    assert_eq!(verdicts, ["chosen", "shorter_match", "busier", "shorter_match_and_busier"]);
    let tie = choose(&[at(1, 10, Some(5)), at(1, 10, Some(5))], 10, 0).unwrap();
    assert_eq!((tie.by.as_str(), tie.judged[1].verdict), ("tie", Verdict::TieLost));
    let none = choose(&[at(5, 10, None), at(1, 10, None)], 10, 0).unwrap();
    assert_eq!((none.chosen, none.by.as_str()), (1, "fallback"));
}

#[test]
fn what_is_not_told_of_capacity_is_taken_from_the_others() {
    let unknown = |load, matched| Candidate { load, capacity: None, matched_tokens: matched };
    let utilisations = |candidates: &[Candidate]| -> Vec<f64> {
        choose(candidates, 1, 0).unwrap().judged.iter().map(|it| it.utilisation).collect()
    };
    assert_eq!(
        utilisations(&[at(8, 16, None), at(8, 32, None), unknown(8, None)]),
        [0.5, 0.25, 0.25]
    );
    // Nobody tells: a load of twice the mean is twice a full replica.
    assert_eq!(
        utilisations(&[unknown(200, None), unknown(100, None), unknown(0, None)]),
        [2.0, 1.0, 0.0]
    );
    assert_eq!(utilisations(&[unknown(1, None), unknown(0, None)]), [1.0, 0.0]);
    // A capacity of nothing is none.
    let zero = Candidate { load: 4, capacity: Some(0), matched_tokens: None };
    assert_eq!(utilisations(&[zero, at(4, 8, None)]), [0.5, 0.5]);
}

/// Replicas with up to 10 000 requests in flight; of all of them the capacity is told, or of some.
fn fleet(told: bool) -> impl Strategy<Value = (Vec<Candidate>, u64)> {
    let capacity = (1_u32..4096, any::<bool>());
    let candidate = (0_u32..=10_000, capacity, proptest::option::of(0_u64..5000)).prop_map(
        move |(load, (capacity, tells), matched_tokens)| Candidate {
            load,
            capacity: (told || tells).then_some(capacity),
            matched_tokens,
        },
    );
    (proptest::collection::vec(candidate, 1..12), 1_u64..5000)
}

proptest! {
    #[test]
    fn a_choice_is_one_of_the_best_and_the_terms_are_bounded((candidates, prompt) in fleet(false), draw: u64) {
        let decision = choose(&candidates, prompt, draw).unwrap();
        let best = decision.judged.iter().map(|it| it.score).fold(f64::NEG_INFINITY, f64::max);
        let winner = decision.judged[decision.chosen];
        prop_assert!(winner.score >= best - 1e-9);
        for (it, candidate) in decision.judged.iter().zip(&candidates) {
            prop_assert!((0.0..=1.0).contains(&it.match_term) && it.load_term >= 0.0 && it.load_term.is_finite());
            prop_assert!(candidate.matched_tokens.is_some() || it.match_term == 0.0);
        }
        let count = decision.judged.iter().filter(|it| it.verdict == Verdict::Chosen).count();
        prop_assert_eq!(count, 1);
    }

    /// The same fleet a hundred times as large, and as busy, decides the same.
    #[test]
    fn size_does_not_matter((candidates, prompt) in fleet(true), by in 1_u32..100, draw: u64) {
        let larger: Vec<_> = candidates
            .iter()
            .map(|it| Candidate { load: it.load * by, capacity: it.capacity.map(|c| c * by), ..*it })
            .collect();
        let (one, other) = (choose(&candidates, prompt, draw).unwrap(), choose(&larger, prompt, draw).unwrap());
        for (one, other) in one.judged.iter().zip(&other.judged) {
            prop_assert!((one.score - other.score).abs() < 1e-9);
        }
    }

    /// More work never makes a replica more wanted, a longer match never less.
    #[test]
    fn better_is_never_worse((candidates, prompt) in fleet(true), more in 1_u32..5000, draw: u64) {
        let before = choose(&candidates, prompt, draw).unwrap();
        let at = usize::try_from(draw).unwrap_or(0) % candidates.len();
        if before.chosen != at && before.judged[at].verdict != Verdict::TieLost {
            let mut busier = candidates.clone();
            busier[at].load += more;
            prop_assert_ne!(choose(&busier, prompt, draw).unwrap().chosen, at);
        }
        if before.chosen == at && before.by != By::Tie {
            let mut longer = candidates.clone();
            longer[at].matched_tokens = Some(longer[at].matched_tokens.unwrap_or(0) + u64::from(more));
            prop_assert_eq!(choose(&longer, prompt, draw).unwrap().chosen, at);
        }
    }

    /// Without trust anywhere the least busy one, and with equal matches too.
    #[test]
    fn without_a_difference_the_load_decides((mut candidates, prompt) in fleet(true), matched in proptest::option::of(0_u64..9), draw: u64) {
        for candidate in &mut candidates {
            candidate.matched_tokens = matched;
        }
        let decision = choose(&candidates, prompt, draw).unwrap();
        let lowest = decision.judged.iter().map(|it| it.utilisation).fold(f64::INFINITY, f64::min);
        // Scores within rounding are one: their utilisations differ by its root at most.
        prop_assert!(decision.judged[decision.chosen].utilisation - lowest <= 1e-4);
    }

    /// A replica that may not be matched is chosen when it is idle and the others are full.
    #[test]
    fn nobody_is_left_out(loads in proptest::collection::vec(2_u32..50, 1..8), matched in 0_u64..=100) {
        let mut candidates: Vec<_> =
            loads.iter().map(|load| at(load * 100, 100, Some(matched))).collect();
        candidates.push(at(0, 100, None));
        let decision = choose(&candidates, 100, 0).unwrap();
        prop_assert_eq!(decision.chosen, loads.len());
    }

    /// A hot prefix does not pile up without bound: at twice a full replica's load it spills over.
    #[test]
    fn a_hot_prefix_spills_over(others in 1_usize..16, capacity in 1_u32..10_000) {
        let mut candidates = vec![at(capacity.saturating_mul(2), capacity, Some(1000))];
        candidates.extend((0..others).map(|_| at(0, capacity, Some(0))));
        prop_assert_ne!(choose(&candidates, 1000, 7).unwrap().chosen, 0);
    }
}

#[test]
fn equal_ones_share_by_two_choices() {
    // A thousand draws over four equal replicas: each gets its part, the busiest of equals least.
    let candidates = [at(0, 10, Some(5)); 4];
    let mut counts = [0_u32; 4];
    let mut draw = 1_u64;
    for _ in 0..1000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        counts[choose(&candidates, 10, draw.rotate_left(17)).unwrap().chosen] += 1;
    }
    assert!(counts.iter().all(|count| (180..320).contains(count)), "{counts:?}");
}
