//! PURE. A paged prefix cache as vLLM's: one bounded pool, lazy LRU eviction, physical copies,
//! groups.
//!
//! A block stays cached after its request ends, until the allocator reuses it: then one removal is
//! announced. Blocks of a request are freed tail first, so a chain loses its end before its start.
//! Two requests that compute the same block hold two copies, and each is stored and removed.

mod announce;

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{ClearCause, Cleared, Event, Removed, Scope, Tier};

use self::announce::device;
use super::{
    hash::{Hash, whole},
    host::Host,
    sequence::Sequence,
};

/// The shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Blocks of the pool; the first is the null block, which never holds anything.
    pub blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Window in tokens of a second, sliding group, which then comes first.
    pub window: Option<u32>,
    /// Blocks of the host tier; 0 = none.
    pub host_blocks: u32,
    /// Host events say 0 for the block size.
    pub host_block_size_is_zero: bool,
    /// Host events name the group.
    pub host_group: bool,
}

/// The pool has no block left that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where a block is resident, and how often.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resident {
    /// The block.
    pub hash: Hash,
    /// Its tier.
    pub tier: Tier,
    /// Its group; none in a host tier that names none.
    pub group: Option<u32>,
    /// Physical copies.
    pub count: u32,
}

/// One replica's cache.
#[derive(Clone, Debug)]
pub struct Cache {
    settings: CacheSettings,
    blocks: Vec<Block>,
    /// Blocks that nobody uses, by when they became so.
    free: BTreeMap<u64, usize>,
    cached: BTreeMap<(usize, Hash), BTreeSet<usize>>,
    stamp: u64,
    host: Host,
    events: Vec<Event>,
    host_events: Vec<Event>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    key: Option<(usize, Hash)>,
    users: u32,
    freed_at: u64,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: CacheSettings) -> Cache {
        let count = usize::try_from(settings.blocks).unwrap_or(usize::MAX);
        let mut cache = Cache {
            settings,
            blocks: vec![Block::default(); count],
            free: BTreeMap::new(),
            cached: BTreeMap::new(),
            stamp: 0,
            host: Host::new(settings.host_blocks),
            events: Vec::new(),
            host_events: Vec::new(),
        };
        (1..count).for_each(|id| cache.set_free(id));
        cache
    }

    /// Its shape.
    pub fn settings(&self) -> &CacheSettings {
        &self.settings
    }

    /// Device blocks in use or cached, the null block not counted.
    pub fn used_count(&self) -> usize {
        self.blocks.iter().filter(|block| block.users > 0 || block.key.is_some()).count()
    }

    /// Whether a sequence of that length could ever run.
    pub fn fits(&self, len: usize) -> bool {
        // A window may touch one block more on the way than at the end.
        let windows = self.group_count() - 1;
        self.needed(&vec![Vec::new(); self.group_count()], len) + windows < self.blocks.len()
    }

    /// Takes what is cached of the sequence and allocates the rest. Returns how many tokens were a
    /// hit.
    pub fn admit(&mut self, sequence: &mut Sequence) -> Result<usize, Full> {
        let size = self.block_size();
        // The last token is always computed: its output is what the request is for.
        let hashes = &sequence.hashes()[..sequence.len().saturating_sub(1) / size];
        let hits = self.hit_count(hashes);
        let loaded = hashes[hits..].iter().take_while(|hash| self.host.contains(hash)).count();
        let tables: Vec<Vec<Option<usize>>> = (0..self.group_count())
            .map(|group| {
                let first = self.first_needed(group, hits);
                let find = |(index, hash): (usize, &Hash)| {
                    let used = index >= first && self.is_kept(group, index, sequence.len());
                    used.then(|| self.find(group, hash)).flatten()
                };
                hashes[..hits].iter().enumerate().map(find).collect()
            })
            .collect();
        let ids: BTreeSet<usize> = tables.iter().flatten().flatten().copied().collect();
        let taken = ids.iter().filter(|id| self.blocks[**id].users == 0).count();
        let needed = self.needed(&tables, sequence.len());
        if self.free.len() < taken + needed {
            return Err(Full);
        }
        tables.iter().flatten().flatten().for_each(|id| self.take(*id));
        self.host.touch(&hashes[..hits + loaded]);
        sequence.registered = hits;
        sequence.tables = tables;
        let grown = self.grow(sequence);
        debug_assert_eq!(grown, Ok(()), "there was room");
        Ok((hits + loaded) * size)
    }

    /// Makes room for all tokens of the sequence and registers its full blocks.
    pub fn grow(&mut self, sequence: &mut Sequence) -> Result<(), Full> {
        let len = sequence.len();
        let mut tables = std::mem::take(&mut sequence.tables);
        self.slide(&mut tables, len);
        let enough = self.free.len() >= self.needed(&tables, len);
        if enough {
            for (group, table) in tables.iter_mut().enumerate() {
                for index in table.len()..len.div_ceil(self.block_size()) {
                    let id = self.is_kept(group, index, len).then(|| self.allocate()).flatten();
                    table.push(id);
                }
            }
        }
        sequence.tables = tables;
        if !enough {
            return Err(Full);
        }
        self.register(sequence);
        Ok(())
    }

    /// Frees the sequence's blocks, tail first. They stay cached.
    pub fn release(&mut self, sequence: &mut Sequence) {
        for table in std::mem::take(&mut sequence.tables) {
            table.into_iter().rev().flatten().for_each(|id| self.give_back(id));
        }
        sequence.registered = 0;
    }

    /// Empties the device tier, if nobody uses it. The host tier stays, as by the engine's default.
    pub fn clear(&mut self) -> bool {
        if self.free.len() + 1 < self.blocks.len() {
            return false;
        }
        self.blocks.iter_mut().for_each(|block| block.key = None);
        self.cached.clear();
        let scope = Scope::Tiers(vec![Tier::Device]);
        self.events.push(Event::Cleared(Cleared { scope, cause: ClearCause::Engine }));
        true
    }

    /// Everything that happened since the last call, the host tier's events last.
    pub fn take_events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        events.append(&mut self.host_events);
        events
    }

    /// Whether something happened that was not taken yet.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.host_events.is_empty()
    }

    /// What is really resident.
    pub fn truth(&self) -> Vec<Resident> {
        let device = self.cached.iter().map(|((group, hash), ids)| Resident {
            hash: *hash,
            tier: Tier::Device,
            group: u32::try_from(*group).ok(),
            count: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        });
        let group = self.host_group();
        let host = self.host.hashes().map(|hash| Resident {
            hash: *hash,
            tier: Tier::Host,
            group,
            count: 1,
        });
        device.chain(host).collect()
    }

    // === lookup ===

    fn block_size(&self) -> usize {
        usize::try_from(self.settings.block_size).unwrap_or(usize::MAX).max(1)
    }

    fn group_count(&self) -> usize {
        if self.settings.window.is_some() { 2 } else { 1 }
    }

    fn is_sliding(&self, group: usize) -> Option<usize> {
        let window = self.settings.window.filter(|_| group == 0)?;
        usize::try_from(window).ok()
    }

    fn find(&self, group: usize, hash: &Hash) -> Option<usize> {
        self.cached.get(&(group, *hash))?.first().copied()
    }

    /// How many leading blocks every group can serve.
    fn hit_count(&self, hashes: &[Hash]) -> usize {
        let full = self.group_count() - 1;
        let whole = hashes.iter().take_while(|hash| self.find(full, hash).is_some()).count();
        let served = |hits: &usize| {
            let needed = &hashes[self.first_needed(0, *hits)..*hits];
            needed.iter().all(|hash| self.find(0, hash).is_some())
        };
        (1..=whole).rev().find(served).unwrap_or(0)
    }

    /// The first block that a group needs to go on after `hits` blocks.
    fn first_needed(&self, group: usize, hits: usize) -> usize {
        let size = self.block_size();
        let needed = |window: usize| window.saturating_sub(1).div_ceil(size);
        self.is_sliding(group).map_or(0, |window| hits.saturating_sub(needed(window)))
    }

    /// Whether a group keeps the block of a sequence that is `len` long.
    fn is_kept(&self, group: usize, index: usize, len: usize) -> bool {
        let end = (index + 1) * self.block_size();
        self.is_sliding(group).is_none_or(|window| end + window > len)
    }

    fn needed(&self, tables: &[Vec<Option<usize>>], len: usize) -> usize {
        let blocks = len.div_ceil(self.block_size());
        let in_group = |(group, table): (usize, &Vec<_>)| {
            (table.len()..blocks).filter(|index| self.is_kept(group, *index, len)).count()
        };
        tables.iter().enumerate().map(in_group).sum()
    }

    // === the pool ===

    fn set_free(&mut self, id: usize) {
        self.stamp += 1;
        self.blocks[id].freed_at = self.stamp;
        self.free.insert(self.stamp, id);
    }

    fn take(&mut self, id: usize) {
        if self.blocks[id].users == 0 {
            self.free.remove(&self.blocks[id].freed_at);
        }
        self.blocks[id].users += 1;
    }

    fn give_back(&mut self, id: usize) {
        self.blocks[id].users -= 1;
        if self.blocks[id].users == 0 {
            self.set_free(id);
        }
    }

    /// The block that nobody used for the longest time. What it held is gone with it.
    fn allocate(&mut self) -> Option<usize> {
        let (_, id) = self.free.pop_first()?;
        self.blocks[id].users = 1;
        if let Some(key) = self.blocks[id].key.take() {
            if let Some(copies) = self.cached.get_mut(&key) {
                copies.remove(&id);
                if copies.is_empty() {
                    self.cached.remove(&key);
                }
            }
            let place = device(self.group(key.0, false));
            let hashes = vec![whole(&key.1)];
            self.events.push(Event::Removed(Removed { hashes, place }));
        }
        Some(id)
    }

    /// Gives back what has left the window.
    fn slide(&mut self, tables: &mut [Vec<Option<usize>>], len: usize) {
        for (group, table) in tables.iter_mut().enumerate() {
            for index in (0..table.len()).rev() {
                if !self.is_kept(group, index, len)
                    && let Some(id) = table[index].take()
                {
                    self.give_back(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
