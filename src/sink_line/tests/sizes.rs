//! Blocks of another size than the engine's: the prefixes that are told are those that are held.

use std::collections::BTreeMap;

use kvbridge_schemas::{ExtraKey, Tier};
use proptest::{prelude::*, test_runner::Config};

use super::{
    LineSettings, Preset, Scene, Sizes,
    reader::{Seen, read},
    settings,
};
use crate::view::{
    Delta, LinkParent,
    tests::world::{At, Form, Op, Spot, Store, UNIT, op},
};

/// What a reader was told, as prefixes: all tokens from the first on. It forgets nothing but what
/// it is told to, and finds what should not be told.
#[derive(Default)]
struct Told(BTreeMap<(u64, String), Vec<u32>>);

impl Told {
    fn take(&mut self, seen: Seen, size: u32) {
        match seen {
            Seen::Cleared => self.0.clear(),
            Seen::Removed { keys, medium } => {
                for key in keys {
                    assert!(self.0.remove(&(key, medium.clone())).is_some(), "never told");
                }
            }
            Seen::Stored { keys, mut parent, tokens, size: told_size, medium } => {
                assert_eq!(told_size, size);
                for (key, tokens) in keys.into_iter().zip(tokens.chunks_exact(size as usize)) {
                    let of = |parent| {
                        ["GPU", "CPU"]
                            .iter()
                            .find_map(|on| self.0.get(&(parent, (*on).to_owned())).cloned())
                    };
                    let mut prefix = match parent {
                        Some(parent) => of(parent).expect("a parent that was told"),
                        None => Vec::new(),
                    };
                    prefix.extend(tokens);
                    assert_ne!(key, 0);
                    let was = self.0.insert((key, medium.clone()), prefix);
                    assert!(was.is_none(), "told twice");
                    parent = Some(key);
                }
            }
        }
    }

    /// How many sequences have each prefix on the device.
    fn on_device(&self) -> BTreeMap<Vec<u32>, usize> {
        let on = self.0.iter().filter(|((_, medium), _)| medium == "GPU");
        on.fold(BTreeMap::new(), |mut counts, (_, prefix)| {
            *counts.entry(prefix.clone()).or_default() += 1;
            counts
        })
    }
}

/// The prefixes that the engine's blocks on the device end, each with the block's name. Blocks with
/// an image are none: nobody knows which tokens of another block it would be for.
fn held(scene: &Scene, own: u32) -> BTreeMap<u64, Vec<u32>> {
    let links: Vec<Delta> = scene.view.links().collect();
    let mut held: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    loop {
        let before = held.len();
        for link in &links {
            let Delta::Linked { node, parent, tier: Tier::Device, .. } = link else { continue };
            let Some(described) = scene.view.described(*node) else { continue };
            let odd = |key: &ExtraKey| !matches!(key, ExtraKey::Text(_));
            if node.block_size != own || described.extra.iter().any(odd) {
                continue;
            }
            let prefix = match parent {
                LinkParent::Root(_) => Some(Vec::new()),
                LinkParent::Block(parent) => held.get(&parent.key).cloned(),
            };
            if let Some(mut prefix) = prefix {
                prefix.extend(&described.tokens.0);
                held.insert(node.key, prefix);
            }
        }
        if held.len() == before {
            return held;
        }
    }
}

/// What must be told of that at another size.
fn wanted(held: &BTreeMap<u64, Vec<u32>>, own: u32, told: u32) -> BTreeMap<Vec<u32>, usize> {
    let (own, told) = (own as usize, told as usize);
    let mut wanted = BTreeMap::new();
    for prefix in held.values() {
        let ends = if told > own {
            prefix.len()..=prefix.len()
        } else {
            prefix.len() - own + told..=prefix.len()
        };
        for end in ends.step_by(told.min(own)).filter(|end| end % told == 0) {
            *wanted.entry(prefix[..end].to_vec()).or_default() += 1;
        }
    }
    wanted
}

fn scene(own: u32, told: u32, tiers: Vec<Tier>) -> Scene {
    let sizes = Sizes::Other { own, told };
    let mut scene = Scene::new(LineSettings { sizes, tiers, ..settings(Preset::Dynamo) });
    scene.trust(true, true);
    scene
}

fn run(ops: &[Op], own: u32, size: u32, tiers: &[Tier]) {
    let mut scene = scene(own, size, tiers.to_vec());
    let mut told = Told::default();
    for (at, op) in ops.iter().enumerate() {
        scene.apply(op);
        match at % 37 {
            11 => scene.trust(false, false),
            13 => scene.trust(true, at % 2 == 0),
            23 => scene.whole(),
            29 => scene.wait(super::GRACE_MS),
            _ => (),
        }
        for batch in std::mem::take(&mut scene.out) {
            read(&batch.payload).into_iter().for_each(|seen| told.take(seen, size));
        }
    }
    scene.trust(true, true);
    for batch in std::mem::take(&mut scene.out) {
        read(&batch.payload).into_iter().for_each(|seen| told.take(seen, size));
    }
    let held = held(&scene, own);
    assert_eq!(told.on_device(), wanted(&held, own, size));
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_prefixes_that_are_told_are_those_that_are_held(
        ops in prop::collection::vec(op(), 1..150),
        (own, size) in prop::sample::select(vec![
            (UNIT, 2 * UNIT),
            (UNIT, 3 * UNIT),
            (2 * UNIT, UNIT),
            (2 * UNIT, 4 * UNIT),
            (2 * UNIT, 1),
        ]),
        hosts in any::<bool>(),
    ) {
        let tiers = if hosts { vec![Tier::Device, Tier::Host] } else { vec![Tier::Device] };
        run(&ops, own, size, &tiers);
    }
}

fn store(path: &[u8], count: usize) -> Op {
    let at = At { namespace: 0, path: path.to_vec(), wide: false };
    let spot = Spot { tier: 0, group: 0, tells_kind: false };
    Op::Store(Store { at, count, size: UNIT, form: Form::Dense, spot })
}

fn said(scene: &mut Scene) -> Vec<Seen> {
    let out = std::mem::take(&mut scene.out);
    out.iter().flat_map(|batch| read(&batch.payload)).collect()
}

#[test]
fn a_coarse_block_is_told_when_its_last_part_is_there_and_goes_with_any_of_them() {
    let mut scene = scene(UNIT, 2 * UNIT, vec![Tier::Device]);
    scene.apply(&store(&[0, 1, 0], 3));
    let key =
        |count: usize| crate::view::tests::world::World { seed: 1 }.key(0, &[0, 1, 0][..count]);
    let all = |seen: &[Seen]| format!("{seen:?}");
    let first = said(&mut scene);
    let stored = Seen::Stored {
        keys: vec![key(2)],
        parent: None,
        tokens: vec![0, 1, 10, 11],
        size: 2 * UNIT,
        medium: "GPU".to_owned(),
    };
    assert_eq!(first, [Seen::Cleared, stored], "{}", all(&first));
    let at = At { namespace: 0, path: vec![0], wide: false };
    let spot = Spot { tier: 0, group: 0, tells_kind: false };
    scene.apply(&Op::Remove { at, spot });
    let removed = Seen::Removed { keys: vec![key(2)], medium: "GPU".to_owned() };
    assert_eq!(said(&mut scene), [removed]);
}
