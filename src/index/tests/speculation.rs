//! Guesses beside views: never a match, never older than their time, never more than their bound.

use kvbridge_schemas::{Replica, Trust};
use proptest::prelude::*;

use super::{Feed, PATH, at, prompt, published, query, replica, spot};
use crate::{
    index::{BackfillMode, BackfillTerms, Backfilled, Index, Published, Query, SPECULATIVE_TTL_MS},
    recovery::Tick,
    view::{
        View,
        tests::world::{Op, SETTINGS, op, tokens},
    },
};

/// Blocks of ten symbols, as the views of these tests have them.
const SIZE: u64 = 2;

/// An index of one replica that has what was told, and what its events say under that trust.
struct Desk {
    index: Index,
    view: View,
    trust: Trust,
    now: u64,
    blocks_max: usize,
    mode: BackfillMode,
}

impl Desk {
    fn new(trust: Trust) -> Desk {
        let index = Index::new();
        let slot = index.register(replica("a"));
        index.publish(slot, published(trust, 0));
        let (now, blocks_max, mode) = (0, 1_000, BackfillMode::Auto);
        Desk { index, view: View::new(SETTINGS), trust, now, blocks_max, mode }
    }

    fn says(&self) -> Published {
        let host_is_hint = self.view.host_is_hint();
        Published { host_is_hint, ..published(self.trust, 0) }
    }

    fn run(&mut self, op: &Op) {
        let world = super::World { seed: 1 };
        let mut deltas = Vec::new();
        self.view.apply(&[world.event(op)], &mut deltas, &mut Vec::new());
        self.index.apply(self.index.register(replica("a")), &deltas, self.says());
    }

    fn tell(&self, query: &Query<'_>) -> Backfilled {
        let Desk { mode, blocks_max, now, .. } = *self;
        let terms = BackfillTerms { mode, blocks_max, ttl_ms: SPECULATIVE_TTL_MS, now: Tick(now) };
        self.index.backfill(&replica("a").key(), query, terms).unwrap()
    }

    /// Matched and guessed tokens.
    fn ask(&self, query: &Query<'_>) -> (u64, u64) {
        let mut answer = self.index.query(query).unwrap();
        let plain = answer.clone();
        self.index.speculate(query, &mut answer, self.mode, Tick(self.now));
        let guessed = answer.replicas[0].speculative_tokens;
        answer.replicas[0].speculative_tokens = 0;
        assert_eq!(answer, plain, "a guess changes nothing else");
        (answer.replicas[0].matched_tokens, guessed)
    }
}

/// A prompt in blocks of the views' size, whether or not the replica has shown its own.
fn in_size<'a>(hashes: &'a [u64]) -> Query<'a> {
    let block_size = u32::try_from(SIZE).unwrap();
    Query { prompt: crate::index::Prompt::Content { hashes, block_size }, ..query(&[]) }
}

fn hashes(tokens: &[u32]) -> Vec<u64> {
    tokens.chunks_exact(2).map(kvbridge_schemas::content_hash).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Tell(Vec<u8>),
    Event(Op),
    Wait(u64),
    Trust(Trust),
}

fn step() -> impl Strategy<Value = Step> {
    let path = prop::collection::vec(0..2_u8, 1..8);
    let trust = prop_oneof![Just(Trust::None), Just(Trust::LowerBound), Just(Trust::Exact)];
    prop_oneof![
        3 => path.prop_map(Step::Tell),
        3 => op().prop_map(Step::Event),
        1 => (0..SPECULATIVE_TTL_MS).prop_map(Step::Wait),
        1 => trust.prop_map(Step::Trust),
    ]
}

