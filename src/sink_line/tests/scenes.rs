//! Scene by scene: what a line says, and when.

use super::{
    BEAT_MS, Change, GRACE_MS, Numbered, Origin, Preset, Scene,
    reader::{Seen, read},
    settings,
};
use crate::view::tests::world::{At, Form, Op, Spot, Store, UNIT, World, tokens};

const PATH: [u8; 3] = [0, 1, 1];

fn at(count: usize) -> At {
    At { namespace: 0, path: PATH[..count].to_vec(), wide: false }
}

fn device() -> Spot {
    Spot { tier: 0, group: 0, tells_kind: false }
}

fn store(from: usize, to: usize) -> Op {
    let (count, size) = (to - from, UNIT);
    Op::Store(Store { at: at(to), count, size, form: Form::Dense, spot: device() })
}

fn remove(count: usize) -> Op {
    Op::Remove { at: at(count), spot: device() }
}

fn replayed(scene: &Scene, start: u64) -> (Origin, Vec<Numbered>) {
    let (origin, batches) = scene.line.replay(scene.at(), start);
    (origin, batches.collect())
}

fn key(count: usize) -> u64 {
    World { seed: 1 }.key(0, &PATH[..count])
}

fn stored(from: usize, to: usize) -> Seen {
    Seen::Stored {
        keys: (from + 1..=to).map(key).collect(),
        parent: (from > 0).then(|| key(from)),
        tokens: tokens(&PATH[from..to]),
        size: UNIT,
        medium: "GPU".to_owned(),
    }
}

fn removed(counts: &[usize]) -> Seen {
    Seen::Removed { keys: counts.iter().copied().map(key).collect(), medium: "GPU".to_owned() }
}

fn said(scene: &mut Scene) -> Vec<(u64, Vec<Seen>)> {
    let out = std::mem::take(&mut scene.out);
    out.into_iter().map(|Numbered { seq, payload }| (seq, read(&payload))).collect()
}

fn shown(preset: Preset) -> Scene {
    let mut scene = Scene::new(settings(preset));
    scene.trust(true, false);
    scene.apply(&store(0, 3));
    assert_eq!(said(&mut scene), [(0, vec![Seen::Cleared]), (1, vec![stored(0, 3)])]);
    scene
}

#[test]
fn what_was_told_is_withdrawn_after_a_grace_and_told_whole_when_it_is_believed_again() {
    let mut scene = shown(Preset::Vllm);
    scene.trust(false, false);
    scene.apply(&remove(3));
    scene.wait(GRACE_MS - 1);
    assert_eq!(said(&mut scene), []);
    scene.wait(1);
    assert_eq!(said(&mut scene), [(2, vec![Seen::Cleared])]);
    assert!(!scene.line.is_shown());
    scene.trust(true, false);
    assert_eq!(said(&mut scene), [(3, vec![Seen::Cleared, stored(0, 2)])]);
}

#[test]
fn a_trust_that_comes_back_in_time_costs_what_changed() {
    let mut scene = shown(Preset::Vllm);
    scene.trust(false, false);
    scene.apply(&remove(3));
    scene.trust(true, false);
    assert_eq!(said(&mut scene), [(2, vec![removed(&[3])])]);
    scene.wait(GRACE_MS);
    assert_eq!(said(&mut scene), [], "the grace is over, and nothing follows from it");
}

#[test]
fn a_view_that_was_lost_within_the_grace_is_told_anew() {
    let mut scene = shown(Preset::Vllm);
    scene.trust(false, false);
    scene.lose();
    scene.apply(&store(0, 1));
    scene.trust(true, false);
    assert_eq!(said(&mut scene), [(2, vec![Seen::Cleared, stored(0, 1)])]);
}

#[test]
fn a_block_leaves_after_those_behind_it_and_they_come_back_with_it() {
    let mut scene = shown(Preset::Vllm);
    scene.apply(&remove(1));
    assert_eq!(said(&mut scene), [(2, vec![removed(&[3, 2, 1])])]);
    assert_eq!((scene.line.shown_count(), scene.line.hidden_count()), (0, 2));
    scene.apply(&store(0, 1));
    assert_eq!(said(&mut scene), [(3, vec![stored(0, 3)])]);
}

