//! PURE. A prefix cache as SGLang's: a tree of pages, one for each namespace, in one bounded pool.
//!
//! A page is held once for each namespace; equal pages that two requests compute at once become
//! one. Pages that nobody uses stay, until room is needed: then leaves go, the longest unused
//! first, and what goes together is announced together. Adapter and `extra_key` keep trees apart
//! and are not in the hashes, so that one hash may stand in several of them. A host tier, where
//! there is one, is written when a page is stored and read back when the device lacks it.

pub mod encode;
pub mod hash;
pub mod mirror;
pub mod release;

use std::{collections::BTreeMap, ops::Range};

use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, Parent, Place, Removed, Scope, Stored, StoredBlock,
    Tier, Tokens,
};

use super::{
    cache::{Full, Resident},
    hash::{Hash, whole},
    host::Host,
    sequence::Sequence,
};

/// The shape of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RadixSettings {
    /// Pages of the pool.
    pub pages: u32,
    /// Tokens per page.
    pub page_size: u32,
    /// Pages of the host tier; 0 = none.
    pub host_pages: u32,
}

/// Adapter, salt, and the page's hash.
type Key = (Option<String>, Option<String>, Hash);

/// One replica's cache.
#[derive(Clone, Debug)]
pub struct Radix {
    settings: RadixSettings,
    tree: BTreeMap<Key, Page>,
    /// Pages that can go, by when they were last used.
    leaves: BTreeMap<u64, Key>,
    host: Host<Key>,
    /// Pages of running requests that are in no tree yet.
    private_count: usize,
    stamp: u64,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Page {
    parent: Option<Key>,
    child_count: usize,
    user_count: usize,
    used_at: u64,
}

impl Radix {
    /// An empty cache, which says that it is empty.
    pub fn new(settings: RadixSettings) -> Radix {
        let mut radix = Radix {
            settings,
            tree: BTreeMap::new(),
            leaves: BTreeMap::new(),
            host: Host::new(settings.host_pages),
            private_count: 0,
            stamp: 0,
            events: Vec::new(),
        };
        radix.clear();
        radix
    }

    /// Its shape.
    pub fn settings(&self) -> &RadixSettings {
        &self.settings
    }

    /// Pages in use or cached.
    pub fn used_count(&self) -> usize {
        self.tree.len() + self.private_count
    }

    /// Whether a sequence of that length could ever run.
    pub fn fits(&self, len: usize) -> bool {
        len.div_ceil(self.size()) <= self.capacity()
    }

    /// Takes what is cached of the sequence and allocates the rest. Returns how many tokens were a
    /// hit.
    pub fn admit(&mut self, sequence: &mut Sequence) -> Result<usize, Full> {
        // The last token is always computed: its output is what the request is for.
        let whole = sequence.len().saturating_sub(1) / self.size();
        let hits = (0..whole).take_while(|at| self.tree.contains_key(&key(sequence, *at))).count();
        let loaded = (hits..whole).take_while(|at| self.host.contains(&key(sequence, *at))).count();
        (0..hits).for_each(|at| self.lock(&key(sequence, at)));
        sequence.registered = hits;
        sequence.page_count = hits;
        let allocated = self.grow(sequence);
        if allocated.is_err() {
            self.release(sequence);
        }
        // What the host brings back is announced as any page that is stored.
        allocated.map(|()| (hits + loaded) * self.size())
    }

    /// Makes room for all tokens of the sequence and puts its full pages into the tree.
    pub fn grow(&mut self, sequence: &mut Sequence) -> Result<(), Full> {
        let page_count = sequence.len().div_ceil(self.size());
        let needed = page_count - sequence.page_count;
        if !self.make_room(needed) {
            return Err(Full);
        }
        self.private_count += needed;
        sequence.page_count = page_count;
        self.register(sequence);
        Ok(())
    }

    /// Lets the sequence's pages go. Those in the tree stay cached.
    pub fn release(&mut self, sequence: &mut Sequence) {
        (0..sequence.registered).for_each(|at| self.unlock(&key(sequence, at)));
        self.private_count -= sequence.page_count - sequence.registered;
        sequence.registered = 0;
        sequence.page_count = 0;
    }

    /// Empties the tree, if nobody uses it.
    pub fn clear(&mut self) -> bool {
        if self.private_count > 0 || self.tree.values().any(|page| page.user_count > 0) {
            return false;
        }
        self.tree.clear();
        self.leaves.clear();
        self.host.clear();
        let scope = Scope::Tiers(vec![Tier::Device, Tier::Host]);
        self.events.push(Event::Cleared(Cleared { scope, cause: ClearCause::Engine }));
        true
    }

    /// Everything that happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether something happened that was not taken yet.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What is really resident. Pages of several namespaces with one hash are its copies.
    pub fn truth(&self) -> Vec<Resident> {
        let mut resident = copies(self.tree.keys(), &Tier::Device);
        resident.extend(copies(self.host.hashes(), &Tier::Host));
        resident
    }

    fn size(&self) -> usize {
        usize::try_from(self.settings.page_size).unwrap_or(usize::MAX).max(1)
    }

    fn capacity(&self) -> usize {
        usize::try_from(self.settings.pages).unwrap_or(usize::MAX)
    }

