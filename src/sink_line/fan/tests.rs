//! What consumers fold is what is held, whatever happens between two requests.

use std::collections::BTreeMap;

use kvbridge_schemas::TierTrust;

use super::*;
use crate::view::{LinkParent, NodeId};

const SETTINGS: FanSettings = FanSettings {
    tokens: true,
    grace_ms: 100,
    steps_max: 8,
    consumers_max: 2,
    idle_ms: 1000,
    answer_blocks_max: 3,
};

fn fan(settings: FanSettings) -> Fan {
    Fan::new(settings, Tick(0))
}

fn described(token: u32) -> Arc<Described> {
    let tokens = Tokens(vec![token]);
    Arc::new(Described { tokens, lora: None, lora_id: None, salt: None, extra: Vec::new() })
}

fn node(key: u64) -> NodeId {
    NodeId { key, block_size: 1 }
}

fn linked(key: u64, parent: Option<u64>, tier: Tier) -> Change {
    Change::Linked {
        node: node(key),
        parent: parent.map_or(LinkParent::Root(0), |parent| LinkParent::Block(node(parent))),
        tier,
        described: Some(described(u32::try_from(key).unwrap())),
    }
}

fn unlinked(key: u64) -> Change {
    Change::Unlinked { node: node(key), tier: Tier::Device }
}

fn tell(fan: &mut Fan, now: u64, whole: bool, changes: &[Change], trust: Trust) {
    fan.told(Tick(now), Told { whole, changes, trust: TierTrust::all(trust) });
}

/// What a consumer makes of its events, and how many it had.
#[derive(Default)]
struct Folded {
    blocks: BTreeMap<u64, (Option<u64>, Tier)>,
    events: u64,
}

impl Folded {
    /// Asks until there is no more. Every event fits what came before it.
    fn read(&mut self, fan: &mut Fan, now: u64, name: &str) {
        loop {
            let answer = fan.take_events(Tick(now), name).unwrap();
            assert_eq!(answer.first_id, self.events, "a hole in the numbers");
            self.events += u64::try_from(answer.events.len()).unwrap();
            answer.events.into_iter().for_each(|event| self.fold(event));
            if !answer.more {
                return;
            }
        }
    }

    fn fold(&mut self, event: FanEvent) {
        match event {
            FanEvent::Created => assert!(self.blocks.is_empty()),
            FanEvent::Stored { mut parent, tier, blocks } => {
                for (key, _) in blocks {
                    assert!(parent.is_none_or(|it| self.blocks.contains_key(&it)), "no place");
                    assert!(self.blocks.insert(key, (parent, tier.clone())).is_none(), "twice");
                    parent = Some(key);
                }
            }
            FanEvent::Moved { key, from, to } => {
                let block = self.blocks.get_mut(&key).expect("known");
                assert_eq!(std::mem::replace(&mut block.1, to), from);
            }
            FanEvent::Removed(keys) => {
                for key in keys {
                    let has_child = |(parent, _): &(Option<u64>, Tier)| *parent == Some(key);
                    assert!(!self.blocks.values().any(has_child), "removed before its child");
                    assert!(self.blocks.remove(&key).is_some(), "not known");
                }
            }
        }
    }

    fn keys(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }
}

#[test]
fn the_first_answer_begins_with_created_and_has_the_whole_view() {
    let mut fan = fan(FanSettings { answer_blocks_max: 100, ..SETTINGS });
    let chain = [linked(3, Some(2), Tier::Host), linked(1, None, Tier::Device)];
    tell(&mut fan, 0, true, &chain, Trust::Exact);
    tell(&mut fan, 0, false, &[linked(2, Some(1), Tier::Device)], Trust::Exact);
    let answer = fan.take_events(Tick(1), "a").unwrap();
    let block = |key: u32| (u64::from(key), described(key));
    let stored = |parent, tier, blocks| FanEvent::Stored { parent, tier, blocks };
    let wanted = [
        FanEvent::Created,
        stored(None, Tier::Device, vec![block(1), block(2)]),
        stored(Some(2), Tier::Host, vec![block(3)]),
    ];
    assert_eq!((answer.first_id, answer.events.as_slice(), answer.more), (0, &wanted[..], false));
    let again = fan.take_events(Tick(2), "a").unwrap();
    assert_eq!((again.first_id, again.events.len()), (3, 0));
    // Another one is told the same, from its own 0 on.
    assert_eq!(fan.take_events(Tick(3), "b").unwrap(), answer);
    assert_eq!(fan.take_events(Tick(3), "c"), Err(FanRefusal::TooManyConsumers));
}

#[test]
fn a_block_in_two_tiers_moves_and_one_in_none_goes() {
    let mut fan = fan(SETTINGS);
    let both = [linked(1, None, Tier::Device), linked(1, None, Tier::Host)];
    tell(&mut fan, 0, true, &both, Trust::Exact);
    let mut folded = Folded::default();
    folded.read(&mut fan, 1, "a");
    assert_eq!(folded.blocks[&1].1, Tier::Device);
    tell(&mut fan, 2, false, &[unlinked(1)], Trust::Exact);
    folded.read(&mut fan, 3, "a");
    assert_eq!(folded.blocks[&1].1, Tier::Host);
    let gone = Change::Unlinked { node: node(1), tier: Tier::Host };
    tell(&mut fan, 4, false, &[gone], Trust::Exact);
    folded.read(&mut fan, 5, "a");
    assert!(folded.keys().is_empty());
}

