//! What one message may cost. Everything is checked before memory is taken for it.

/// Longest payload, in bytes. A prefill of 8192 tokens is about 40 kB and a burst of them stays
/// below 1 MB; an engine sends nothing that is a hundred times larger. The ZeroMQ layer has no cap
/// of its own.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Most events in one batch. One removal event per evicted block is the engine's worst habit; a
/// step that turned over four million tokens of 16-token blocks would send this many.
pub const EVENTS_PER_BATCH_MAX: usize = 1 << 18;

/// Most hashes in one event: a context of 16 million tokens in blocks of 16.
pub const HASHES_PER_EVENT_MAX: usize = 1 << 20;

/// Most token ids in one event: a context of 16 million tokens, announced at once.
pub const TOKENS_PER_EVENT_MAX: usize = 1 << 24;

/// Most extra-key entries and items in one event. The engine sends one entry per hash, nearly
/// always nil or with one item.
pub const EXTRA_KEYS_PER_EVENT_MAX: usize = 1 << 20;

/// Most hashes plus extra-key entries and items in one batch. One byte on the wire can become a
/// 56-byte block, so without a bound over the whole batch 64 MiB could ask for more than 3 GiB.
pub const ITEMS_PER_BATCH_MAX: usize = 1 << 21;

/// Longest text of a field that an operator or the engine names: medium, adapter, kind, locality,
/// ownership. The longest seen is an adapter name of tens of bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// Longest text or digest in an extra key. Salts and media ids come from the requests of customers,
/// so this must be far above [`TEXT_BYTES_MAX`]: a refused event lowers trust, and no tenant may do
/// that.
pub const EXTRA_KEY_BYTES_MAX: usize = 1 << 20;

/// The limits of one decoder. The defaults are the constants of this module; a caller may lower
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
    /// See [`EVENTS_PER_BATCH_MAX`].
    pub events_per_batch: usize,
    /// See [`HASHES_PER_EVENT_MAX`].
    pub hashes_per_event: usize,
    /// See [`TOKENS_PER_EVENT_MAX`].
    pub tokens_per_event: usize,
    /// See [`EXTRA_KEYS_PER_EVENT_MAX`].
    pub extra_keys_per_event: usize,
    /// See [`ITEMS_PER_BATCH_MAX`].
    pub items_per_batch: usize,
    /// See [`TEXT_BYTES_MAX`].
    pub text_bytes: usize,
    /// See [`EXTRA_KEY_BYTES_MAX`].
    pub extra_key_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: PAYLOAD_BYTES_MAX,
            events_per_batch: EVENTS_PER_BATCH_MAX,
            hashes_per_event: HASHES_PER_EVENT_MAX,
            tokens_per_event: TOKENS_PER_EVENT_MAX,
            extra_keys_per_event: EXTRA_KEYS_PER_EVENT_MAX,
            items_per_batch: ITEMS_PER_BATCH_MAX,
            text_bytes: TEXT_BYTES_MAX,
            extra_key_bytes: EXTRA_KEY_BYTES_MAX,
        }
    }
}
