//! PURE. What was noted lately: bounded, the oldest goes first, and nothing outlives its time.

use std::collections::BTreeMap;

use crate::recovery::Tick;

/// Entries by key, each with when it was last noted. One order serves both ends: what was noted
/// longest ago is the first to expire and the first to make room.
pub(crate) struct Recent<K, V> {
    max: usize,
    ttl_ms: u64,
    entries: BTreeMap<K, Noted<V>>,
    order: BTreeMap<u64, K>,
    noted_count: u64,
}

struct Noted<V> {
    number: u64,
    at: Tick,
    value: V,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    pub(crate) fn new(max: usize, ttl_ms: u64) -> Recent<K, V> {
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        Recent { max, ttl_ms, entries, order, noted_count: 0 }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Another bound from now on; what is above it goes with the next [`Recent::pop_old`]s.
    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Notes a value, as the newest. The caller then takes out with [`Recent::pop_old`] what has
    /// become too much: it alone knows what else goes with an entry.
    pub(crate) fn note(&mut self, now: Tick, key: K, value: V) {
        self.remove(&key);
        let number = self.noted_count;
        self.noted_count += 1;
        self.order.insert(number, key.clone());
        self.entries.insert(key, Noted { number, at: now, value });
    }

    /// The value, unless its time is over.
    pub(crate) fn get(&self, now: Tick, key: &K) -> Option<&V> {
        let noted = self.entries.get(key)?;
        self.is_alive(now, noted).then_some(&noted.value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let noted = self.entries.remove(key)?;
        self.order.remove(&noted.number);
        Some(noted.value)
    }

    /// The oldest entry, if its time is over or there are too many; `None` = all may stay.
    pub(crate) fn pop_old(&mut self, now: Tick) -> Option<(K, V)> {
        let key = self.order.first_key_value()?.1;
        let noted = self.entries.get(key)?;
        if self.entries.len() <= self.max && self.is_alive(now, noted) {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        let noted = self.entries.remove(&key)?;
        Some((key, noted.value))
    }

    fn is_alive(&self, now: Tick, noted: &Noted<V>) -> bool {
        now.0.saturating_sub(noted.at.0) < self.ttl_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_nothing_outlives_its_time() {
        let mut recent = Recent::new(2, 100);
        for (at, key) in [(0, 'a'), (10, 'b'), (20, 'a'), (30, 'c')] {
            recent.note(Tick(at), key, at);
        }
        assert_eq!(recent.pop_old(Tick(30)), Some(('b', 10)), "a was noted again");
        assert_eq!(recent.pop_old(Tick(30)), None);
        assert_eq!(recent.get(Tick(119), &'a'), Some(&20));
        assert_eq!(recent.get(Tick(120), &'a'), None);
        assert_eq!(recent.pop_old(Tick(120)), Some(('a', 20)));
        assert_eq!((recent.pop_old(Tick(129)), recent.len()), (None, 1));
        assert_eq!((recent.remove(&'c'), recent.pop_old(Tick(500))), (Some(30), None));
    }
}
