//! The same contract again, as lists that are searched from end to end. Shares no code with the
//! view.

use std::collections::{BTreeMap, BTreeSet};

use kvbridge_schemas::{Event, ExtraKey, GroupKind, Parent, Place, Stored, Tier};

use crate::recovery::Finding;

/// One physical copy.
struct Copy {
    key: u64,
    tier: Tier,
    group: Option<u32>,
    from_cpu: bool,
    partial: bool,
}

#[derive(Clone, PartialEq)]
enum Before {
    Root(Option<String>, Option<String>),
    Block(u64),
}

struct Told {
    key: u64,
    size: u32,
    before: Before,
    tokens: Vec<u32>,
    extra: Vec<ExtraKey>,
    waits: bool,
}

pub(crate) struct Oracle {
    copies: Vec<Copy>,
    kinds: Vec<(u32, GroupKind)>,
    told: Vec<Told>,
    last_copy: bool,
    waiting_max: usize,
}

impl Oracle {
    pub(crate) fn new(last_copy: bool, waiting_max: usize) -> Oracle {
        Oracle { copies: vec![], kinds: vec![], told: vec![], last_copy, waiting_max }
    }

    pub(crate) fn apply(&mut self, event: &Event) -> BTreeSet<Finding> {
        let mut found = BTreeSet::new();
        match event {
            Event::Stored(stored) => self.store(stored, &mut found),
            Event::Removed(removed) => {
                let group = removed.place.group.as_ref().map(|group| group.index);
                for hash in &removed.hashes {
                    self.remove(key(hash.as_bytes()), &removed.place.tier, group, &mut found);
                }
            }
            Event::Moved(moved) if moved.from != moved.to => {
                let key = key(moved.hash.as_bytes());
                let here = |copy: &&Copy| copy.key == key && copy.tier == moved.from;
                let lowest = self.copies.iter().filter(here).map(|copy| copy.group).min();
                let partial = self.copies.iter().any(|c| {
                    c.key == key && c.tier == moved.from && lowest == Some(c.group) && c.partial
                });
                let group = lowest.flatten();
                self.copies.push(Copy {
                    key,
                    tier: moved.to.clone(),
                    group,
                    from_cpu: false,
                    partial,
                });
                self.remove(key, &moved.from, group, &mut found);
            }
            Event::Cleared(_) => *self = Oracle::new(self.last_copy, self.waiting_max),
            Event::Moved(_) | Event::Reset(_) | Event::Trust(_) | Event::Unknown(_) => (),
        }
        self.settle();
        found
    }

    fn store(&mut self, stored: &Stored, found: &mut BTreeSet<Finding>) {
        let Place { tier, medium, group, .. } = &stored.place;
        let index = group.as_ref().map(|group| group.index);
        if let Some((index, kind)) = group.as_ref().and_then(|g| Some((g.index, g.kind.clone()?)))
            && !stored.blocks.is_empty()
        {
            self.kinds.retain(|known| known.0 != index);
            self.kinds.push((index, kind));
        }
        let from_cpu = *tier == Tier::Host && medium.as_deref() == Some("cpu");
        let proven = matches!(tier, Tier::Device | Tier::Host) && !from_cpu;
        let width = usize::try_from(stored.block_size).unwrap();
        let mut before = match &stored.parent {
            Parent::Root => Some(Before::Root(stored.lora.clone(), stored.salt.clone())),
            Parent::Block(hash) => Some(Before::Block(key(hash.as_bytes()))),
            Parent::Unknown => None,
        };
        for (i, block) in stored.blocks.iter().enumerate() {
            let key = key(block.hash.as_bytes());
            let partial = stored.partial;
            self.copies.push(Copy { key, tier: tier.clone(), group: index, from_cpu, partial });
            let full = !stored.partial && block.content.is_some() && self.uses(index);
            if let (true, Some(before)) = (full, before.clone()) {
                let unexplained = |extra: &&ExtraKey| !matches!(extra, ExtraKey::Text(_));
                let told = Told {
                    key,
                    size: stored.block_size,
                    before,
                    tokens: stored.tokens.0[i * width..(i + 1) * width].to_vec(),
                    extra: stored.extra[i].iter().filter(unexplained).cloned().collect(),
                    waits: false,
                };
                self.tell(told, proven, found);
            }
            self.settle();
            before = Some(Before::Block(key));
        }
    }

    fn tell(&mut self, mut told: Told, proven: bool, found: &mut BTreeSet<Finding>) {
        let same_block = |old: &Told| old.key == told.key && old.size == told.size;
        if let Some(old) = self.told.iter().find(|old| same_block(old)) {
            let same =
                old.before == told.before && old.tokens == told.tokens && old.extra == told.extra;
            if same || !proven {
                return;
            }
        }
        let ready = self.ready(&told);
        self.told.retain(|old| !same_block(old));
        if !ready {
            if self.waiting() >= self.waiting_max {
                found.insert(Finding::ParkingOverflow);
                return;
            }
            told.waits = true;
        }
        self.told.push(told);
    }

