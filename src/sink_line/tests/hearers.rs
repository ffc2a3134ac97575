//! Readers that are connected to: whatever they and their queues do, each ends with what is shown,
//! and none is told again what it has without a clear before it.

use std::sync::Arc;

use proptest::{prelude::*, test_runner::Config};

use super::{
    BEAT_MS, GRACE_MS, Preset, Scene,
    reader::{Reader, Seen, read},
    settings,
};
use crate::{
    sink_line::{Hearer, Numbered, Payload},
    view::tests::world::{At, Form, Op, Spot, Store, UNIT, op},
};

const TOPIC: &str = "kv@h:1@m";

/// A reader at the other end, with a queue before it.
#[derive(Default)]
struct Far {
    hearer: Hearer,
    queue: Vec<Numbered>,
    reader: Reader,
    next: u64,
}

impl Far {
    /// It starts anew, without a word of what it had.
    fn starts(&mut self) {
        *self = Far::default();
        self.hearer.listens(b"kv@");
    }

    fn offer(&mut self, scene: &Scene, news: &[Payload], room: usize) {
        if self.queue.len() >= room {
            self.hearer.missed(TOPIC);
        } else {
            let whole = || scene.line.whole_batches(scene.at());
            self.queue.extend(self.hearer.offered(TOPIC, news, whole));
        }
    }

