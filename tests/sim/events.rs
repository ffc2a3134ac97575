//! The model engine's events.

use kvbridge::schemas::{
    BlockHash, Event, Group, GroupKind, Parent, Place, Removed, Stored, StoredBlock, Tier, Tokens,
    content_hash,
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
