//! A view as records, and back.
//!
//! Law: fold(prefix) → snapshot → install → fold(suffix) == fold(all).

use std::ops::Range;

use kvbridge_schemas::{Parent, SnapshotRecord};

use super::{
    View, ViewSettings,
    block::{Block, Copies, Full, Spot, count_up},
    link::{Link, LinkParent, NodeId, namespace},
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
    /// size. Such records repeat the count; they do not add up. Parents come before their children.
    /// The order depends on nothing but the state.
    pub fn records(&self) -> impl Iterator<Item = SnapshotRecord> + '_ {
        self.parents_first().into_iter().flat_map(|key| {
            let (mut one, mut many) = (None, Vec::new());
            match self.blocks.get(key) {
                Some(Block::Plain(plain)) => one = self.describe_plain(key, plain),
                Some(Block::Full(full)) => {
                    if full.links.is_empty() {
                        self.describe(key, full, None, &mut many);
                    }
                    for (block_size, link) in full.links.iter() {
                        self.describe(key, full, Some((*block_size, link)), &mut many);
                    }
                }
                None => (),
            }
            one.into_iter().chain(many)
        })
    }

    /// How many [`View::records`] there are.
    pub fn record_count(&self) -> u64 {
        self.blocks.sum(|block| match block {
            Block::Plain(_) => 1,
            Block::Full(full) => {
                let places = full.links.iter().count().max(1);
                u64::try_from(full.copies.iter().count() * places).unwrap_or(u64::MAX)
            }
        })
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

    /// All keys, each after the resident keys it is linked to. A ring of links (a hostile stream
    /// can make one) has no first block: what is left over follows in key order.
    pub(super) fn parents_first(&self) -> Vec<u64> {
        let keys = self.blocks.keys();
        let mut edges: Vec<(u64, usize)> = Vec::with_capacity(keys.len());
        for (child, key) in keys.iter().enumerate() {
            let before = |parent| match parent {
                LinkParent::Block(node) if node.key != *key => Some((node.key, child)),
                LinkParent::Root(_) | LinkParent::Block(_) => None,
            };
            match self.blocks.get(*key) {
                Some(Block::Plain(plain)) => edges.extend(self.parent(plain).and_then(before)),
                Some(Block::Full(full)) => {
                    edges.extend(full.links.values().filter_map(|link| before(link.parent)));
                }
                None => (),
            }
        }
        edges.sort_unstable();
        edges.dedup();
        // Both are in the order of the parents' keys, so one walk finds each block's children.
        let (mut missing, mut at) = (vec![0_usize; keys.len()], 0);
        let mut children: Vec<Range<usize>> = Vec::with_capacity(keys.len());
        for key in &keys {
            at += edges[at..].iter().take_while(|(parent, _)| parent < key).count();
            let count = edges[at..].iter().take_while(|(parent, _)| parent == key).count();
            edges[at..at + count].iter().for_each(|(_, child)| missing[*child] += 1);
            children.push(at..at + count);
            at += count;
        }
        let mut order: Vec<usize> = (0..keys.len()).filter(|at| missing[*at] == 0).collect();
        let mut next = 0;
        while let Some(parent) = order.get(next).copied() {
            next += 1;
            for (_, child) in &edges[children[parent].clone()] {
                missing[*child] -= 1;
                if missing[*child] == 0 {
                    order.push(*child);
                }
            }
        }
        order.extend((0..keys.len()).filter(|at| missing[*at] > 0));
        order.into_iter().map(|at| keys[at]).collect()
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
        let key = self.settings.projection.apply(&record.hash);
        self.note_hash(key, &record.hash);
        if self.blocks.get(key).is_none() {
            self.blocks.insert(key, Block::Full(Box::default()));
        }
        let Some(block) = unpack(&mut self.blocks, &mut self.kinds, key) else { return Ok(()) };
        if !block.is_in(&record.tier) {
            count_up(&mut self.totals.blocks, &record.tier);
        }
        if let Some(group) = &record.group {
            self.groups.learn(group);
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
