//! A hash table of places: who finds what it looks for elsewhere needs no key here.
//!
//! An entry is 32 bits of a key's hash beside the number of a place that has the key. Eight of them
//! fill a line of a processor's cache, and what lies together at the places is looked at together.
//! They lie in the order of their hashes, as in [`Table`](super::table::Table).

use std::{hint::black_box, mem};

use super::keyed::spread;

/// The fewest places of a table that has any.
const HOMES_MIN: usize = 8;

/// Slots behind the last home, and how many come at once where they are taken.
const SPARE: usize = 16;

/// Numbers by tags. At most two in three homes are taken, and a table that grows does so by half.
#[derive(Clone, Default)]
pub(crate) struct Tags {
    /// A tag above a number and one; 0 is free.
    slots: Vec<u64>,
    homes: u64,
    len: usize,
}

/// What a table keeps of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) fn of(key: u64) -> Tag {
        Tag(spread(key) >> 32)
    }
}

impl Tags {
    /// The largest number that a table can hold.
    pub(crate) const NUMBER_MAX: u32 = u32::MAX - 1;

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot of the number with that tag of which `is` holds; without one, the slot where it
    /// belongs. Both hold until something is put in or taken out.
    pub(crate) fn seek(&self, tag: Tag, mut is: impl FnMut(u32) -> bool) -> Result<usize, usize> {
        let home = self.home(tag.0);
        let mut at = home;
        for slot in self.slots.get(home..).unwrap_or_default() {
            let held = slot >> 32;
            if *slot == 0 || held > tag.0 {
                break;
            }
            if held == tag.0 && number_in(*slot).is_some_and(&mut is) {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    /// Whether the home of the tag is taken.
    pub(crate) fn is_taken(&self, tag: Tag) -> bool {
        self.slots.get(self.home(tag.0)).is_some_and(|slot| *slot != 0)
    }

    /// The number in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<u32> {
        self.slots.get(slot).copied().and_then(number_in)
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        let wanted = (self.len + more) * 3;
        if wanted > usize::try_from(self.homes).unwrap_or(usize::MAX).saturating_mul(2) {
            self.grow(wanted / 2 + 1);
        }
    }

    /// Puts a number into the slot that [`Tags::seek`] found for it, in room that is reserved. What
    /// lies there moves on.
    pub(crate) fn fill(&mut self, slot: usize, tag: Tag, number: u32) {
        self.len += 1;
        let mut moving = tag.0 << 32 | (u64::from(number) + 1);
        for held in self.slots.get_mut(slot..).unwrap_or_default() {
            moving = mem::replace(held, moving);
            if moving == 0 {
                return;
            }
        }
        push(&mut self.slots, moving);
    }

    /// Takes the number in a slot out. What lies behind it and not at home moves back.
    pub(crate) fn take(&mut self, mut slot: usize) {
        if self.at(slot).is_none() {
            return;
        }
        self.len -= 1;
        while let Some(next) = self.slots.get(slot + 1).copied()
            && next != 0
            && self.home(next >> 32) <= slot
        {
            self.slots[slot] = next;
            slot += 1;
        }
        self.slots[slot] = 0;
    }

    /// Brings the slots of some keys close to the processor, all at once: looked up one after the
    /// other, each would be waited for. It changes nothing.
    pub(crate) fn warm(&self, keys: impl Iterator<Item = u64>) {
        black_box(keys.filter(|key| self.is_taken(Tag::of(*key))).count());
    }

    fn home(&self, tag: u64) -> usize {
        usize::try_from((tag * self.homes) >> 32).unwrap_or(0)
    }

    fn grow(&mut self, homes_min: usize) {
        let old_homes = usize::try_from(self.homes).unwrap_or(0);
        let homes = (old_homes + old_homes / 2).max(homes_min).max(HOMES_MIN);
        // Beyond, tags would not tell homes apart: it fills up, and look-ups take longer.
        self.homes = u64::try_from(homes).unwrap_or(0).min(1 << 32);
        let mut wider = Vec::with_capacity(homes + SPARE);
        wider.resize(homes, 0);
        let mut next = 0;
        for slot in mem::take(&mut self.slots).into_iter().filter(|slot| *slot != 0) {
            let at = self.home(slot >> 32).max(next);
            match wider.get_mut(at) {
                Some(held) => *held = slot,
                None => push(&mut wider, slot),
            }
            next = at + 1;
        }
        self.slots = wider;
    }
}

fn number_in(slot: u64) -> Option<u32> {
    let number = slot & u64::from(u32::MAX);
    u32::try_from(number.checked_sub(1)?).ok()
}

fn push(slots: &mut Vec<u64>, slot: u64) {
    if slots.len() == slots.capacity() {
        slots.reserve_exact(SPARE);
    }
    slots.push(slot);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Keys by number, and a table of the numbers whose tags a test chooses.
    fn seek(tags: &Tags, keys: &[u16], key: u16) -> Result<usize, usize> {
        tags.seek(tag(key), |number| keys.get(usize::try_from(number).unwrap()) == Some(&key))
    }

    /// Few tags, at both ends: keys of one tag have one place, and some go beyond the last.
    fn tag(key: u16) -> Tag {
        let high = u64::from(key >> 8);
        Tag(if high < 4 { high << 28 } else { u64::from(u32::MAX) - (high & 3) })
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds_however_places_collide(
            steps in prop::collection::vec((0..8_u16, 0..6_u16, 0..3_u8), 1..300)
        ) {
            let (mut tags, mut map) = (Tags::default(), BTreeMap::new());
            let mut keys = Vec::new();
            for (high, low, what) in steps {
                let key = high << 8 | low;
                let found = seek(&tags, &keys, key);
                prop_assert_eq!(found.ok().and_then(|at| tags.at(at)), map.get(&key).copied());
                match (what, found) {
                    (0, Ok(at)) => {
                        tags.take(at);
                        map.remove(&key);
                    }
                    (1 | 2, Err(_)) => {
                        let number = u32::try_from(keys.len()).unwrap();
                        keys.push(key);
                        tags.reserve(1);
                        let at = seek(&tags, &keys[..keys.len() - 1], key).unwrap_err();
                        tags.fill(at, tag(key), number);
                        map.insert(key, number);
                    }
                    _ => (),
                }
                prop_assert_eq!(tags.len(), map.len());
                for (key, number) in &map {
                    let at = seek(&tags, &keys, *key).unwrap();
                    prop_assert_eq!(tags.at(at), Some(*number));
                }
            }
        }
    }

    #[test]
    fn a_look_up_is_short_however_full_the_table_is() {
        let mut tags = Tags::default();
        let keys: Vec<u64> = (0..100_000_u64).map(|key| key * 16).collect();
        for (number, key) in keys.iter().enumerate() {
            tags.reserve(1);
            let at = tags.seek(Tag::of(*key), |_| false).unwrap_err();
            tags.fill(at, Tag::of(*key), u32::try_from(number).unwrap());
        }
        let far = |(number, key): (usize, &u64)| {
            let is = |it| usize::try_from(it) == Ok(number);
            tags.seek(Tag::of(*key), is).unwrap() - tags.home(Tag::of(*key).0)
        };
        let total: usize = keys.iter().enumerate().map(far).sum();
        assert!(total < 200_000, "{total} slots beside their homes");
        let places = tags.slots.capacity();
        assert!(places < keys.len() * 2 + 4 * SPARE, "{places} places");
    }
}
