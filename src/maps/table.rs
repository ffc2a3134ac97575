//! A hash table in which a look-up waits for memory once.
//!
//! All entries lie in the order of their hashes, each where its hash says or a few slots behind, so
//! that a look-up ends at the first one with a larger hash. Other tables keep a list of tags beside
//! their entries; a look-up in a large one waits twice.

use std::{hint::black_box, iter::repeat_with, mem};

/// The fewest places of a table that has any.
const HOMES_MIN: usize = 8;

/// Places behind the last home, and how many come at once where they are taken: a list that grows
/// by itself would double.
const SPARE: usize = 16;

/// What has its key in it.
pub(crate) trait Entry {
    type Key: Copy + Eq;

    fn key(&self) -> Self::Key;

    /// The key, spread over all bits: the high ones choose the place. It is computed again for
    /// each entry that a look-up comes by.
    fn hash(key: Self::Key) -> u64;
}

/// Entries by their keys. At most three in four places are taken, and a table that grows does so by
/// half: memory for entries that never come would cost as much as the waiting that it spares.
#[derive(Clone)]
pub(crate) struct Table<E> {
    /// One for each home, and some behind for what the last ones push on.
    slots: Vec<Slot<E>>,
    homes: usize,
    len: usize,
}

/// Aligned, so that the entries of view and index, which have 32 bytes, lie in one line of a
/// processor's cache each.
#[derive(Clone)]
#[repr(align(32))]
struct Slot<E>(Option<E>);

impl<E> Default for Table<E> {
    fn default() -> Table<E> {
        Table { slots: Vec::new(), homes: 0, len: 0 }
    }
}

impl<E: Entry> Table<E> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the key's slot; without such an entry, of the slot where it belongs. Both hold
    /// until something is put in or taken out.
    pub(crate) fn seek(&self, key: E::Key) -> Result<usize, usize> {
        let hash = E::hash(key);
        let mut at = self.home(hash);
        while let Some(entry) = self.at(at) {
            if entry.key() == key {
                return Ok(at);
            }
            if E::hash(entry.key()) > hash {
                break;
            }
            at += 1;
        }
        Err(at)
    }

    pub(crate) fn find(&self, key: E::Key) -> Option<&E> {
        self.at(self.seek(key).ok()?)
    }

    pub(crate) fn find_mut(&mut self, key: E::Key) -> Option<&mut E> {
        let at = self.seek(key).ok()?;
        self.at_mut(at)
    }

    pub(crate) fn at(&self, slot: usize) -> Option<&E> {
        self.slots.get(slot)?.0.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut E> {
        self.slots.get_mut(slot)?.0.as_mut()
    }

    /// Makes room for so many more entries.
    pub(crate) fn reserve(&mut self, more: usize) {
        if (self.len + more) * 4 > self.homes * 3 {
            self.grow((self.len + more) * 4 / 3 + 1);
        }
    }

    /// Puts an entry into the slot that [`Table::seek`] found for it, in room that is reserved.
    /// What lies there moves on.
    pub(crate) fn fill(&mut self, mut slot: usize, entry: E) {
        self.len += 1;
        if let Some(Slot(free @ None)) = self.slots.get_mut(slot) {
            *free = Some(entry); // nearly always
            return;
        }
        let mut moving = Some(entry);
        while moving.is_some() {
            match self.slots.get_mut(slot) {
                Some(Slot(held)) => mem::swap(held, &mut moving),
                None => push(&mut self.slots, moving.take()),
            }
            slot += 1;
        }
    }

    /// Puts an entry in the place of its key's old one, which comes back.
    pub(crate) fn put(&mut self, entry: E) -> Option<E> {
        self.reserve(1);
        match self.seek(entry.key()) {
            Ok(at) => self.slots[at].0.replace(entry),
            Err(at) => {
                self.fill(at, entry);
                None
            }
        }
    }

    /// Takes the entry in a slot out. What lies behind it and not at home moves back.
    pub(crate) fn take(&mut self, mut slot: usize) -> Option<E> {
        let taken = self.slots.get_mut(slot)?.0.take()?;
        self.len -= 1;
        while let Some(next) = self.at(slot + 1)
            && self.home(E::hash(next.key())) <= slot
        {
            self.slots.swap(slot, slot + 1);
            slot += 1;
        }
        Some(taken)
    }

    pub(crate) fn remove(&mut self, key: E::Key) -> Option<E> {
        self.take(self.seek(key).ok()?)
    }

    /// In no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.slots.iter().filter_map(|slot| slot.0.as_ref())
    }

    /// Brings the places of some keys close to the processor, all at once: looked up one after the
    /// other, each would be waited for. It changes nothing.
    pub(crate) fn warm(&self, keys: impl Iterator<Item = E::Key>) {
        let is_taken = |key: &E::Key| self.at(self.home(E::hash(*key))).is_some();
        black_box(keys.filter(is_taken).count());
    }

    fn home(&self, hash: u64) -> usize {
        let homes = u128::try_from(self.homes).unwrap_or(0);
        usize::try_from((u128::from(hash) * homes) >> 64).unwrap_or(0)
    }

    // Entries keep their order, so that both lists are gone through from front to back.
    fn grow(&mut self, homes_min: usize) {
        self.homes = (self.homes + self.homes / 2).max(homes_min).max(HOMES_MIN);
        let mut wider = Vec::with_capacity(self.homes + SPARE);
        wider.extend(repeat_with(|| Slot(None)).take(self.homes));
        let mut next = 0;
        let old = mem::replace(&mut self.slots, wider);
        for entry in old.into_iter().filter_map(|slot| slot.0) {
            let at = self.home(E::hash(entry.key())).max(next);
            match self.slots.get_mut(at) {
                Some(slot) => slot.0 = Some(entry),
                None => push(&mut self.slots, Some(entry)),
            }
            next = at + 1;
        }
    }
}

