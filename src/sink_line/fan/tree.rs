//! Blocks by key with their places, in either order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kvbridge_schemas::Tier;

use crate::view::Described;

/// Where a block was told to be.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) parent: Option<u64>,
    pub(super) tier: Tier,
    pub(super) described: Arc<Described>,
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<u64, Place>);

impl Tree {
    pub(super) fn get(&self, key: u64) -> Option<&Place> {
        self.0.get(&key)
    }

    pub(super) fn insert(&mut self, key: u64, place: Place) {
        self.0.insert(key, place);
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<Place> {
        self.0.remove(&key)
    }

    /// Each block with its parent.
    pub(super) fn parents(&self) -> BTreeMap<u64, Option<u64>> {
        self.0.iter().map(|(key, place)| (*key, place.parent)).collect()
    }

    pub(super) fn parents_first(&self) -> Vec<u64> {
        parents_first(&self.parents())
    }

    pub(super) fn children_first(&self) -> Vec<u64> {
        let mut keys = self.parents_first();
        keys.reverse();
        keys
    }

    /// Of these, which come parents first, those that do not stay or whose parent does not;
    /// children first. A removal takes everything behind it along, as some consumers read it.
    pub(super) fn leaving(
        &self,
        keys: impl Iterator<Item = u64>,
        stays: impl Fn(u64, &Place) -> bool,
    ) -> Vec<u64> {
        let (mut leaving, mut order) = (BTreeSet::new(), Vec::new());
        for key in keys {
            let Some(place) = self.0.get(&key) else { continue };
            let follows = place.parent.is_some_and(|parent| leaving.contains(&parent));
            if (follows || !stays(key, place)) && leaving.insert(key) {
                order.push(key);
            }
        }
        order.reverse();
        order
    }
}

/// Keys, each after its parent if that is among them. Loops, not recursion: a chain is as long as a
/// prompt. What lies on a ring comes last, so that nothing is left out.
pub(super) fn parents_first(parents: &BTreeMap<u64, Option<u64>>) -> Vec<u64> {
    let mut children = BTreeSet::new();
    let mut order = Vec::with_capacity(parents.len());
    for (key, parent) in parents {
        match parent.filter(|parent| parents.contains_key(parent)) {
            Some(parent) => drop(children.insert((parent, *key))),
            None => order.push(*key),
        }
    }
    // Depth first, so that chains are told in one piece.
    let (mut waiting, mut done) = (std::mem::take(&mut order), BTreeSet::new());
    waiting.reverse();
    while let Some(key) = waiting.pop() {
        if done.insert(key) {
            order.push(key);
            waiting
                .extend(children.range((key, 0)..=(key, u64::MAX)).rev().map(|(_, child)| *child));
        }
    }
    order.extend(parents.keys().filter(|key| !done.contains(key)));
    order
}