proptest! {
    /// Against the same index without guesses.
    #[test]
    fn a_guess_never_raises_a_match_outlives_its_time_or_grows_without_bound(
        steps in prop::collection::vec(step(), 1..40),
        asked in prop::collection::vec(0..2_u8, 1..8),
        always in any::<bool>(),
    ) {
        let (mut with, mut without) = (Desk::new(Trust::None), Desk::new(Trust::None));
        with.blocks_max = 5;
        with.mode = if always { BackfillMode::Always } else { BackfillMode::Auto };
        let mut told_at = None;
        let asked = tokens(&asked);
        let asked = hashes(&asked);
        for step in &steps {
            match step {
                Step::Tell(path) => {
                    let told = hashes(&tokens(path));
                    let told = with.index.backfill(
                        &replica("a").key(),
                        &in_size(&told),
                        BackfillTerms { mode: with.mode, blocks_max: 5, ttl_ms: SPECULATIVE_TTL_MS, now: Tick(with.now) },
                    );
                    match told {
                        Ok(Backfilled::Taken { blocks, .. }) => {
                            prop_assert!(blocks <= 5);
                            told_at = Some(with.now);
                        }
                        Ok(Backfilled::Exact) => prop_assert!(!always && with.trust == Trust::Exact),
                        Ok(Backfilled::Off) => prop_assert!(false, "it is on"),
                        Err(_) => (), // its blocks have another size
                    }
                }
                Step::Event(op) => [&mut with, &mut without].into_iter().for_each(|it| it.run(op)),
                Step::Wait(ms) => with.now += ms,
                Step::Trust(trust) => {
                    for desk in [&mut with, &mut without] {
                        desk.trust = *trust;
                        desk.index.publish(desk.index.register(replica("a")), desk.says());
                    }
                }
            }
            for accept in [Trust::LowerBound, Trust::Exact] {
                let question = Query { accept, ..in_size(&asked) };
                let (Ok(guessed), Ok(plain)) =
                    (with.index.query(&question), without.index.query(&question))
                else {
                    continue;
                };
                prop_assert_eq!(&guessed, &plain, "a query knows nothing of guesses");
                let (matched, guessed) = with.ask(&question);
                let length = u64::try_from(asked.len()).unwrap() * SIZE;
                prop_assert!(matched + guessed <= length);
                let fresh = told_at.is_some_and(|at| with.now < at + SPECULATIVE_TTL_MS);
                prop_assert!(fresh || guessed == 0, "its time is over");
                prop_assert!(always || with.trust < Trust::Exact || guessed == 0);
                // At most the bound, behind what is held.
                let held = without.ask(&Query { accept: Trust::LowerBound, ..question }).0;
                prop_assert!(matched + guessed <= held.max(matched) + 5 * SIZE);
            }
        }
    }
}

#[test]
fn the_bound_drops_what_was_told_longest_ago_and_its_end_first() {
    let mut desk = Desk::new(Trust::None);
    desk.blocks_max = 4;
    let (first, second) = (hashes(&tokens(&[0, 0, 0])), hashes(&tokens(&[1, 1])));
    assert_eq!(desk.tell(&in_size(&first)), Backfilled::Taken { blocks: 3, evicted: 0 });
    assert_eq!(desk.tell(&in_size(&second)), Backfilled::Taken { blocks: 2, evicted: 1 });
    assert_eq!(desk.ask(&in_size(&first)), (0, 4));
    assert_eq!(desk.ask(&in_size(&second)), (0, 4));
    let long = hashes(&prompt());
    assert_eq!(desk.tell(&in_size(&long)), Backfilled::Taken { blocks: 4, evicted: 4 });
    assert_eq!(desk.ask(&in_size(&long)), (0, 8), "the head of a prompt above the bound");
}