    fn remove(&mut self, key: u64, tier: &Tier, group: Option<u32>, found: &mut BTreeSet<Finding>) {
        let here = |copy: &Copy| copy.key == key && copy.tier == *tier && copy.group == group;
        let flags = self.copies.iter().filter(|copy| here(copy));
        let (cpu, partial) =
            flags.fold((false, false), |f, copy| (f.0 || copy.from_cpu, f.1 || copy.partial));
        match self.copies.iter().position(here) {
            None => {
                let hint = match tier {
                    Tier::Device => false,
                    Tier::Host => self.copies.iter().any(|c| c.tier == Tier::Host && c.from_cpu),
                    Tier::Disk | Tier::External | Tier::Other(_) => true,
                };
                if !hint {
                    found.insert(Finding::CountBelowZero);
                }
            }
            Some(_) if self.last_copy => self.copies.retain(|copy| !here(copy)),
            Some(at) => {
                self.copies.remove(at);
                // Nobody can say which of equal copies went: their flags last until all are gone.
                for copy in self.copies.iter_mut().filter(|copy| here(copy)) {
                    (copy.from_cpu, copy.partial) = (cpu, partial);
                }
            }
        }
        let copies = &self.copies;
        self.told.retain(|told| copies.iter().any(|copy| copy.key == told.key));
        self.kinds.retain(|kind| copies.iter().any(|copy| copy.group == Some(kind.0)));
    }

    fn settle(&mut self) {
        while let Some(at) = self.told.iter().position(|told| told.waits && self.ready(told)) {
            self.told[at].waits = false;
        }
    }

    fn ready(&self, told: &Told) -> bool {
        let Before::Block(parent) = told.before else { return true };
        self.copies.iter().any(|copy| copy.key == parent)
            && !self.told.iter().any(|t| t.key == parent && t.size == told.size && t.waits)
    }

    fn uses(&self, group: Option<u32>) -> bool {
        let told = self.kinds.iter().find(|kind| Some(kind.0) == group);
        told.is_none_or(|kind| matches!(kind.1, GroupKind::FullAttention | GroupKind::MlaAttention))
    }

    fn usable(&self, key: u64) -> BTreeSet<&Tier> {
        let copies = self.copies.iter().filter(|copy| copy.key == key && self.uses(copy.group));
        copies.map(|copy| &copy.tier).collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.told.iter().filter(|told| told.waits).count()
    }

    /// Copies per (key, tier, group).
    pub(crate) fn counts(&self) -> BTreeMap<(u64, Tier, Option<u32>), u32> {
        let mut counts = BTreeMap::new();
        for copy in &self.copies {
            *counts.entry((copy.key, copy.tier.clone(), copy.group)).or_default() += 1;
        }
        counts
    }

    /// Distinct keys per tier.
    pub(crate) fn blocks(&self) -> BTreeMap<Tier, u64> {
        let distinct: BTreeSet<_> =
            self.copies.iter().map(|copy| (copy.tier.clone(), copy.key)).collect();
        let mut blocks = BTreeMap::new();
        for (tier, _) in distinct {
            *blocks.entry(tier).or_default() += 1;
        }
        blocks
    }

    pub(crate) fn full_device_copies(&self) -> usize {
        let partial = |copy: &Copy| {
            let twin = |c: &&Copy| (c.key, &c.tier, c.group) == (copy.key, &copy.tier, copy.group);
            self.copies.iter().filter(twin).any(|c| c.partial)
        };
        self.copies.iter().filter(|c| c.tier == Tier::Device && !partial(c)).count()
    }

    /// (key, block size, parent or none for a root, tier) of everything a prefix could reach.
    pub(crate) fn links(&self) -> BTreeSet<(u64, u32, Option<u64>, Tier)> {
        let mut links = BTreeSet::new();
        for told in self.told.iter().filter(|told| !told.waits) {
            let parent = match told.before {
                Before::Root(..) => None,
                Before::Block(key) => Some(key),
            };
            for tier in self.usable(told.key) {
                links.insert((told.key, told.size, parent, tier.clone()));
            }
        }
        links
    }

    /// The longest prefix of a plain prompt, in blocks of `size`, whose blocks are each in `tiers`.
    pub(crate) fn matched(
        &self,
        prompt: &[u32],
        (lora, salt): (Option<&str>, Option<&str>),
        size: u32,
        tiers: &[Tier],
    ) -> u64 {
        let root = Before::Root(lora.map(str::to_owned), salt.map(str::to_owned));
        self.deepest(&root, prompt, size, tiers)
    }

    fn deepest(&self, at: &Before, rest: &[u32], size: u32, tiers: &[Tier]) -> u64 {
        let Some((block, rest)) = rest.split_at_checked(usize::try_from(size).unwrap()) else {
            return 0;
        };
        let children = self.told.iter().filter(|told| {
            !told.waits
                && told.size == size
                && told.before == *at
                && told.tokens == block
                && told.extra.is_empty()
                && self.usable(told.key).into_iter().any(|tier| tiers.contains(tier))
        });
        children
            .map(|told| 1 + self.deepest(&Before::Block(told.key), rest, size, tiers))
            .max()
            .unwrap_or(0)
    }
}

fn key(bytes: &[u8]) -> u64 {
    bytes[bytes.len() - 8..].iter().fold(0, |sum, byte| sum * 256 + u64::from(*byte))
}