fn push<E>(slots: &mut Vec<Slot<E>>, entry: Option<E>) {
    if slots.len() == slots.capacity() {
        slots.reserve_exact(SPARE);
    }
    slots.push(Slot(entry));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::maps::keyed::spread;

    /// A key whose hash a test chooses: those of one hash have one place.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Pair((u8, u8), u32);

    impl Entry for Pair {
        type Key = (u8, u8);

        fn key(&self) -> (u8, u8) {
            self.0
        }

        fn hash((place, _): (u8, u8)) -> u64 {
            u64::from(place) << 56
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds_however_places_collide(
            steps in prop::collection::vec((0..6_u8, 0..8_u8, 0..3_u8, any::<u32>()), 1..300)
        ) {
            let (mut table, mut map) = (Table::<Pair>::default(), BTreeMap::new());
            for (place, other, what, value) in steps {
                // At the beginning and the end of the list, so that places go round.
                let key = (if place < 3 { place } else { 250 + place }, other);
                match what {
                    0 => prop_assert_eq!(table.remove(key).map(|it| it.1), map.remove(&key)),
                    _ => prop_assert_eq!(
                        table.put(Pair(key, value)).map(|it| it.1),
                        map.insert(key, value)
                    ),
                }
                prop_assert_eq!(table.len(), map.len());
                for (key, value) in &map {
                    prop_assert_eq!(table.find(*key).map(|it| it.1), Some(*value));
                }
                prop_assert_eq!(table.iter().count(), map.len());
                prop_assert_eq!(table.find((9, 0)), None);
            }
        }
    }

    #[test]
    fn a_look_up_is_short_however_full_the_table_is() {
        let mut keyed = crate::maps::keyed::Keyed::<()>::default();
        for key in 0..100_000 {
            keyed.insert(key * 16, ());
        }
        let far = |key: u64| keyed.seek(key * 16).unwrap() - keyed.home(spread(key * 16));
        let total: usize = (0..100_000).map(far).sum();
        assert!(total < 200_000, "{total} slots beside their homes");
    }

    #[test]
    fn what_the_last_home_pushes_on_costs_some_places_and_not_as_many_again() {
        let mut table = Table::<Pair>::default();
        for number in 0..200 {
            table.put(Pair((255, number), 0));
            let (len, places) = (table.len(), table.slots.capacity());
            assert!(places <= table.homes + len + SPARE, "{places} places for {len}");
        }
        let mut keyed = crate::maps::keyed::Keyed::<()>::default();
        for key in 0..100_000 {
            keyed.insert(key, ());
            let (homes, places) = (keyed.homes, keyed.slots.capacity());
            assert!(places <= homes + 4 * SPARE, "{places} places, {homes} homes");
        }
    }
}
