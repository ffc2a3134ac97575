//! A map under keys that are hashes already.

use super::table::{Entry, Table};

/// Values by 64-bit hashes that engines gave. The keys are mixed once more, so that one engine's
/// poor hashes do not share their places; an engine that *wants* its keys to collide slows down its
/// own replica and nothing else.
///
/// What comes out depends on the state alone, never on where an entry happens to lie: there is no
/// walk but in the order of the keys, and sums.
pub(crate) type Keyed<V> = Table<(u64, V)>;

impl<V> Entry for (u64, V) {
    type Key = u64;

    fn key(&self) -> u64 {
        self.0
    }

    fn hash(key: u64) -> u64 {
        spread(key)
    }
}

impl<V> Keyed<V> {
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.find(key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find_mut(key).map(|(_, value)| value)
    }

    /// Puts the value in the place of the key's old one, which comes back.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        self.put((key, value)).map(|(_, value)| value)
    }

    /// All keys, smallest first.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// The sum of what `part` says of each entry; a sum does not depend on their order.
    pub(crate) fn sum(&self, part: impl Fn(&V) -> u64) -> u64 {
        self.iter().map(|(_, value)| part(value)).sum()
    }

    /// Whether `of` is true of each entry; that does not depend on their order either.
    pub(crate) fn all(&self, of: impl Fn(u64, &V) -> bool) -> bool {
        self.iter().all(|(key, value)| of(*key, value))
    }
}

impl<V: PartialEq> PartialEq for Keyed<V> {
    fn eq(&self, other: &Keyed<V>) -> bool {
        self.len() == other.len() && self.all(|key, value| other.get(key) == Some(value))
    }
}

impl<V: Eq> Eq for Keyed<V> {}

/// Each bit of the key moves all bits above it: enough where the high ones choose the place.
pub(crate) fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

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
        let mut keyed = Keyed::<u64>::default();
        for key in [u64::MAX, 0, 1 << 63, 7] {
            assert_eq!(keyed.insert(key, key ^ 1), None);
        }
        assert_eq!(keyed.insert(7, 70), Some(6));
        assert_eq!(keyed.keys(), [0, 7, 1 << 63, u64::MAX]);
        let removed = keyed.remove(0);
        assert_eq!((removed, keyed.get(0), keyed.get(7)), (Some((0, 1)), None, Some(&70)));
        let mut other = keyed.clone();
        assert!(keyed == other);
        other.insert(7, 71);
        assert!(keyed != other);
    }
}
