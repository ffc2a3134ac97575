//! Events of several releases, as a test sends them.

pub(crate) use crate::writer::{V, array, int, ints, map, text};

/// A batch, rank 0.
pub(crate) fn batch(events: impl IntoIterator<Item = V>) -> V {
    array([V::Float(1_750_000_000.25), V::Array(events.into_iter().collect()), int(0)])
}

/// A store of 0.4.9, two blocks of four tokens at the root, and what newer releases append.
pub(crate) fn stored_array<const N: usize>(more: [V; N]) -> V {
    let mut items = vec![text("BlockStored"), ints([11, -12]), V::Nil, ints(1..=8), int(4), V::Nil];
    items.extend(more);
    V::Array(items)
}

/// The fields that every map of 0.5.23 has, and those of `more` in their place or behind.
pub(crate) fn stored_map<const N: usize>(more: [(&str, V); N]) -> V {
    let mut pairs = vec![
        (text("type"), text("BlockStored")),
        (text("block_hashes"), ints([11, -12])),
        (text("parent_block_hash"), V::Nil),
        (text("token_ids"), ints(1..=8)),
        (text("block_size"), int(4)),
        (text("lora_id"), V::Nil),
        (text("medium"), text("GPU")),
    ];
    for (key, value) in more {
        let same = |pair: &&mut (V, V)| matches!(&pair.0, V::Text(text) if text == key);
        match pairs.iter_mut().find(same) {
            Some(pair) => pair.1 = value,
            None => pairs.push((text(key), value)),
        }
    }
    V::Map(pairs)
}

/// Pairs as EAGLE has them, of the tokens from `first` to `last`.
pub(crate) fn pairs(first: i128, last: i128) -> V {
    V::Array((first..last).map(|token| ints([token, token + 1])).collect())
}

pub(crate) fn removed(hash: i128) -> V {
    array([text("BlockRemoved"), ints([hash]), text("GPU")])
}

pub(crate) fn cleared() -> V {
    array([text("AllBlocksCleared")])
}
