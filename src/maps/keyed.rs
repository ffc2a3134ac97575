//! A map under keys that are hashes already.

use std::hint::black_box;

use hashbrown::{HashTable, hash_table};

/// Values by 64-bit hashes that engines gave. The keys are mixed once more, so that one engine's
/// poor hashes do not share their places; an engine that *wants* its keys to collide slows down its
/// own replica and nothing else.
///
/// What comes out depends on the state alone, never on where an entry happens to lie: there is no
/// walk but in the order of the keys, and sums.
#[derive(Clone)]
pub(crate) struct Keyed<V>(HashTable<(u64, V)>);

impl<V> Default for Keyed<V> {
    fn default() -> Keyed<V> {
        Keyed(HashTable::new())
    }
}

/// Where a key's value is, or would be.
pub(crate) type Place<'a, V> = hash_table::Entry<'a, (u64, V)>;

impl<V> Keyed<V> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.0.find(mix(key), |(held, _)| *held == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.0.find_mut(mix(key), |(held, _)| *held == key).map(|(_, value)| value)
    }

    /// Brings what is known of some keys close to the processor, all at once: asked one after the
    /// other, each would be waited for. It changes nothing.
    pub(crate) fn warm(&self, keys: impl Iterator<Item = u64>) {
        black_box(keys.filter(|key| self.get(*key).is_some()).count());
    }

    /// The key's place, looked up once for all that is done with it.
    pub(crate) fn place(&mut self, key: u64) -> Place<'_, V> {
        self.0.entry(mix(key), |(held, _)| *held == key, |(held, _)| mix(*held))
    }

    /// The key's entry, if there is one.
    pub(crate) fn held(&mut self, key: u64) -> Option<hash_table::OccupiedEntry<'_, (u64, V)>> {
        self.0.find_entry(mix(key), |(held, _)| *held == key).ok()
    }

    /// Puts the value in the place of the key's old one, which comes back.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        match self.place(key) {
            Place::Occupied(mut held) => Some(std::mem::replace(&mut held.get_mut().1, value)),
            Place::Vacant(place) => {
                place.insert((key, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let ((_, value), _) = self.held(key)?.remove();
        Some(value)
    }

    /// All keys, smallest first.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.0.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// The sum of what `part` says of each entry; a sum does not depend on their order.
    pub(crate) fn sum(&self, part: impl Fn(&V) -> u64) -> u64 {
        self.0.iter().map(|(_, value)| part(value)).sum()
    }

    /// Whether `of` is true of each entry; that does not depend on their order either.
    pub(crate) fn all(&self, of: impl Fn(u64, &V) -> bool) -> bool {
        self.0.iter().all(|(key, value)| of(*key, value))
    }
}

impl<V: PartialEq> PartialEq for Keyed<V> {
    fn eq(&self, other: &Keyed<V>) -> bool {
        self.len() == other.len() && self.all(|key, value| other.get(key) == Some(value))
    }
}

impl<V: Eq> Eq for Keyed<V> {}

/// Both halves of a product: each bit of the key moves bits at both ends, which choose the place.
pub(crate) fn mix(key: u64) -> u64 {
    let product = u128::from(key) * 0x9E37_79B9_7F4A_7C15;
    let halves = [product >> 64, product & u128::from(u64::MAX)];
    halves.into_iter().fold(0, |mixed, half| mixed ^ u64::try_from(half).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_and_values_are_found_replaced_and_removed() {
        let mut keyed = Keyed::default();
        for key in [u64::MAX, 0, 1 << 63, 7] {
            assert_eq!(keyed.insert(key, key ^ 1), None);
        }
        assert_eq!(keyed.insert(7, 70), Some(6));
        assert_eq!(keyed.keys(), [0, 7, 1 << 63, u64::MAX]);
        assert_eq!((keyed.remove(0), keyed.get(0), keyed.get(7)), (Some(1), None, Some(&70)));
        let mut other = keyed.clone();
        assert!(keyed == other);
        other.insert(7, 71);
        assert!(keyed != other);
    }
}
