//! The fields of an event: their keys and their places in the arrays of older releases.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    GroupIdx,
    SpecKind,
    SlidingWindow,
    Locality,
    Ownership,
    SessionId,
}

/// Elements after the tag, in the layout of 0.22 and 0.23; older releases end earlier.
pub(super) const STORED_LAYOUT: [Field; 11] = [
    Field::BlockHashes,
    Field::Parent,
    Field::TokenIds,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::GroupIdx,
    Field::SpecKind,
    Field::SlidingWindow,
];
/// Length, with the tag, of the layout of 0.17 to 0.19.1: the only one in which media ids may be
/// bare.
pub(super) const BARE_MEDIA_LAYOUT_LEN: usize = 9;
/// Every release sends these, nil or empty where there is nothing to say.
pub(super) const STORED_REQUIRED: [Field; 4] =
    [Field::BlockHashes, Field::Parent, Field::TokenIds, Field::BlockSize];
pub(super) const REMOVED_LAYOUT: [Field; 3] = [Field::BlockHashes, Field::Medium, Field::GroupIdx];
pub(super) const REMOVED_REQUIRED: [Field; 1] = [Field::BlockHashes];

impl kvbridge_adapters_msgpack::Field for Field {
    /// The field of that key; `lookahead_token_ids` (0.33) is among what is skipped.
    fn from_key(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"block_hashes" => Field::BlockHashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::TokenIds,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"medium" => Field::Medium,
            b"lora_name" => Field::LoraName,
            b"extra_keys" => Field::ExtraKeys,
            b"group_idx" => Field::GroupIdx,
            b"kv_cache_spec_kind" => Field::SpecKind,
            b"kv_cache_spec_sliding_window" => Field::SlidingWindow,
            b"locality" => Field::Locality,
            b"ownership" => Field::Ownership,
            b"session_id" => Field::SessionId,
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
            Field::LoraName => "lora_name",
            Field::ExtraKeys => "extra_keys",
            Field::GroupIdx => "group_idx",
            Field::SpecKind => "kv_cache_spec_kind",
            Field::SlidingWindow => "kv_cache_spec_sliding_window",
            Field::Locality => "locality",
            Field::Ownership => "ownership",
            Field::SessionId => "session_id",
        }
    }

    fn bit(self) -> u32 {
        1 << (self as u32)
    }
}