#[test]
fn copies_of_a_block_are_told_once() {
    let mut scene = shown(Preset::Vllm);
    scene.apply(&store(2, 3));
    scene.apply(&remove(3));
    assert_eq!(said(&mut scene), []);
    scene.apply(&remove(3));
    assert_eq!(said(&mut scene), [(2, vec![removed(&[3])])]);
}

#[test]
fn an_idle_line_has_empty_batches() {
    let mut scene = shown(Preset::Vllm);
    scene.wait(BEAT_MS);
    scene.wait(BEAT_MS - 1);
    assert_eq!(said(&mut scene), [(2, vec![])]);
    assert_eq!(scene.line.next_deadline(), scene.now.plus(1));
}

#[test]
fn readers_of_an_earlier_process_are_told_that_nothing_is_there() {
    let mut scene = Scene::new(settings(Preset::Vllm));
    scene.wait(GRACE_MS);
    assert_eq!(said(&mut scene), [(0, vec![Seen::Cleared])]);
}

#[test]
fn a_range_that_is_gone_is_the_present_and_empty_batches() {
    let mut scene = shown(Preset::Vllm);
    (0..6).for_each(|_| scene.wait(BEAT_MS));
    let (origin, batches) = replayed(&scene, 1);
    assert_eq!(origin, Origin::View);
    let seqs: Vec<u64> = batches.iter().map(|batch| batch.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(read(&batches[0].payload), [Seen::Cleared, stored(0, 3)]);
    assert!(batches[1..].iter().all(|batch| read(&batch.payload).is_empty()));
    assert_eq!(replayed(&scene, 5).0, Origin::Journal);
    assert_eq!(replayed(&scene, 8), (Origin::Nothing, Vec::new()));
    assert_eq!(replayed(&scene, u64::MAX), (Origin::Nothing, Vec::new()));
}

#[test]
fn a_line_that_begins_at_the_time_answers_from_zero_with_its_newest_numbers() {
    let mut scene = Scene::new(settings(Preset::Dynamo));
    scene.trust(true, false);
    scene.apply(&store(0, 3));
    let (origin, batches) = replayed(&scene, 0);
    assert_eq!(origin, Origin::View);
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].seq + 1, scene.line.next_seq());
    assert_eq!(read(&batches[0].payload), [Seen::Cleared, stored(0, 3)]);
}

#[test]
fn a_line_from_zero_begins_again_before_late_readers_are_answered_for_ever() {
    let mut scene = shown(Preset::Vllm);
    (2..40).for_each(|_| scene.wait(BEAT_MS));
    scene.out.clear();
    scene.wait(BEAT_MS);
    assert_eq!(said(&mut scene), [(0, vec![Seen::Cleared, stored(0, 3)])]);
}

#[test]
fn blocks_without_tokens_and_what_is_behind_them_are_not_told() {
    let mut scene = Scene::new(settings(Preset::Vllm));
    scene.view = crate::view::View::install(
        crate::view::ViewSettings { describes: true, ..crate::view::tests::world::SETTINGS },
        shown(Preset::Vllm).view.snapshot(),
    )
    .unwrap();
    scene.trust(true, false);
    scene.whole();
    assert_eq!(said(&mut scene), [(0, vec![Seen::Cleared])]);
    assert_eq!(scene.line.hidden_count(), 3);
    // The engine stores the first one again: its tokens are known now, those of the others not.
    scene.apply(&store(0, 1));
    assert_eq!(said(&mut scene), [(1, vec![stored(0, 1)])]);
    assert_eq!(scene.line.hidden_count(), 2);
}

#[test]
fn nothing_of_a_prompt_is_in_the_debug_form() {
    let scene = shown(Preset::Vllm);
    let changes: Vec<Change> =
        scene.view.links().filter_map(|delta| Change::of(&delta, &scene.view)).collect();
    let text = format!("{changes:?} {:?} {:?}", scene.line, replayed(&scene, 0));
    assert!(text.contains("Described(2 tokens)") && text.contains("Numbered(0, "), "{text}");
    assert!(!text.contains("Tokens(["), "{text}");
}
