//! The fields of an event of the native stream.

use kvbridge_adapters_msgpack::Shape;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    LoraName,
    Medium,
    ExtraKeys,
    Locality,
    MediaKeys,
}

/// No layout: the engine sends maps alone, and what it does not send is not read by its place.
pub(super) const STORED: Shape<Field> = Shape {
    layout: &[],
    required: &[Field::BlockHashes, Field::Parent, Field::TokenIds, Field::BlockSize],
};

pub(super) const REMOVED: Shape<Field> = Shape { layout: &[], required: &[Field::BlockHashes] };

impl kvbridge_adapters_msgpack::Field for Field {
    /// The field of that key. Group, kind and window are among what is skipped: the engine
    /// publishes one group alone, and a store that names it beside a removal that does not would
    /// be a ghost.
    fn from_key(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"block_hashes" => Field::BlockHashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::TokenIds,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"lora_name" => Field::LoraName,
            b"medium" => Field::Medium,
            b"extra_keys" => Field::ExtraKeys,
            b"locality" => Field::Locality,
            b"mm_keys" => Field::MediaKeys,
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
            Field::LoraName => "lora_name",
            Field::Medium => "medium",
            Field::ExtraKeys => "extra_keys",
            Field::Locality => "locality",
            Field::MediaKeys => "mm_keys",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}
