//! A replica's blocks: those used longest ago make room, of one sequence the last one first.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

/// Names of blocks are hashes already.
#[derive(Default)]
pub struct Named(u64);

impl Hasher for Named {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("names are numbers")
    }

    fn write_u64(&mut self, name: u64) {
        // Those of a trace are counted from 0: spread them.
        self.0 = name.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

pub type Names = HashSet<u64, BuildHasherDefault<Named>>;

pub struct Pool {
    max: usize,
    /// When each block was last used.
    stamps: HashMap<u64, u64, BuildHasherDefault<Named>>,
    /// Every use, the oldest first; one whose stamp is not the block's any more is over.
    uses: VecDeque<(u64, u64)>,
    clock: u64,
}

/// What a request did to the pool.
pub struct Change {
    /// How many of its blocks were there, from the first on.
    pub held: usize,
    /// What made room for the rest.
    pub evicted: Vec<u64>,
}

impl Pool {
    pub fn new(max: usize) -> Pool {
        Pool { max, stamps: HashMap::default(), uses: VecDeque::new(), clock: 0 }
    }

    /// How many blocks of a sequence are here, from the first on.
    pub fn held(&self, blocks: &[u64]) -> usize {
        blocks.iter().take_while(|block| self.stamps.contains_key(block)).count()
    }

    /// Computes a sequence: all of it is here afterwards, if there is room at all.
    pub fn compute(&mut self, blocks: &[u64]) -> Change {
        let held = self.held(blocks);
        for block in blocks.iter().rev() {
            self.clock += 1;
            self.stamps.insert(*block, self.clock);
            self.uses.push_back((self.clock, *block));
        }
        let mut evicted = Vec::new();
        while self.stamps.len() > self.max {
            let Some((stamp, block)) = self.uses.pop_front() else { break };
            if self.stamps.get(&block) == Some(&stamp) {
                self.stamps.remove(&block);
                evicted.push(block);
            }
        }
        if self.uses.len() > 4 * self.max {
            let stamps = &self.stamps;
            self.uses.retain(|(stamp, block)| stamps.get(block) == Some(stamp));
        }
        Change { held, evicted }
    }
}
