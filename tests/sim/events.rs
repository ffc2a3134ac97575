//! The model engine's events.

use kvbridge::{
    api::Loss,
    schemas::{
        BlockHash, Event, Group, GroupKind, Parent, Place, Removed, Stored, StoredBlock, Tier,
        Tokens, content_hash,
    },
};

/// Sequences of some chains are kept apart by a salt.
pub(crate) fn salt_of(hash: u64) -> Option<&'static str> {
    ((hash / 1_000) % 3 == 1).then_some("tenant")
}

fn place(tier: Tier, group: u32, groups: u32, kind: bool) -> Place {
    let kind = kind.then_some(if group == 0 {
        GroupKind::FullAttention
    } else {
        GroupKind::SlidingWindow
    });
    let group = (groups > 1).then_some(Group { index: group, kind, window: None });
    Place { group, ..Place::of(tier) }
}

pub(crate) fn stored(
    parent: Parent,
    hashes: Vec<u64>,
    tier: Tier,
    group: u32,
    groups: u32,
) -> Event {
    let told = parent != Parent::Unknown;
    let tokens = |hash: u64| [u32::try_from(hash).unwrap(), 7];
    let salt = hashes.first().and_then(|hash| salt_of(*hash)).filter(|_| told);
    Event::Stored(Stored {
        parent,
        block_size: if told { 2 } else { 0 },
        tokens: Tokens(if told {
            hashes.iter().flat_map(|h| tokens(*h)).collect()
        } else {
            vec![]
        }),
        blocks: hashes
            .iter()
            .map(|hash| StoredBlock {
                hash: BlockHash::from_u64(*hash),
                content: told.then(|| content_hash(&tokens(*hash))),
            })
            .collect(),
        partial: false,
        bigram: false,
        place: place(tier, group, groups, true),
        lora: None,
        lora_id: None,
        salt: salt.map(str::to_owned),
        extra: Vec::new(),
        session: None,
    })
}

pub(crate) fn removed(hash: u64, tier: Tier, group: u32, groups: u32) -> Event {
    Event::Removed(Removed {
        hashes: vec![BlockHash::from_u64(hash)],
        place: place(tier, group, groups, false),
    })
}

/// The bytes of a batch: other events, other bytes.
pub(crate) fn payload_of(ts: u64, loss: Loss, events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + 48 * events.len());
    bytes.extend(ts.to_le_bytes());
    bytes.push(loss as u8);
    for event in events {
        match event {
            Event::Stored(it) => {
                bytes.extend([1, u8::from(it.parent == Parent::Root)]);
                if let Parent::Block(parent) = &it.parent {
                    bytes.extend(parent.as_bytes());
                }
                place_of(&it.place, &mut bytes);
                bytes.push(u8::try_from(it.blocks.len()).unwrap());
                it.blocks.iter().for_each(|block| bytes.extend(block.hash.as_bytes()));
            }
            Event::Removed(it) => {
                bytes.push(2);
                place_of(&it.place, &mut bytes);
                it.hashes.iter().for_each(|hash| bytes.extend(hash.as_bytes()));
            }
            // Rare, and of many fields.
            other => bytes.extend(format!("{other:?}").as_bytes()),
        }
    }
    bytes
}

fn place_of(place: &Place, bytes: &mut Vec<u8>) {
    let group = place.group.as_ref().map_or(u32::MAX, |group| group.index);
    bytes.push(u8::from(place.tier == Tier::Device));
    bytes.extend(group.to_le_bytes());
}
