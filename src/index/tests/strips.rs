//! What a view keeps and tells in strips comes to the same as what it tells block by block.

use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, Group, GroupKind, Moved, Parent, Place,
    Removed, Scope, Stored, StoredBlock, Tier, Tokens, Trust,
};
use proptest::{prelude::*, test_runner::Config};

use super::{published, query, replica};
use crate::{
    api::Removal,
    index::{Index, Prompt, Query, ReplicaSlot},
    view::{
        View, ViewSettings,
        tests::{Told, apply, world::SETTINGS},
    },
};

/// Longer than three strips.
const LENGTH: u64 = 200;
/// Each leaves the first one at another block: it shares all before.
const BRANCHES: [u64; 6] = [0, 3, 63, 64, 100, 101];

#[derive(Clone, Debug)]
enum Step {
    Store {
        chain: usize,
        from: u64,
        count: u64,
        how: How,
    },
    Remove {
        chain: usize,
        from: u64,
        count: u64,
        last_first: bool,
        tier: usize,
    },
    Move {
        chain: usize,
        at: u64,
    },
    Clear,
    /// The index takes the view anew.
    Replace,
    /// The view goes through a snapshot, and the index takes it anew.
    Install {
        backwards: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Dense,
    Host,
    /// One block of the store has an image.
    Image,
    /// No tokens are told.
    Sparse,
    /// The parent is said to be another.
    OtherParent,
    /// The hashes are long.
    Long,
    Lora,
    Group(u32, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let from = prop_oneof![3 => Just(0_u64), 2 => 0..LENGTH];
    let count = prop_oneof![2 => 1..4_u64, 3 => 30..LENGTH];
    let how = prop_oneof![
        40 => Just(How::Dense),
        2 => Just(How::Host),
        1 => Just(How::Image),
        1 => Just(How::Sparse),
        1 => Just(How::OtherParent),
        1 => Just(How::Lora),
        1 => (0..2_u32, any::<bool>()).prop_map(|(index, holds)| How::Group(index, holds)),
    ];
    let chain = 0..BRANCHES.len();
    let tier = prop_oneof![8 => Just(0_usize), 1 => Just(1_usize)];
    prop_oneof![
        24 => (chain.clone(), from.clone(), count.clone(), how)
            .prop_map(|(chain, from, count, how)| Step::Store { chain, from, count, how }),
        20 => (chain.clone(), 0..LENGTH, count, any::<bool>(), tier).prop_map(
            |(chain, from, count, last_first, tier)| Step::Remove {
                chain, from, count, last_first, tier
            }
        ),
        1 => (chain, 0..LENGTH).prop_map(|(chain, at)| Step::Move { chain, at }),
        1 => Just(Step::Clear),
        1 => Just(Step::Replace),
        2 => any::<bool>().prop_map(|backwards| Step::Install { backwards }),
    ]
}

/// Of two replicas, which share what they hold alike.
type Steps = Vec<(usize, Step)>;

/// Long hashes make a view keep its blocks one by one for good, so they are rare.
fn steps() -> impl Strategy<Value = Steps> {
    let long = (0..BRANCHES.len(), 0..LENGTH, 1..4_u64)
        .prop_map(|(chain, from, count)| Step::Store { chain, from, count, how: How::Long });
    let most = prop::collection::vec((0..2_usize, step()), 1..40);
    (most, prop::option::weighted(0.1, long)).prop_map(|(mut steps, long)| {
        let middle = steps.len() / 2;
        long.into_iter().for_each(|long| steps.insert(middle, (0, long)));
        steps
    })
}

fn key(chain: usize, at: u64) -> u64 {
    let chain = if at < BRANCHES[chain] { 0 } else { chain };
    // Spread, as hashes are, and never the number of another.
    (u64::try_from(chain).unwrap() * 1_000 + at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The second and third branch go on alike, hashed apart.
fn content(chain: usize, at: u64) -> u64 {
    let chain = if chain == 2 { 1 } else { chain };
    key(chain, at) ^ 1
}

fn hash(chain: usize, at: u64, is_long: bool) -> BlockHash {
    let key = key(chain, at).to_be_bytes();
    let mut bytes = vec![9; if is_long { 8 } else { 0 }];
    bytes.extend(key);
    BlockHash::from_bytes(&bytes).unwrap()
}

fn place(tier: usize, group: Option<(u32, bool)>) -> Place {
    let kind = |holds| if holds { GroupKind::FullAttention } else { GroupKind::SlidingWindow };
    let group = group.map(|(index, holds)| Group { index, kind: Some(kind(holds)), window: None });
    Place { group, ..Place::of([Tier::Device, Tier::Host][tier].clone()) }
}

fn stored(chain: usize, from: u64, count: u64, how: How) -> Stored {
    let numbers = from..LENGTH.min(from + count);
    let is_long = how == How::Long;
    let block = |at| StoredBlock {
        hash: hash(chain, at, is_long),
        content: (how != How::Sparse).then(|| content(chain, at)),
    };
    let image = || vec![ExtraKey::Item { id: "image".into(), offset: 0 }];
    let has_image = |at| how == How::Image && at == from + count / 2;
    let group = match how {
        How::Group(index, holds) => Some((index, holds)),
        How::Dense
        | How::Host
        | How::Image
        | How::Sparse
        | How::OtherParent
        | How::Long
        | How::Lora => None,
    };
    Stored {
        parent: match from.checked_sub(1) {
            _ if how == How::OtherParent => Parent::Block(hash(0, 150, false)),
            None => Parent::Root,
            Some(before) => Parent::Block(hash(chain, before, is_long)),
        },
        block_size: 2,
        tokens: Tokens::default(),
        extra: numbers.clone().map(|at| if has_image(at) { image() } else { vec![] }).collect(),
        blocks: numbers.map(block).collect(),
        partial: false,
        bigram: false,
        place: place(usize::from(how == How::Host), group),
        lora: (how == How::Lora).then(|| "ad".to_owned()),
        lora_id: None,
        salt: None,
        session: None,
    }
}

/// An index and the views that feed it.
struct Fed {
    index: Index,
    views: [(View, ReplicaSlot); 2],
}

impl Fed {
    fn new(settings: ViewSettings) -> Fed {
        let index = Index::new();
        let views = ["a", "b"].map(|name| (View::new(settings), index.register(replica(name))));
        Fed { index, views }
    }

    fn fold(&mut self, who: usize, event: &Event) {
        let (view, slot) = &mut self.views[who];
        let mut told = view.clone();
        let (mut deltas, mut findings) = (Vec::new(), Vec::new());
        view.apply(std::slice::from_ref(event), &mut deltas, &mut findings);
        // Deltas alone say what changed.
        drop(apply(&mut told, event.clone()));
        self.index.apply(*slot, &deltas, published(Trust::Exact, 1));
    }

    fn replace(&self, who: usize) {
        let (view, slot) = &self.views[who];
        self.index.replace(*slot, view.as_deltas(), published(Trust::Exact, 1));
    }

    fn run(&mut self, who: usize, step: &Step) {
        match step {
            Step::Store { chain, from, count, how } => {
                self.fold(who, &Event::Stored(stored(*chain, *from, *count, *how)));
            }
            Step::Remove { chain, from, count, last_first, tier } => {
                let mut numbers: Vec<u64> = (*from..LENGTH.min(from + count)).collect();
                if *last_first {
                    numbers.reverse();
                }
                let hashes = numbers.into_iter().map(|at| hash(*chain, at, false)).collect();
                self.fold(who, &Event::Removed(Removed { hashes, place: place(*tier, None) }));
            }
            Step::Move { chain, at } => self.fold(
                who,
                &Event::Moved(Moved {
                    hash: hash(*chain, *at, false),
                    from: Tier::Device,
                    to: Tier::Host,
                }),
            ),
            Step::Clear => self.fold(
                who,
                &Event::Cleared(Cleared { scope: Scope::All, cause: ClearCause::Engine }),
            ),
            Step::Replace => self.replace(who),
            Step::Install { backwards } => {
                let mut records = self.views[who].0.snapshot();
                if *backwards {
                    records.reverse();
                }
                let settings = *self.views[who].0.settings();
                self.views[who].0 = View::install(settings, records).unwrap();
                self.replace(who);
            }
        }
    }

    /// How much of it each replica holds.
    fn depths(&self, contents: &[u64], lora: Option<&str>) -> Vec<(ReplicaSlot, u64)> {
        let prompt = Prompt::Content { hashes: contents, block_size: 2 };
        let mut depths = Vec::new();
        // No block of that size: nobody has a match.
        drop(self.index.depths(&Query { prompt, lora, ..query(&[]) }, &mut depths));
        depths
    }

    /// Pages, and nodes or strips.
    fn left(&self) -> (usize, usize) {
        let model = self.index.model("m").unwrap();
        let Ok(shared) = model.read() else { panic!("no writer died") };
        let nodes = shared.members.iter().map(|it| shared.tree.column(it.column).unwrap());
        (shared.tree.page_count(), nodes.map(super::super::column::Column::node_count).sum())
    }
}

fn check(removal: Removal, steps: &[(usize, Step)]) -> Result<(), TestCaseError> {
    let settings = ViewSettings { removal, ..SETTINGS };
    let mut in_strips = Fed::new(settings);
    let mut one_by_one = Fed::new(ViewSettings { told_singly: true, ..settings });
    for (who, step) in steps {
        in_strips.run(*who, step);
        one_by_one.run(*who, step);
        let view = &in_strips.views[*who].0;
        prop_assert!(view.holds_as(&one_by_one.views[*who].0));
        Told::of(view);
        for chain in 0..BRANCHES.len() {
            let contents: Vec<u64> = (0..LENGTH).map(|at| content(chain, at)).collect();
            for lora in [None, Some("ad")] {
                let depths = [&in_strips, &one_by_one].map(|fed| fed.depths(&contents, lora));
                prop_assert_eq!(&depths[0], &depths[1], "chain {} {:?}", chain, lora);
            }
        }
    }
    // What the view does not hold leaves nothing behind.
    for who in 0..2 {
        let held = in_strips.views[who].0.snapshot();
        for record in held.iter().rev() {
            let place = Place { group: record.group.clone(), ..Place::of(record.tier.clone()) };
            for _ in 0..record.count {
                let hashes = vec![record.hash.clone()];
                in_strips.fold(who, &Event::Removed(Removed { hashes, place: place.clone() }));
            }
        }
        prop_assert_eq!(in_strips.views[who].0.block_count(), 0);
    }
    prop_assert_eq!(in_strips.left(), (0, 0));
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 40, failure_persistence: None, ..Config::default() })]

    #[test]
    fn strips_come_to_the_same_as_their_blocks(steps in steps()) {
        check(Removal::PerCopy, &steps)?;
    }

    #[test]
    fn strips_come_to_the_same_where_a_removal_takes_all_copies(steps in steps()) {
        check(Removal::LastCopy, &steps)?;
    }
}

/// A strip was parted and follows on; its blocks come back and go into no other.
#[test]
fn what_strips_follow_by_itself_comes_back_by_itself() {
    let store = |chain, count| (0, Step::Store { chain, from: 0, count, how: How::Dense });
    let (from, count, last_first, tier) = (0, 65, false, 0);
    // The first one's end leaves a number for the strip that is to come before the other's end.
    let steps = [
        store(0, 65),
        store(3, 65),
        (0, Step::Remove { chain: 0, from, count, last_first, tier }),
        (0, Step::Move { chain: 0, at: 0 }),
        store(3, 64),
        (0, Step::Replace),
    ];
    check(Removal::LastCopy, &steps).unwrap();
}

/// Blocks that went keep their places for what follows them, also when nobody holds one there.
#[test]
fn places_wait_for_blocks_that_strips_remember() {
    let store = |chain, count, how| Step::Store { chain, from: 0, count, how };
    let (from, count, last_first, tier) = (0, 64, true, 0);
    let remove = || Step::Remove { chain: 0, from, count, last_first, tier };
    let steps = [
        (0, store(3, 65, How::Dense)),
        (1, store(0, 64, How::Dense)),
        (0, remove()),
        (1, remove()),
        // It takes what is free.
        (1, store(1, 64, How::Lora)),
        (0, store(3, 64, How::Dense)),
    ];
    check(Removal::PerCopy, &steps).unwrap();
}

/// A block that is told by itself comes back, and what it follows is in a strip by now.
#[test]
fn a_block_that_comes_back_behind_a_strip_is_found_there() {
    let of = |told_singly| Fed::new(ViewSettings { told_singly, ..SETTINGS });
    let (mut in_strips, mut one_by_one) = (of(false), of(true));
    let full = |from, count| stored(0, from, count, How::Group(0, true));
    let removed = |at| {
        let place = place(0, Some((0, true)));
        Event::Removed(Removed { hashes: vec![hash(0, at, false)], place })
    };
    let mut placeless = full(1, 1);
    placeless.blocks[0].content = None;
    let events = [
        Event::Stored(full(0, 2)),
        // A window holds it too: it keeps its place when the other group lets it go.
        Event::Stored(stored(0, 1, 1, How::Group(1, false))),
        removed(1),
        removed(0),
        Event::Stored(full(0, 1)),
        Event::Stored(placeless),
    ];
    for event in &events {
        in_strips.fold(0, event);
        one_by_one.fold(0, event);
    }
    let depths =
        [&in_strips, &one_by_one].map(|fed| fed.depths(&[0, 1].map(|at| content(0, at)), None));
    assert_eq!(depths[0], depths[1]);
    assert_eq!(depths[0].first().map(|(_, depth)| *depth), Some(2));
    // In a second tier the strip is taken apart, and each of its blocks is known once.
    in_strips.fold(0, &Event::Stored(stored(0, 0, 1, How::Host)));
}

/// Nearly all blocks of an engine are in strips, and the index is told so.
#[test]
fn what_one_engine_stores_is_told_in_strips() {
    let mut view = View::new(SETTINGS);
    let mut deltas = Vec::new();
    let store = |from, count| Event::Stored(stored(0, from, count, How::Dense));
    view.apply(&[store(0, 100), store(100, 1), store(101, 1)], &mut deltas, &mut Vec::new());
    assert_eq!(deltas.len(), 4, "two parts of the first, and one of each other: {deltas:?}");
    deltas.clear();
    let numbers = (0..102).rev().map(|at| hash(0, at, false)).collect();
    let removed = Removed { hashes: numbers, place: place(0, None) };
    view.apply(&[Event::Removed(removed)], &mut deltas, &mut Vec::new());
    assert_eq!(deltas.len(), 2, "{deltas:?}");
}