    /// Its queue is read. The reader asserts that nothing is stored twice and nothing removed that
    /// it has not.
    fn reads(&mut self) {
        for batch in self.queue.drain(..) {
            assert_eq!(batch.seq, self.next, "numbers of its own, without a hole");
            self.next += 1;
            if batch.seq == 0 {
                assert_eq!(read(&batch.payload).first(), Some(&Seen::Cleared));
            }
            self.reader.take(&batch);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Op),
    Trust(bool),
    Lose,
    Wait(u64),
    Starts(usize),
    Reads(usize),
    Leaves(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => op().prop_map(Step::Apply),
        3 => any::<bool>().prop_map(Step::Trust),
        1 => Just(Step::Lose),
        2 => (1..3 * GRACE_MS).prop_map(Step::Wait),
        3 => (0..2_usize).prop_map(Step::Starts),
        15 => (0..2_usize).prop_map(Step::Reads),
        1 => (0..2_usize).prop_map(Step::Leaves),
    ]
}

/// Parcels that a reader's queue holds.
const ROOM: usize = 3;

fn run(steps: &[Step]) {
    let mut scene = Scene::new(settings(Preset::Dynamo));
    let mut far = [Far::default(), Far::default()];
    scene.trust(true, true);
    let publish = |scene: &mut Scene, far: &mut [Far; 2], room: usize| {
        let out = std::mem::take(&mut scene.out);
        let news: Vec<Payload> = out.into_iter().map(|batch| batch.payload).collect();
        for far in far {
            if !news.is_empty() || far.hearer.lacks(TOPIC) {
                far.offer(scene, &news, room);
            }
        }
    };
    for step in steps {
        match step {
            Step::Apply(op) => scene.apply(op),
            Step::Trust(trusted) => scene.trust(*trusted, *trusted),
            Step::Lose => scene.lose(),
            Step::Wait(ms) => scene.wait(*ms),
            Step::Starts(at) => far[*at].starts(),
            Step::Reads(at) => far[*at].reads(),
            Step::Leaves(at) => far[*at].hearer.leaves(b"kv@"),
        }
        publish(&mut scene, &mut far, ROOM);
    }
    for far in &mut far {
        far.reads();
        if !far.hearer.is_listening() {
            far.starts();
        }
    }
    scene.wait(BEAT_MS);
    publish(&mut scene, &mut far, usize::MAX);
    let wanted = if scene.line.is_shown() { scene.wanted() } else { Default::default() };
    for far in &mut far {
        far.reads();
        assert_eq!(far.reader.has, wanted);
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_reader_that_is_connected_to_ends_with_what_is_shown(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(&steps);
    }
}

#[test]
fn exactly_the_reader_that_came_back_is_told_all_again() {
    let mut scene = Scene::new(settings(Preset::Dynamo));
    scene.trust(true, false);
    let mut far = [Far::default(), Far::default()];
    far.iter_mut().for_each(Far::starts);
    far.iter_mut().for_each(|far| far.offer(&scene, &[], ROOM));
    far.iter_mut().for_each(Far::reads);
    far[1].starts();
    assert!(far[1].hearer.lacks(TOPIC) && !far[0].hearer.lacks(TOPIC));
    let news = scene.line.whole_batches(scene.at());
    far.iter_mut().for_each(|far| far.offer(&scene, &news[..0], ROOM));
    assert_eq!((far[0].queue.len(), far[1].queue.len()), (0, 1));
    assert_eq!(far[1].queue[0].seq, 0);
    // A topic that it does not listen to is nothing to it.
    far[1].hearer.leaves(b"kv@");
    assert!(!far[1].hearer.lacks(TOPIC));
    assert!(far[1].hearer.offered(TOPIC, &news, || news.clone()).is_empty());
}

#[test]
fn a_reader_that_comes_back_is_told_of_lines_that_ended_meanwhile() {
    let scene = Scene::new(settings(Preset::Dynamo));
    let whole = || scene.line.whole_batches(scene.at());
    let clear = Arc::clone(&whole()[0]);
    let mut hearer = Hearer::default();
    hearer.listens(b"kv@");
    hearer.offered(TOPIC, &[], whole);
    hearer.offered(TOPIC, std::slice::from_ref(&clear), whole);
    hearer.ends(TOPIC, Arc::clone(&clear));
    assert_eq!(hearer.owed(), None, "it was told");
    // Its connection broke: nobody knows what of that it read.
    hearer.lost();
    assert_eq!(hearer.owed(), None, "it is not there");
    hearer.listens(b"kv@");
    let (topic, last) = hearer.owed().unwrap();
    assert_eq!((topic.as_str(), last.seq), (TOPIC, 0));
    assert_eq!(read(&last.payload), [Seen::Cleared]);
    hearer.paid(TOPIC);
    assert_eq!(hearer.owed(), None);
    // One that had no room when the line ended.
    hearer.offered("kv@h:2@m", &[], whole);
    hearer.missed("kv@h:2@m");
    hearer.ends("kv@h:2@m", clear);
    assert_eq!(hearer.owed().unwrap().0, "kv@h:2@m");
    // A line of that name begins again: it says so itself.
    hearer.offered("kv@h:2@m", &[], whole);
    assert_eq!(hearer.owed(), None);
}

#[test]
fn who_comes_while_a_block_is_elsewhere_than_was_told_is_told_what_the_others_have() {
    let at = |path: &[u8]| At { namespace: 0, path: path.to_vec(), wide: false };
    let store = |path: &[u8], form: Form| {
        let spot = Spot { tier: 0, group: 0, tells_kind: false };
        Op::Store(Store { at: at(path), count: 1, size: UNIT, form, spot })
    };
    let mut scene = Scene::new(settings(Preset::Dynamo));
    scene.trust(true, false);
    scene.apply(&store(&[0, 0], Form::WrongParent));
    scene.trust(false, false);
    // Within the grace it turns out that something comes before it.
    scene.apply(&store(&[0], Form::Dense));
    scene.apply(&store(&[0, 0], Form::Dense));
    let mut late = Far::default();
    late.starts();
    late.offer(&scene, &[], ROOM);
    late.reads();
    assert_eq!(late.reader.has.len(), 1);
    scene.out.clear();
    scene.trust(true, false);
    let news: Vec<Payload> = scene.out.drain(..).map(|batch| batch.payload).collect();
    late.offer(&scene, &news, ROOM);
    late.reads();
    assert_eq!(late.reader.has, scene.wanted());
}