#[test]
fn events_of_the_same_content_replace_a_guess() {
    // No content comes twice: an event ends all guesses of its content, wherever they are.
    let path = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    let head = &path[..3];
    let whole = hashes(&tokens(&path));
    let store = |desk: &mut Desk, path: &[u8]| {
        use super::{Form, Store};
        let (at, count) = (at(path), path.len());
        desk.run(&Op::Store(Store { at, count, size: 2, form: Form::Dense, spot: spot() }));
    };
    let remove =
        |desk: &mut Desk, path: &[u8]| desk.run(&Op::Remove { at: at(path), spot: spot() });
    for (trust, after_store, after_removal) in [
        (Trust::LowerBound, (6, 14), (4, 0)),
        // Its view may not be used, so the guesses stay in force until it says otherwise.
        (Trust::None, (0, 20), (0, 4)),
    ] {
        let mut desk = Desk::new(trust);
        desk.tell(&in_size(&whole));
        let ask = |desk: &Desk| desk.ask(&Query { accept: Trust::LowerBound, ..in_size(&whole) });
        assert_eq!(ask(&desk), (0, 20));
        store(&mut desk, head);
        assert_eq!(ask(&desk), after_store, "{trust}");
        remove(&mut desk, head);
        assert_eq!(ask(&desk), after_removal, "{trust}");
    }
    // A view that is put in place, or cleared, is all that is known.
    let desk = Desk::new(Trust::LowerBound);
    let slot = desk.index.register(replica("a"));
    desk.tell(&in_size(&whole));
    desk.index.replace(slot, [], desk.says());
    assert_eq!(desk.ask(&in_size(&whole)), (0, 0));
    desk.tell(&in_size(&whole));
    desk.index.apply(slot, &[crate::view::Delta::Cleared], desk.says());
    assert_eq!(desk.ask(&in_size(&whole)), (0, 0));
}

#[test]
fn a_withdrawal_makes_guesses_count_and_off_takes_none() {
    let whole = prompt();
    let mut desk = Desk::new(Trust::Exact);
    assert_eq!(desk.tell(&query(&whole)), Backfilled::Exact);
    let slot = desk.index.register(replica("a"));
    desk.index.withdraw(slot, "gap_open");
    assert_eq!(desk.tell(&query(&whole)), Backfilled::Taken { blocks: 1, evicted: 0 });
    assert_eq!(desk.ask(&query(&whole)), (0, 16), "blocks of 16 tokens until it shows its own");
    desk.mode = BackfillMode::Off;
    assert_eq!(desk.tell(&query(&whole)), Backfilled::Off);
    assert_eq!(desk.ask(&query(&whole)), (0, 0));
    let unknown = Replica { model: "m".into(), instance: "z".into(), rank: 0 };
    let terms =
        BackfillTerms { mode: BackfillMode::Auto, blocks_max: 1, ttl_ms: 1_000, now: Tick(0) };
    assert!(desk.index.backfill(&unknown.key(), &query(&whole), terms).is_err());
}

/// Guesses told in 16 tokens before the first event, then in the size that the engine shows.
#[test]
fn guesses_follow_the_size_that_the_engine_shows() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    let terms =
        BackfillTerms { mode: BackfillMode::Always, blocks_max: 100, ttl_ms: 1_000, now: Tick(0) };
    let whole = prompt();
    let tell = || index.backfill(&replica("a").key(), &query(&whole), terms).unwrap();
    assert_eq!(tell(), Backfilled::Taken { blocks: 1, evicted: 0 });
    feed.store(PATH.get(..2).unwrap(), 0);
    assert_eq!(tell(), Backfilled::Taken { blocks: 8, evicted: 0 });
    let mut answer = index.query(&query(&whole)).unwrap();
    index.speculate(&query(&whole), &mut answer, terms.mode, Tick(0));
    let found = &answer.replicas[0];
    assert_eq!((found.matched_tokens, found.speculative_tokens), (4, 16));
}

/// As long as whoever told it was given, whatever others have.
#[test]
fn a_guess_lasts_as_long_as_is_set() {
    for ttl_ms in [1_000, 7_200_000] {
        let index = Index::new();
        let _feed = Feed::new(&index, "a", 1);
        let mode = BackfillMode::Always;
        let terms = BackfillTerms { mode, blocks_max: 100, ttl_ms, now: Tick(0) };
        let whole = prompt();
        index.backfill(&replica("a").key(), &query(&whole), terms).unwrap();
        let guessed_at = |now| {
            let mut answer = index.query(&query(&whole)).unwrap();
            index.speculate(&query(&whole), &mut answer, mode, Tick(now));
            answer.replicas[0].speculative_tokens
        };
        assert_eq!((guessed_at(ttl_ms - 1), guessed_at(ttl_ms)), (16, 0));
    }
}
