//! The cache against a consumer that only hears its events, and its rules one by one.

use std::collections::BTreeMap;

use kvbridge_schemas::{BlockHash, Parent, Place};
use proptest::prelude::*;

use super::*;
use crate::fake_engine::{
    engine::{Engine, Request},
    hash::none_hash,
    sequence::Namespace,
};

fn settings(blocks: u32) -> CacheSettings {
    CacheSettings {
        blocks,
        block_size: 4,
        window: None,
        host_blocks: 0,
        host_block_size_is_zero: true,
        host_group: true,
    }
}

fn sequence(tokens: std::ops::Range<u32>) -> Sequence {
    let tokens: Vec<u32> = tokens.collect();
    Sequence::new(none_hash("0"), 4, Namespace::default(), &tokens)
}

/// What a consumer that counts ends up with.
#[derive(Default)]
struct Listener(BTreeMap<(BlockHash, Tier, Option<u32>), u32>);

impl Listener {
    fn hear(&mut self, events: Vec<Event>) {
        let index = |place: &Place| place.group.as_ref().map(|group| group.index);
        for event in events {
            match event {
                Event::Stored(stored) => {
                    for block in stored.blocks {
                        let key = (block.hash, stored.place.tier.clone(), index(&stored.place));
                        *self.0.entry(key).or_default() += 1;
                    }
                }
                Event::Removed(removed) => {
                    for hash in removed.hashes {
                        let key = (hash, removed.place.tier.clone(), index(&removed.place));
                        let count = self.0.get_mut(&key).expect("it was stored before");
                        *count -= 1;
                        if *count == 0 {
                            self.0.remove(&key);
                        }
                    }
                }
                Event::Cleared(_) => self.0.retain(|(_, tier, _), _| *tier != Tier::Device),
                other => panic!("no engine sends {other:?}"),
            }
        }
    }

    fn agrees_with(&self, truth: &[Resident]) {
        let truth = truth.iter().map(|resident| {
            ((whole(&resident.hash), resident.tier.clone(), resident.group), resident.count)
        });
        assert_eq!(self.0, truth.collect());
    }
}

/// `stored 0..2 of 3`, `removed 1`, … in the order of events.
fn short(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match event {
        Event::Stored(stored) => {
            let medium = stored.place.medium.as_deref().unwrap_or_default();
            let root = stored.parent == Parent::Root;
            format!(
                "stored {} of {} {medium} root={root}",
                stored.blocks.len(),
                stored.tokens.0.len()
            )
        }
        Event::Removed(removed) => format!("removed {}", removed.hashes.len()),
        _ => "cleared".to_owned(),
    };
    events.iter().map(line).collect()
}

#[test]
fn a_prefix_is_stored_once_and_hit_afterwards() {
    let mut cache = Cache::new(settings(16));
    let mut first = sequence(0..9);
    assert_eq!(cache.admit(&mut first), Ok(0));
    assert_eq!(short(&cache.take_events()), ["stored 2 of 8 GPU root=true"]);
    let mut second = sequence(0..13);
    assert_eq!(cache.admit(&mut second), Ok(8));
    assert_eq!(short(&cache.take_events()), ["stored 1 of 4 GPU root=false"]);
}

#[test]
fn a_whole_prompt_that_is_cached_computes_its_last_block_again_as_a_copy() {
    let mut cache = Cache::new(settings(16));
    for _ in 0..2 {
        let mut same = sequence(0..8);
        cache.admit(&mut same).unwrap();
        cache.release(&mut same);
    }
    let counts: Vec<u32> = cache.truth().iter().map(|resident| resident.count).collect();
    assert_eq!(counts.iter().sum::<u32>(), 3);
    assert!(counts.contains(&2));
}

