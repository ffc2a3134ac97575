//! A small engine: arbitrary operations become the events that a real engine would send for them.
//!
//! A sequence is a path of symbols, two tokens each, so that blocks of 2 and of 4 tokens end at the
//! same places. The hash of a block depends on everything before it and on nothing else.

use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, Group, GroupKind, Moved, Parent, Place,
    Projection, Removed, Scope, Stored, StoredBlock, Tier, Tokens, content_hash,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{api::Removal, view::ViewSettings};

/// Tokens per symbol.
pub(crate) const UNIT: u32 = 2;
/// Its tokens are those of symbol 0, with an image among them.
pub(crate) const IMAGE: u8 = 2;

pub(crate) const SETTINGS: ViewSettings =
    ViewSettings::of(Projection::Last8, Removal::PerCopy, 1_000);

/// Engines that hash alike have the same seed.
#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) seed: u64,
}

/// A block: the one that ends with the path.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) namespace: u8,
    pub(crate) path: Vec<u8>,
    /// The hash goes as bytes, not as an integer.
    pub(crate) wide: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) tier: u8,
    pub(crate) group: u8,
    /// The event names the group's kind.
    pub(crate) tells_kind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Dense,
    Placeholder,
    Partial,
    /// The parent is said to be none where there is one.
    WrongParent,
}

/// The last `count` blocks of the path, each of `size` tokens.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) at: At,
    pub(crate) count: usize,
    pub(crate) size: u32,
    pub(crate) form: Form,
    pub(crate) spot: Spot,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Store(Store),
    Remove { at: At, spot: Spot },
    Move { at: At, from: u8, to: u8 },
    Clear,
    Noise,
}

pub(crate) fn tokens(path: &[u8]) -> Vec<u32> {
    path.iter()
        .flat_map(|symbol| {
            let first = if *symbol == IMAGE { 0 } else { u32::from(*symbol) * 10 };
            [first, first + 1]
        })
        .collect()
}

pub(crate) fn namespace_of(number: u8) -> (Option<&'static str>, Option<&'static str>) {
    match number {
        1 => (Some("ad"), None),
        2 => (None, Some("pepper")),
        3 => (Some("ad"), Some("pepper")),
        _ => (None, None),
    }
}

fn tier_of(number: u8) -> (Tier, Option<&'static str>) {
    match number {
        0 => (Tier::Device, Some("GPU")),
        1 => (Tier::Host, Some("CPU")),
        2 => (Tier::Host, Some("cpu")),
        _ => (Tier::Disk, Some("STORAGE")),
    }
}

fn place_of(spot: &Spot) -> Place {
    let (tier, medium) = tier_of(spot.tier);
    let kind = match spot.group {
        1 => Some(GroupKind::FullAttention),
        2 => Some(GroupKind::SlidingWindow),
        3 => Some(GroupKind::MlaAttention),
        _ => None,
    };
    let group = (spot.group > 0).then(|| Group {
        index: u32::from(spot.group),
        kind: kind.filter(|_| spot.tells_kind),
        window: None,
    });
    Place { medium: medium.map(str::to_owned), group, ..Place::of(tier) }
}

impl World {
    pub(crate) fn key(&self, namespace: u8, path: &[u8]) -> u64 {
        let mut bytes = vec![namespace];
        bytes.extend(path);
        xxh3_64_with_seed(&bytes, self.seed)
    }

    fn hash(&self, namespace: u8, path: &[u8], wide: bool) -> BlockHash {
        let key = self.key(namespace, path);
        if !wide {
            return BlockHash::from_u64(key);
        }
        let mut bytes = [7; 16];
        bytes[8..].copy_from_slice(&key.to_be_bytes());
        BlockHash::from_bytes(&bytes).unwrap()
    }

    pub(crate) fn event(&self, op: &Op) -> Event {
        match op {
            Op::Store(store) => Event::Stored(self.stored(store)),
            Op::Remove { at, spot } => Event::Removed(Removed {
                hashes: vec![self.hash(at.namespace, &at.path, at.wide)],
                place: place_of(spot),
            }),
            Op::Move { at, from, to } => Event::Moved(Moved {
                hash: self.hash(at.namespace, &at.path, at.wide),
                from: tier_of(*from).0,
                to: tier_of(*to).0,
            }),
            Op::Clear => Event::Cleared(Cleared {
                scope: Scope::Tiers(vec![Tier::Device]),
                cause: ClearCause::Engine,
            }),
            Op::Noise => Event::Unknown("pinned".to_owned()),
        }
    }

