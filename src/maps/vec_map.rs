//! A map of very few entries, held as a sorted list.

/// One entry is what nearly every block has of everything. A tree map would reserve eleven at once:
/// two kilobytes per block instead of two hundred bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VecMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for VecMap<K, V> {
    fn default() -> VecMap<K, V> {
        VecMap(Vec::new())
    }
}

impl<K: Ord, V> VecMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().find(|(held, _)| held == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.iter_mut().find(|(held, _)| held == key).map(|(_, value)| value)
    }

    /// Puts the value in the place of the key's old one, if it has one.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(held, _)| held.cmp(&key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (key, value));
            }
        }
    }

    /// The value under the key, the default one if there was none.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let found = match self.0.as_slice() {
            [(only, _)] if *only == key => Ok(0), // nearly always
            all => all.binary_search_by(|(held, _)| held.cmp(&key)),
        };
        let at = found.unwrap_or_else(|at| {
            self.0.reserve_exact(1);
            self.0.insert(at, (key, V::default()));
            at
        });
        &mut self.0[at].1
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.0.iter().position(|(held, _)| held == key)?;
        Some(self.0.remove(at).1)
    }

    /// In the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}