#[test]
fn after_a_resync_only_the_difference_is_told_and_without_trust_all_goes() {
    let mut fan = fan(FanSettings { steps_max: 100, ..SETTINGS });
    let of =
        |keys: &[u64]| keys.iter().map(|key| linked(*key, None, Tier::Device)).collect::<Vec<_>>();
    tell(&mut fan, 0, true, &of(&[1, 2, 3]), Trust::Exact);
    let mut folded = Folded::default();
    folded.read(&mut fan, 1, "a");
    tell(&mut fan, 2, false, &[Change::Cleared], Trust::None);
    folded.read(&mut fan, 3, "a");
    assert_eq!(folded.keys(), [1, 2, 3], "within the grace nothing is taken back");
    let before = folded.events;
    tell(&mut fan, 4, false, &of(&[2, 3, 4]), Trust::Exact);
    folded.read(&mut fan, 5, "a");
    assert_eq!((folded.keys(), folded.events - before), (vec![2, 3, 4], 2));
    tell(&mut fan, 6, false, &[], Trust::None);
    assert_eq!(fan.next_deadline(), Some(Tick(106)));
    fan.due(Tick(106));
    folded.read(&mut fan, 107, "a");
    assert!(folded.keys().is_empty());
    tell(&mut fan, 108, false, &[], Trust::LowerBound);
    folded.read(&mut fan, 109, "a");
    assert_eq!(folded.keys(), [2, 3, 4]);
    fan.end();
    folded.read(&mut fan, 110, "a");
    assert!(folded.keys().is_empty() && !fan.is_over());
    assert_eq!(fan.take_events(Tick(111), "b"), Err(FanRefusal::Gone));
    fan.due(Tick(1110));
    assert!(fan.is_over(), "forgotten");
    assert_eq!(fan.take_counts(), FanCounts { behind: 0, forgotten: 1 });
}

#[test]
fn a_consumer_that_is_too_slow_is_told_everything_again_and_others_are_not() {
    let mut fan = fan(SETTINGS);
    let (mut slow, mut quick) = (Folded::default(), Folded::default());
    tell(&mut fan, 0, true, &[linked(1, None, Tier::Device)], Trust::Exact);
    slow.read(&mut fan, 0, "slow");
    for key in 2..30 {
        let changes = [linked(key, Some(key - 1), Tier::Device)];
        tell(&mut fan, 0, false, &changes, Trust::Exact);
        quick.read(&mut fan, 0, "quick");
    }
    assert_eq!(fan.take_counts(), FanCounts { behind: 1, forgotten: 0 });
    slow.read(&mut fan, 0, "slow");
    assert_eq!(slow.keys(), quick.keys());
    assert_eq!(slow.keys(), (1..30).collect::<Vec<u64>>());
}

#[test]
fn tokens_that_are_not_known_hide_a_block_only_where_tokens_are_told() {
    let bare = Change::Linked {
        node: node(1),
        parent: LinkParent::Root(0),
        tier: Tier::Device,
        described: None,
    };
    for (tokens, blocks) in [(true, 0), (false, 1)] {
        let mut fan = fan(FanSettings { tokens, ..SETTINGS });
        tell(&mut fan, 0, true, std::slice::from_ref(&bare), Trust::Exact);
        let mut folded = Folded::default();
        folded.read(&mut fan, 1, "a");
        assert_eq!(folded.blocks.len(), blocks);
    }
}

/// A small generator; the seed is the test's.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn two_consumers_fold_what_is_held_over_anything_that_happens() {
    for seed in 0..400 {
        let (mut dice, mut fan) = (Dice(seed), fan(SETTINGS));
        let mut held = BTreeMap::<u64, Option<u64>>::new();
        let mut folded = [Folded::default(), Folded::default()];
        tell(&mut fan, 0, true, &[], Trust::Exact);
        for _ in 0..120 {
            let key = dice.roll(12) + 1;
            match dice.roll(8) {
                0..4 if !held.contains_key(&key) => {
                    let parents: Vec<u64> = held.keys().copied().collect();
                    let at = usize::try_from(dice.roll(13)).unwrap();
                    let parent = parents.get(at).copied();
                    held.insert(key, parent);
                    tell(&mut fan, 0, false, &[linked(key, parent, Tier::Device)], Trust::Exact);
                }
                0..4 => {
                    held.remove(&key);
                    tell(&mut fan, 0, false, &[unlinked(key)], Trust::Exact);
                }
                4 => {
                    let all: Vec<Change> =
                        held.iter().map(|(key, it)| linked(*key, *it, Tier::Device)).collect();
                    tell(&mut fan, 0, dice.roll(2) == 0, &[], Trust::None);
                    tell(&mut fan, 0, false, &[Change::Cleared], Trust::None);
                    tell(&mut fan, 0, true, &all, Trust::Exact);
                }
                5 => folded[0].read(&mut fan, 0, "quick"),
                6 if dice.roll(6) == 0 => folded[1].read(&mut fan, 0, "slow"),
                _ => (),
            }
        }
        for (folded, name) in folded.iter_mut().zip(["quick", "slow"]) {
            folded.read(&mut fan, 0, name);
            let shown = reachable(&held);
            assert_eq!(folded.keys(), shown, "seed {seed}, {name}");
            let parent = |key: &u64| folded.blocks[key].0;
            assert!(shown.iter().all(|key| parent(key) == held[key]), "seed {seed}, {name}");
        }
    }
}

/// Blocks with all that comes before them.
fn reachable(held: &BTreeMap<u64, Option<u64>>) -> Vec<u64> {
    let is_whole = |key: &u64| {
        let (mut at, mut steps) = (Some(*key), 0);
        while let Some(key) = at {
            steps += 1;
            match held.get(&key) {
                Some(parent) if steps < 100 => at = *parent,
                Some(_) | None => return false,
            }
        }
        true
    };
    held.keys().copied().filter(is_whole).collect()
}
