//! A map of very few entries, held as a sorted list.

/// One entry is what nearly every block has of everything. A tree map would reserve eleven at once:
/// two kilobytes per block instead of two hundred bytes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct VecMap<K, V>(Vec<(K, V)>);

impl<K: Ord, V> VecMap<K, V> {
    pub(super) fn new() -> VecMap<K, V> {
        VecMap(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().find(|(held, _)| held == key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.iter_mut().find(|(held, _)| held == key).map(|(_, value)| value)
    }

    /// Puts the value in the place of the key's old one, if it has one.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(held, _)| held.cmp(&key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.0.iter().position(|(held, _)| held == key)?;
        Some(self.0.remove(at).1)
    }

    /// In the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}
