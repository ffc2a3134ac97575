//! The fields of an event: their keys and their places in the arrays of older releases.

use kvbridge_adapters_msgpack::Shape;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    /// A map that may hold a salt, or a list of component types.
    Eighth,
    LoraName,
    CacheSalt,
    SessionId,
    NamespacedHashes,
    NamespacedParent,
}

/// Arrays of 0.4.9 have no medium; only those of salted stores have an eighth element.
pub(super) const STORED: Shape<Field> = Shape {
    layout: &[
        Field::BlockHashes,
        Field::Parent,
        Field::TokenIds,
        Field::BlockSize,
        Field::LoraId,
        Field::Medium,
        Field::Eighth,
    ],
    required: &[Field::BlockHashes, Field::Parent, Field::TokenIds, Field::BlockSize],
};

pub(super) const REMOVED: Shape<Field> =
    Shape { layout: &[Field::BlockHashes, Field::Medium], required: &[Field::BlockHashes] };

impl kvbridge_adapters_msgpack::Field for Field {
    fn from_key(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"block_hashes" => Field::BlockHashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::TokenIds,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"medium" => Field::Medium,
            b"metadata" => Field::Eighth,
            b"lora_name" => Field::LoraName,
            b"cache_salt" => Field::CacheSalt,
            b"session_id" => Field::SessionId,
            b"namespaced_block_hashes" => Field::NamespacedHashes,
            b"namespaced_parent_block_hash" => Field::NamespacedParent,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Field::BlockHashes => "block_hashes",
            Field::Parent => "parent_block_hash",
            Field::TokenIds => "token_ids",
            Field::BlockSize => "block_size",
            Field::LoraId => "lora_id",
            Field::Medium => "medium",
            Field::Eighth => "metadata",
            Field::LoraName => "lora_name",
            Field::CacheSalt => "cache_salt",
            Field::SessionId => "session_id",
            Field::NamespacedHashes => "namespaced_block_hashes",
            Field::NamespacedParent => "namespaced_parent_block_hash",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}
