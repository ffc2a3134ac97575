//! What a decoder accepts at most. Each limit is checked before memory is taken for what it bounds.
//!
//! The encoder does not look at them: what an engine can send stays far below, and adapters have
//! bounds of their own.

/// Bytes of one msgpack message: the most a NATS server can be configured to carry in one.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of one JSON text. Twice the payload: hex doubles a hash, and decimal token ids grow less.
pub const JSON_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX;

/// Nesting of one message. The schema needs 6; the rest is room for fields of later minor versions.
pub const DEPTH_MAX: usize = 32;

/// Events of one envelope. SGLang sends one event per page and may run with pages of one token, so
/// a 128k prompt is 131 072 events in one batch; twice that.
pub const EVENTS_MAX: usize = 262_144;

/// Blocks, hashes or lists of extra keys of one event: a prompt of a million tokens in blocks of 4.
pub const HASHES_MAX: usize = 262_144;

/// Token ids of one event: twice the longest context served today.
pub const TOKENS_MAX: usize = 2 * 1024 * 1024;

/// Blocks, hashes, lists of extra keys and tiers of all events of one envelope. The limits above,
/// multiplied, would let a small message of empty items claim gigabytes.
pub const ITEMS_MAX: usize = 1024 * 1024;

/// Extra keys of one block: adapter, salt and every media item that touches it.
pub const EXTRA_KEYS_MAX: usize = 1024;

/// Tiers in the scope of one clear; engines know about five.
pub const TIERS_MAX: usize = 64;

/// Records of one snapshot chunk: beyond this a chunk no longer fits a bus message.
pub const RECORDS_MAX: usize = 262_144;

/// Digests of the newest batches in one snapshot header: sixteen times the ring that bridges keep.
pub const DIGESTS_MAX: usize = 65_536;

/// Names of ended lives in one snapshot header; bridges keep sixteen.
pub const LIVES_MAX: usize = 1_024;
