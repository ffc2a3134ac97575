//! Events of several releases, as a test sends them.

pub(crate) use crate::writer::{V, array, int, ints, map, text};

/// A batch of 0.9.1 on, rank 0.
pub(crate) fn batch(events: impl IntoIterator<Item = V>) -> V {
    array([V::Float(1_750_000_000.25), V::Array(events.into_iter().collect()), int(0)])
}

/// A store of 0.9: two blocks of four tokens at the root.
pub(crate) fn stored_array() -> V {
    array([text("BlockStored"), ints([11, 12]), V::Nil, ints(1..=8), int(4), V::Nil])
}

/// The fields of a store of 0.33 that every map has, and those of `more` in their place or behind.
pub(crate) fn stored_map<const N: usize>(more: [(&str, V); N]) -> V {
    let mut pairs = vec![
        (text("type"), text("BlockStored")),
        (text("block_hashes"), ints([11, 12])),
        (text("parent_block_hash"), V::Nil),
        (text("token_ids"), ints(1..=8)),
        (text("block_size"), int(4)),
        (text("lora_id"), V::Nil),
        (text("medium"), text("GPU")),
        (text("lora_name"), V::Nil),
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

pub(crate) fn removed_array(hash: i128) -> V {
    array([text("BlockRemoved"), ints([hash]), text("GPU")])
}

pub(crate) fn cleared() -> V {
    array([text("AllBlocksCleared")])
}
