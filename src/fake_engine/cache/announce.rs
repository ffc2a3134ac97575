//! What the cache says: stores of new full blocks, and the host tier's own events.

use kvbridge_schemas::{
    Event, Group, GroupKind, Parent, Place, Removed, Stored, StoredBlock, Tier, Tokens,
};

use super::Cache;
use crate::fake_engine::{
    hash::{Hash, whole},
    sequence::Sequence,
};

impl Cache {
    /// Puts full blocks under their hashes and says so, one store a group.
    pub(super) fn register(&mut self, sequence: &mut Sequence) {
        let full = sequence.len() / self.block_size();
        let range = sequence.registered..full;
        if range.is_empty() {
            return;
        }
        for group in 0..self.group_count() {
            let mut kept = Vec::new();
            for index in range.clone() {
                let Some(id) = sequence.tables[group][index] else { continue };
                let key = (group, sequence.hashes()[index]);
                self.blocks[id].key = Some(key);
                self.cached.entry(key).or_default().insert(id);
                kept.push(index);
            }
            let size = self.block_size();
            let extra = kept.iter().map(|index| sequence.extra(*index)).collect::<Vec<_>>();
            let stored = Stored {
                parent: parent(sequence, range.start),
                block_size: self.settings.block_size,
                tokens: Tokens(sequence.tokens()[range.start * size..range.end * size].to_vec()),
                blocks: kept.iter().map(|index| block(&sequence.hashes()[*index])).collect(),
                partial: false,
                bigram: false,
                place: device(self.group(group, true)),
                lora: sequence.lora().map(str::to_owned),
                lora_id: sequence.lora_id(),
                salt: None,
                // One entry a block, empty ones too; a store without blocks has no list at all.
                extra,
                session: None,
            };
            self.events.push(Event::Stored(stored));
        }
        self.offload(&sequence.hashes()[range]);
        sequence.registered = full;
    }

    /// Copies new blocks to the host tier, as an offloading connector does.
    fn offload(&mut self, hashes: &[Hash]) {
        let (stored, evicted) = self.host.store(hashes);
        let group = self.host_group().and_then(|index| {
            Some(Group {
                kind: None,
                window: None,
                ..self.group(usize::try_from(index).ok()?, false)?
            })
        });
        let place = Place { medium: Some("CPU".to_owned()), group, ..Place::of(Tier::Host) };
        for hash in evicted {
            let removed = Removed { hashes: vec![whole(&hash)], place: place.clone() };
            self.host_events.push(Event::Removed(removed));
        }
        if stored.is_empty() {
            return;
        }
        let zero = self.settings.host_block_size_is_zero;
        self.host_events.push(Event::Stored(Stored {
            parent: Parent::Unknown,
            block_size: if zero { 0 } else { self.settings.block_size },
            tokens: Tokens::default(),
            blocks: stored.iter().map(block).collect(),
            partial: false,
            bigram: false,
            place,
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        }));
    }

    pub(super) fn host_group(&self) -> Option<u32> {
        let full = u32::try_from(self.group_count() - 1).ok();
        full.filter(|_| self.settings.host_group)
    }

    /// A group as events name it: only stores tell its kind.
    pub(super) fn group(&self, group: usize, kind: bool) -> Option<Group> {
        let sliding = self.is_sliding(group).is_some();
        let name = if sliding { GroupKind::SlidingWindow } else { GroupKind::FullAttention };
        Some(Group {
            index: u32::try_from(group).ok()?,
            kind: kind.then_some(name),
            window: self.settings.window.filter(|_| kind && sliding),
        })
    }
}

pub(super) fn device(group: Option<Group>) -> Place {
    Place { medium: Some("GPU".to_owned()), group, ..Place::of(Tier::Device) }
}

fn block(hash: &Hash) -> StoredBlock {
    StoredBlock { hash: whole(hash), content: None }
}

fn parent(sequence: &Sequence, first: usize) -> Parent {
    match first.checked_sub(1) {
        Some(before) => Parent::Block(whole(&sequence.hashes()[before])),
        None => Parent::Root,
    }
}