    fn lock(&mut self, key: &Key) {
        let Some(page) = self.tree.get_mut(key) else { return };
        page.user_count += 1;
        self.leaves.remove(&page.used_at);
    }

    fn unlock(&mut self, key: &Key) {
        self.stamp += 1;
        let Some(page) = self.tree.get_mut(key) else { return };
        page.user_count -= 1;
        page.used_at = self.stamp;
        if page.user_count == 0 && page.child_count == 0 {
            self.leaves.insert(page.used_at, key.clone());
        }
    }

    /// Evicts until so many pages are free, and says what went.
    fn make_room(&mut self, needed: usize) -> bool {
        let mut hashes: Vec<BlockHash> = Vec::new();
        while self.used_count() + needed > self.capacity()
            && let Some((_, key)) = self.leaves.pop_first()
        {
            hashes.push(whole(&key.2));
            let parent = self.tree.remove(&key).and_then(|page| page.parent);
            if let Some(parent) = parent
                && let Some(page) = self.tree.get_mut(&parent)
            {
                page.child_count -= 1;
                if page.child_count == 0 && page.user_count == 0 {
                    self.leaves.insert(page.used_at, parent);
                }
            }
        }
        if !hashes.is_empty() {
            self.events.push(Event::Removed(Removed { hashes, place: place(&Tier::Device) }));
        }
        self.used_count() + needed <= self.capacity()
    }

    /// Puts full pages into the tree and says so. Who is second at a page gives its own back.
    fn register(&mut self, sequence: &mut Sequence) {
        let full = sequence.len() / self.size();
        let mut first_new = None;
        for at in sequence.registered..full {
            let key = key(sequence, at);
            self.private_count -= 1;
            if self.tree.contains_key(&key) {
                self.lock(&key);
                continue;
            }
            let parent = at.checked_sub(1).map(|before| self::key(sequence, before));
            if let Some(page) = parent.as_ref().and_then(|parent| self.tree.get_mut(parent)) {
                page.child_count += 1;
            }
            self.tree.insert(key, Page { parent, child_count: 0, user_count: 1, used_at: 0 });
            // Nothing below a new page can be an old one.
            first_new.get_or_insert(at);
        }
        sequence.registered = full;
        if let Some(first) = first_new {
            let told = stored(sequence, first..full, self.settings.page_size, &Tier::Device);
            self.events.push(Event::Stored(told));
            self.back_up(sequence, full);
        }
    }

    /// Writes through to the host, as much of a sequence from its start as the host can hold.
    fn back_up(&mut self, sequence: &Sequence, full: usize) {
        let keys: Vec<Key> =
            (0..full.min(self.host.capacity())).map(|at| key(sequence, at)).collect();
        // The last page first, so that a page never outlives the one before it.
        self.host.touch(keys.iter().rev());
        let (backed, evicted) = self.host.store(&keys);
        self.host.touch(keys.iter().rev());
        if !evicted.is_empty() {
            let hashes = evicted.iter().map(|(_, _, hash)| whole(hash)).collect();
            self.events.push(Event::Removed(Removed { hashes, place: place(&Tier::Host) }));
        }
        // For the same reason what the host lacked is the end of them.
        if !backed.is_empty() {
            let pages = keys.len() - backed.len()..keys.len();
            let told = stored(sequence, pages, self.settings.page_size, &Tier::Host);
            self.events.push(Event::Stored(told));
        }
    }
}

/// Pages of several namespaces with one hash are its copies.
fn copies<'k>(keys: impl Iterator<Item = &'k Key>, tier: &Tier) -> Vec<Resident> {
    let mut counts: BTreeMap<Hash, u32> = BTreeMap::new();
    for (_, _, hash) in keys {
        *counts.entry(*hash).or_default() += 1;
    }
    let of = |(hash, count)| Resident { hash, tier: tier.clone(), group: None, count };
    counts.into_iter().map(of).collect()
}

fn stored(sequence: &Sequence, pages: Range<usize>, page_size: u32, tier: &Tier) -> Stored {
    let Range { start: first, end: full } = pages;
    let hashes = sequence.hashes();
    let size = usize::try_from(page_size).unwrap_or(usize::MAX);
    let block = |hash: &Hash| StoredBlock { hash: whole(hash), content: None };
    Stored {
        parent: match first.checked_sub(1) {
            Some(before) => Parent::Block(whole(&hashes[before])),
            None => Parent::Root,
        },
        block_size: page_size,
        tokens: Tokens(sequence.tokens()[first * size..full * size].to_vec()),
        blocks: hashes[first..full].iter().map(block).collect(),
        partial: false,
        bigram: false,
        place: place(tier),
        lora: sequence.lora().map(str::to_owned),
        lora_id: sequence.lora_id(),
        salt: sequence.salt().map(str::to_owned),
        extra: Vec::new(),
        session: None,
    }
}

fn key(sequence: &Sequence, at: usize) -> Key {
    let namespace = |text: Option<&str>| text.map(str::to_owned);
    (namespace(sequence.lora()), namespace(sequence.salt()), sequence.hashes()[at])
}

fn place(tier: &Tier) -> Place {
    let medium = if *tier == Tier::Device { "GPU" } else { "CPU_PINNED" };
    Place { medium: Some(medium.to_owned()), ..Place::of(tier.clone()) }
}

#[cfg(all(test, feature = "sglang"))]
mod tests;