    fn stored(&self, store: &Store) -> Stored {
        let Store { at, count, size, form, spot } = store;
        let (size, form) = (*size, *form);
        let step = usize::try_from(size / UNIT).unwrap();
        let blocks_all = at.path.len() / step;
        let first = blocks_all.saturating_sub((*count).max(1));
        let (lora, salt) = namespace_of(at.namespace);
        let mut blocks = Vec::new();
        let mut extra = Vec::new();
        for i in first..blocks_all {
            let part = &at.path[i * step..(i + 1) * step];
            let dense = form != Form::Placeholder;
            blocks.push(StoredBlock {
                hash: self.hash(at.namespace, &at.path[..(i + 1) * step], at.wide),
                content: dense.then(|| content_hash(&tokens(part))),
            });
            let mut keys: Vec<ExtraKey> =
                lora.iter().map(|lora| ExtraKey::Text((*lora).to_owned())).collect();
            for (offset, _) in part.iter().enumerate().filter(|(_, symbol)| **symbol == IMAGE) {
                let offset = i64::try_from(offset).unwrap();
                keys.push(ExtraKey::Item { id: "image".to_owned(), offset });
            }
            if i == 0 {
                keys.extend(salt.iter().map(|salt| ExtraKey::Text((*salt).to_owned())));
            }
            extra.push(keys);
        }
        let parent = match form {
            Form::Placeholder => Parent::Unknown,
            Form::WrongParent => Parent::Root,
            Form::Dense | Form::Partial if first == 0 => Parent::Root,
            Form::Dense | Form::Partial => {
                Parent::Block(self.hash(at.namespace, &at.path[..first * step], at.wide))
            }
        };
        let told = &at.path[first * step..blocks_all * step];
        Stored {
            parent,
            block_size: if form == Form::Placeholder { 0 } else { size },
            tokens: Tokens(if form == Form::Placeholder { Vec::new() } else { tokens(told) }),
            blocks,
            partial: form == Form::Partial,
            bigram: false,
            place: place_of(spot),
            lora: lora.map(str::to_owned),
            lora_id: None,
            salt: salt.map(str::to_owned),
            extra,
            session: None,
        }
    }
}

fn at() -> impl Strategy<Value = At> {
    let namespace = prop_oneof![6 => Just(0_u8), 1 => 1..4_u8];
    let symbol = prop_oneof![6 => 0..2_u8, 1 => Just(IMAGE)];
    (namespace, prop::collection::vec(symbol, 1..7), any::<bool>())
        .prop_map(|(namespace, path, wide)| At { namespace, path, wide })
}

fn spot() -> impl Strategy<Value = Spot> {
    let tier = prop_oneof![5 => Just(0_u8), 3 => Just(1), 1 => Just(2), 1 => Just(3)];
    let group = prop_oneof![4 => Just(0_u8), 3 => Just(1), 3 => Just(2), 1 => 3..5_u8];
    (tier, group, any::<bool>()).prop_map(|(tier, group, tells_kind)| Spot {
        tier,
        group,
        tells_kind,
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let form = prop_oneof![
        8 => Just(Form::Dense),
        2 => Just(Form::Placeholder),
        1 => Just(Form::Partial),
        1 => Just(Form::WrongParent),
    ];
    let size = prop_oneof![3 => Just(UNIT), 1 => Just(2 * UNIT)];
    prop_oneof![
        60 => (at(), 1..5_usize, size, form, spot())
            .prop_map(|(at, count, size, form, spot)| Store { at, count, size, form, spot })
            .prop_map(Op::Store),
        40 => (at(), spot()).prop_map(|(at, spot)| Op::Remove { at, spot }),
        8 => (at(), 0..4_u8, 0..4_u8).prop_map(|(at, from, to)| Op::Move { at, from, to }),
        1 => Just(Op::Clear),
        1 => Just(Op::Noise),
    ]
}
