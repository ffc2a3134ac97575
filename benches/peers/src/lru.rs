//! One worker's cache: the least recently used block goes first.

use rustc_hash::FxHashMap;

/// Blocks in the order of their use, as a ring of list places. Place 0 is where the ring begins.
pub struct Lru {
    places: FxHashMap<u64, usize>,
    keys: Vec<u64>,
    older: Vec<usize>,
    newer: Vec<usize>,
    free: Vec<usize>,
}

impl Default for Lru {
    fn default() -> Lru {
        let (places, free) = (FxHashMap::default(), Vec::new());
        Lru { places, keys: vec![0], older: vec![0], newer: vec![0], free }
    }
}

impl Lru {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn has(&self, key: u64) -> bool {
        self.places.contains_key(&key)
    }

    /// How many of `keys`, from the first on, are held.
    pub fn prefix(&self, keys: &[u64]) -> usize {
        keys.iter().take_while(|key| self.has(**key)).count()
    }

    pub fn touch(&mut self, key: u64) {
        if let Some(place) = self.places.get(&key).copied() {
            self.unlink(place);
            self.link_newest(place);
        }
    }

    /// Holds the block; `false` if it was held already.
    pub fn insert(&mut self, key: u64) -> bool {
        if self.has(key) {
            return false;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.keys.push(0);
            self.older.push(0);
            self.newer.push(0);
            self.keys.len() - 1
        });
        self.keys[place] = key;
        self.places.insert(key, place);
        self.link_newest(place);
        true
    }

    /// A request ends: its blocks go back deepest first, so that the deepest goes first.
    pub fn release(&mut self, keys: &[u64]) {
        keys.iter().rev().for_each(|key| self.touch(*key));
    }

    /// Takes out what is above `capacity`, oldest first.
    pub fn shrink(&mut self, capacity: usize) -> Vec<u64> {
        let mut gone = Vec::new();
        while self.len() > capacity {
            let place = self.newer[0];
            self.unlink(place);
            self.free.push(place);
            let key = self.keys[place];
            self.places.remove(&key);
            gone.push(key);
        }
        gone
    }

    fn unlink(&mut self, place: usize) {
        let (older, newer) = (self.older[place], self.newer[place]);
        self.newer[older] = newer;
        self.older[newer] = older;
    }

    fn link_newest(&mut self, place: usize) {
        let newest = self.older[0];
        self.older[place] = newest;
        self.newer[place] = 0;
        self.newer[newest] = place;
        self.older[0] = place;
    }
}
