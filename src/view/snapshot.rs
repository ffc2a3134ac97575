//! A view as records, and back.
//!
//! Law: fold(prefix) → snapshot → install → fold(suffix) == fold(all).

use kvbridge_schemas::{BlockHash, Parent, SnapshotRecord};

use super::{
    View, ViewSettings,
    block::{Block, Copies, Full, Spot, count_up},
    kinds::{Kind, LinkKind},
    link::{Link, LinkParent, NodeId, StripParent, namespace},
    order::At,
    row::short_key,
    strip::{Before, Place},
    unpack,
};

/// Why records are not a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// A record of a block that is not there.
    #[error("snapshot record without copies, expected at least one")]
    NoCopies,
    /// Two records put one block at two places.
    #[error("snapshot records disagree about the place of one block")]
    TwoPlaces,
}

impl View {
    /// Everything the fold's future depends on, as records made one by one: a view of a million
    /// blocks is never held twice.
    ///
    /// One record per (block, tier, group) and, where a block is linked at several block sizes, per
    /// size. Such records repeat the count; they do not add up. Parents come before their children,
    /// and nothing else is said of the order.
    pub fn records(&self) -> impl Iterator<Item = SnapshotRecord> + '_ {
        self.parents_first().into_iter().flat_map(|at| {
            let (mut one, mut many) = (None, Vec::new());
            match at {
                At::Strip(number) => self.describe_strip(number, &mut many),
                At::Block(key) => match self.blocks.get(key) {
                    Some(Block::Plain(plain)) => one = self.describe_plain(key, plain),
                    Some(Block::Full(full)) => self.describe_full(key, full, &mut many),
                    None => {
                        let full = self.full(key).unwrap_or_default();
                        self.describe_full(key, &full, &mut many);
                    }
                },
            }
            one.into_iter().chain(many)
        })
    }

    fn describe_strip(&self, number: u32, records: &mut Vec<SnapshotRecord>) {
        let Some(strip) = self.strips.get(number) else { return };
        let Some(kind) = self.kinds.get(strip.kind) else { return };
        let Some(link) = &kind.link else { return };
        records.reserve(strip.blocks.len());
        let mut parent = match self.strips.parent_of(strip, link.block_size, true) {
            StripParent::Root(_) => Parent::Root,
            StripParent::Block(node) => Parent::Block(self.hash_of(node.key)),
            StripParent::Strip { number, at } => {
                let key = self.strips.key(Place { strip: number, at });
                Parent::Block(self.hash_of(key.unwrap_or_default()))
            }
        };
        for (at, (key, content)) in (0_u8..).zip(&strip.blocks) {
            let hash = self.hash_of(*key);
            let before = std::mem::replace(&mut parent, Parent::Block(hash.clone()));
            if strip.live & (1 << at) == 0 {
                continue;
            }
            records.push(SnapshotRecord {
                hash,
                parent: before,
                content: Some(*content),
                block_size: link.block_size,
                tier: kind.spot.tier.clone(),
                group: self.groups.describe(kind.spot.group),
                count: self.strips.copies(*key),
                lora: link.lora.as_deref().map(str::to_owned),
                salt: link.salt.as_deref().map(str::to_owned),
                extra: None,
                partial: kind.partial,
                bigram: link.bigram,
                parked: false,
                hint: kind.hint,
            });
        }
    }

    fn describe_full(&self, key: u64, full: &Full, records: &mut Vec<SnapshotRecord>) {
        if full.links.is_empty() {
            self.describe(key, full, None, records);
        }
        for (block_size, link) in full.links.iter() {
            self.describe(key, full, Some((*block_size, link)), records);
        }
    }

    /// How many [`View::records`] there are.
    pub fn record_count(&self) -> u64 {
        self.blocks.sum(|block| match block {
            Block::Plain(_) => 1,
            Block::Full(full) => {
                let places = full.links.iter().count().max(1);
                u64::try_from(full.copies.iter().count() * places).unwrap_or(u64::MAX)
            }
        }) + self.strips.count()
    }

    /// All [`View::records`].
    pub fn snapshot(&self) -> Vec<SnapshotRecord> {
        self.records().collect()
    }

    /// The view that the records describe.
    pub fn install(
        settings: ViewSettings,
        records: impl IntoIterator<Item = SnapshotRecord>,
    ) -> Result<View, InstallError> {
        let mut view = View::new(settings);
        for record in records {
            view.install_record(record)?;
        }
        Ok(view)
    }

    fn describe(
        &self,
        key: u64,
        block: &Full,
        place: Option<(u32, &Link)>,
        records: &mut Vec<SnapshotRecord>,
    ) {
        let link = place.map(|(_, link)| link);
        let parent = match link.map(|link| link.parent) {
            None => self.bare_parent(key),
            Some(LinkParent::Root(_)) => Parent::Root,
            Some(LinkParent::Block(node)) => Parent::Block(self.hash_of(node.key)),
        };
        records.extend(block.copies.iter().map(|(spot, copies)| SnapshotRecord {
            hash: self.hash_of(key),
            parent: parent.clone(),
            content: link.map(|link| link.content),
            block_size: place.map_or(0, |(block_size, _)| block_size),
            tier: spot.tier.clone(),
            group: self.groups.describe(spot.group),
            count: copies.count,
            lora: link.and_then(|link| link.lora.as_deref()).map(str::to_owned),
            salt: link.and_then(|link| link.salt.as_deref()).map(str::to_owned),
            extra: link.and_then(|link| link.extra),
            partial: copies.partial,
            bigram: link.is_some_and(|link| link.bigram),
            parked: link.is_some_and(|link| link.parked),
            hint: copies.hint,
        }));
    }

    /// The parent of a block whose content is not known.
    fn bare_parent(&self, key: u64) -> Parent {
        self.bare.get(&key).cloned().unwrap_or(Parent::Unknown)
    }

    /// Adds one record to a view that is being installed, in any order: chunks of a snapshot go
    /// straight into a shadow view. A record's own flags are believed: what was parked stays
    /// parked, what was linked although its parent is gone stays linked.
    ///
    /// After an error the view is not to be used.
    pub fn install_record(&mut self, record: SnapshotRecord) -> Result<(), InstallError> {
        if record.count == 0 {
            return Err(InstallError::NoCopies);
        }
        let mut deltas = Vec::new(); // for nobody: who reads an installed view reads all of it
        if let Some(group) = &record.group {
            let before = self.groups.match_prefixes(Some(group.index));
            self.groups.learn(group);
            let changed = self.groups.match_prefixes(Some(group.index)) != before;
            if changed && self.groups.is_held(group.index) {
                self.part_all(&mut deltas);
            }
        }
        if self.install_in_strip(&record) {
            return Ok(());
        }
        let key = self.settings.projection.apply(&record.hash);
        self.part_block(key, &mut deltas);
        if let (Parent::Block(parent), Some(_)) = (&record.parent, record.content) {
            self.part_block(self.settings.projection.apply(parent), &mut deltas);
        }
        self.note_hash(key, &record.hash);
        if self.blocks.get(key).is_none() {
            self.blocks.insert(key, Block::Full(Box::default()));
        }
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, key) else { return Ok(()) };
        if !block.is_in(&record.tier) {
            count_up(&mut self.totals.blocks, &record.tier);
        }
        let group = record.group.as_ref().map(|group| group.index);
        let spot = Spot { tier: record.tier.clone(), group };
        let before = block.copies.get(&spot).copied();
        let after = Copies {
            count: record.count.max(before.map_or(0, |copies| copies.count)),
            partial: record.partial || before.is_some_and(|copies| copies.partial),
            hint: record.hint || before.is_some_and(|copies| copies.hint),
        };
        self.totals.change(&spot.tier, before, Some(after));
        if before.is_none() {
            self.groups.hold(group);
        }
        block.copies.insert(spot, after);
        self.install_link(key, &record)?;
        self.repack(key);
        Ok(())
    }

    /// Puts a record behind the strip that has its parent, or into a new one. `false` = it has what
    /// strips cannot say, or its parent did not come before it; nothing was done.
    fn install_in_strip(&mut self, record: &SnapshotRecord) -> bool {
        let group = record.group.as_ref().map(|group| group.index);
        let is_plain = !record.partial && !record.parked && record.extra.is_none();
        if !self.keeps_strips()
            || !is_plain
            || record.block_size == 0
            || !self.groups.match_prefixes(group)
        {
            return false;
        }
        let (Some(key), Some(content)) = (short_key(&record.hash), record.content) else {
            return false;
        };
        self.strips.reserve(1);
        if self.strips.seek(key).is_ok() {
            return false;
        }
        let awaited = || self.parking.count() > 0 && !self.parking.awaited(key).is_empty();
        if self.blocks.get(key).is_some() || self.strips.refuses(key) || awaited() {
            return false;
        }
        let (lora, salt) = (record.lora.as_deref(), record.salt.as_deref());
        let before = match &record.parent {
            Parent::Unknown => return false,
            Parent::Root => Before::Root(namespace(lora, salt)),
            Parent::Block(hash) => {
                let Some(before) = self.before(hash, record.block_size) else { return false };
                before
            }
        };
        let spot = Spot { tier: record.tier.clone(), group };
        let kind = Kind {
            spot: spot.clone(),
            partial: false,
            hint: record.hint,
            link: Some(LinkKind {
                block_size: record.block_size,
                root: false,
                bigram: record.bigram,
                lora: lora.map(Into::into),
                salt: salt.map(Into::into),
            }),
        };
        let Some(number) = self.kinds.hold(&kind) else { return false };
        let strip = match before {
            Before::Strip(place) if self.strips.ends_at(place, number) => {
                self.kinds.release(number); // the strip holds it
                Some(place.strip)
            }
            Before::Root(_) | Before::Block(_) | Before::Strip(_) => {
                self.strips.begin(before, number)
            }
        };
        let Some(strip) = strip else {
            self.kinds.release(number);
            return false;
        };
        self.strips.extend(strip, &[(key, content)]);
        if record.count > 1 {
            self.strips.again.insert(key, record.count - 1);
        }
        let copies = Copies { count: record.count, partial: false, hint: record.hint };
        self.totals.change(&spot.tier, None, Some(copies));
        count_up(&mut self.totals.blocks, &spot.tier);
        count_up(&mut self.totals.links, &record.block_size);
        self.groups.hold(group);
        true
    }

    /// The place of a parent that is there and has the block size.
    fn before(&self, hash: &BlockHash, block_size: u32) -> Option<Before> {
        let key = self.settings.projection.apply(hash);
        let Some(place) = self.strips.find(key) else {
            return self.blocks.get(key).map(|_| Before::Block(key));
        };
        let kind = self.kinds.get(self.strips.get(place.strip)?.kind)?;
        let size = kind.link.as_ref()?.block_size;
        (size == block_size).then_some(Before::Strip(place))
    }

    fn install_link(&mut self, key: u64, record: &SnapshotRecord) -> Result<(), InstallError> {
        let Some(content) = record.content.filter(|_| record.block_size > 0) else {
            return self.install_bare(key, record);
        };
        let block_size = record.block_size;
        let parent = match &record.parent {
            Parent::Root => {
                LinkParent::Root(namespace(record.lora.as_deref(), record.salt.as_deref()))
            }
            Parent::Block(hash) => {
                LinkParent::Block(NodeId { key: self.settings.projection.apply(hash), block_size })
            }
            Parent::Unknown => return Ok(()),
        };
        let link = Link {
            parent,
            content,
            extra: record.extra,
            bigram: record.bigram,
            lora: record.lora.as_deref().map(Into::into),
            salt: record.salt.as_deref().map(Into::into),
            parked: record.parked && matches!(parent, LinkParent::Block(_)),
            described: None,
        };
        let Some(block) = self.unpack(key) else { return Ok(()) };
        if let Some(old) = block.links.get(&block_size) {
            return if old.same_place(&link) { Ok(()) } else { Err(InstallError::TwoPlaces) };
        }
        let waits_for = match link.parent {
            LinkParent::Block(parent) if link.parked => Some(parent),
            LinkParent::Root(_) | LinkParent::Block(_) => None,
        };
        block.links.insert(block_size, link);
        if let Some(parent) = waits_for {
            self.parking.add(parent, key);
        }
        count_up(&mut self.totals.links, &block_size);
        self.bare.remove(&key);
        Ok(())
    }

    /// A record that knows the parent and not the content: none of our own has only one of them.
    fn install_bare(&mut self, key: u64, record: &SnapshotRecord) -> Result<(), InstallError> {
        let linked = self.unpack(key).is_some_and(|block| !block.links.is_empty());
        if linked || record.content.is_some() || record.parent == Parent::Unknown {
            return Ok(());
        }
        let before = self.bare.insert(key, record.parent.clone());
        let agrees = before.is_none_or(|before| before == record.parent);
        if agrees { Ok(()) } else { Err(InstallError::TwoPlaces) }
    }
}