#[test]
fn reuse_takes_the_tail_first_and_says_so_before_the_store() {
    let mut cache = Cache::new(settings(4)); // 3 usable
    let mut old = sequence(0..12);
    cache.admit(&mut old).unwrap();
    let tail = old.hashes()[2];
    cache.release(&mut old);
    cache.take_events();
    let mut new = sequence(100..104);
    cache.admit(&mut new).unwrap();
    assert_eq!(short(&cache.take_events()), ["removed 1", "stored 1 of 4 GPU root=true"]);
    assert!(cache.truth().iter().all(|resident| resident.hash != tail));
}

#[test]
fn a_full_pool_refuses_and_changes_nothing() {
    let mut cache = Cache::new(settings(4));
    let mut running = sequence(0..8);
    cache.admit(&mut running).unwrap();
    let before = cache.truth();
    cache.take_events();
    assert_eq!(cache.admit(&mut sequence(0..20)), Err(Full));
    assert_eq!((cache.truth(), cache.has_events()), (before, false));
    assert!(!cache.clear(), "blocks are in use");
    cache.release(&mut running);
    assert!(cache.clear());
    assert_eq!((short(&cache.take_events()), cache.truth().len()), (vec!["cleared".to_owned()], 0));
}

#[test]
fn a_sliding_group_stores_its_window_only() {
    let mut cache = Cache::new(CacheSettings { window: Some(8), ..settings(64) });
    let mut long = sequence(0..24);
    cache.admit(&mut long).unwrap();
    assert_eq!(
        short(&cache.take_events()),
        ["stored 2 of 24 GPU root=true", "stored 6 of 24 GPU root=true"]
    );
}

#[test]
fn the_host_tier_is_bounded_and_serves_what_the_device_lost() {
    let mut cache = Cache::new(CacheSettings { host_blocks: 3, ..settings(4) });
    let mut first = sequence(0..9);
    cache.admit(&mut first).unwrap();
    cache.release(&mut first);
    assert_eq!(
        short(&cache.take_events()),
        ["stored 2 of 8 GPU root=true", "stored 2 of 0 CPU root=false"]
    );
    let mut other = sequence(50..59);
    cache.admit(&mut other).unwrap();
    cache.release(&mut other);
    let host = cache.truth().into_iter().filter(|resident| resident.tier == Tier::Host).count();
    assert_eq!(host, 3);
    let hit = cache.admit(&mut sequence(50..59)).unwrap();
    assert_eq!(hit, 8);
}

#[derive(Clone, Debug)]
enum Act {
    Add { root: u32, len: u32, output: u32, lora: bool },
    Step,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_u32, 1..40_u32, 1..12_u32, any::<bool>())
            .prop_map(|(root, len, output, lora)| Act::Add { root, len, output, lora }),
        12 => Just(Act::Step),
        1 => Just(Act::Reset),
    ]
}

proptest! {
    #[test]
    fn events_alone_tell_the_whole_truth(
        acts in proptest::collection::vec(act(), 1..120),
        blocks in 16..40_u32,
        window in proptest::option::of(1..20_u32),
        host_blocks in 0..10_u32,
    ) {
        let settings = CacheSettings { window, host_blocks, ..settings(blocks) };
        let mut engine = Engine::new(settings, none_hash("0"), true);
        let mut listener = Listener::default();
        for (id, act) in acts.into_iter().enumerate() {
            match act {
                Act::Add { root, len, output, lora } => engine.add(Request {
                    id: u64::try_from(id).unwrap(),
                    tokens: (0..len).map(|at| root * 1000 + at).collect(),
                    output_tokens: output,
                    lora: lora.then(|| "ad".to_owned()),
                    salt: None,
                }),
                Act::Step => {
                    listener.hear(engine.step().events);
                    listener.agrees_with(&engine.truth());
                }
                Act::Reset => {
                    engine.reset(true);
                }
            }
        }
        // Whatever was asked ends, and a pool never holds more than it has.
        for _ in 0..4000 {
            if engine.is_idle() {
                break;
            }
            listener.hear(engine.step().events);
        }
        prop_assert!(engine.is_idle());
        listener.hear(engine.flush());
        listener.agrees_with(&engine.truth());
        prop_assert!(engine.cache().used_count() < usize::try_from(blocks).unwrap());
    }
}
