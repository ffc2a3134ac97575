//! The replicas of a model, each found by its slot and all of them gone through by their keys.

use std::{collections::BTreeMap, sync::Arc};

use super::{Published, ReplicaSlot, replica::Entry, weighing::Weights};

/// One replica, and the version of its data that readers see.
pub(super) struct Member {
    pub(super) entry: Arc<Entry>,
    pub(super) column: u32,
    pub(super) published: Published,
    pub(super) weights: Weights,
    /// A writer died half-way through a batch: the column is not a version of anything.
    pub(super) faulted: bool,
}

#[derive(Default)]
pub(super) struct Members {
    /// By the replicas' keys, as answers list them.
    list: Vec<(ReplicaSlot, Member)>,
    numbers: BTreeMap<ReplicaSlot, usize>,
}

impl Members {
    pub(super) fn get(&self, slot: ReplicaSlot) -> Option<&Member> {
        self.at(self.number(slot)?)
    }

    pub(super) fn get_mut(&mut self, slot: ReplicaSlot) -> Option<&mut Member> {
        self.at_mut(self.number(slot)?)
    }

    /// A member's number in the order of the keys.
    pub(super) fn number(&self, slot: ReplicaSlot) -> Option<usize> {
        self.numbers.get(&slot).copied()
    }

    pub(super) fn at_mut(&mut self, number: usize) -> Option<&mut Member> {
        self.list.get_mut(number).map(|(_, member)| member)
    }

    /// The member of that number in the order of the keys.
    pub(super) fn at(&self, number: usize) -> Option<&Member> {
        self.list.get(number).map(|(_, member)| member)
    }

    /// Adds one that is not there; returns its number. Those behind have other numbers then.
    pub(super) fn add(&mut self, slot: ReplicaSlot, member: Member) -> usize {
        let number = self.list.partition_point(|(_, other)| other.entry.key < member.entry.key);
        self.list.insert(number, (slot, member));
        self.count();
        number
    }

    pub(super) fn remove(&mut self, slot: ReplicaSlot) -> Option<Member> {
        let number = self.numbers.remove(&slot)?;
        let (_, member) = self.list.remove(number);
        self.count();
        Some(member)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.list.iter().map(|(_, member)| member)
    }

    pub(super) fn slots(&self) -> Vec<ReplicaSlot> {
        self.list.iter().map(|(slot, _)| *slot).collect()
    }

    fn count(&mut self) {
        self.numbers =
            self.list.iter().zip(0..).map(|((slot, _), number)| (*slot, number)).collect();
    }
}
