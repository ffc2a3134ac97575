//! What one answer of an engine may cost, and what is remembered of a rank.

/// Longest answer, in bytes. A token is about 60 bytes of JSON, so a prefill of 8192 tokens is half
/// a megabyte and a buffer of 100,000 events with one block each about 200 MB. A longer answer is
/// not read: what it held is lost and every rank of the instance starts over.
pub const BODY_BYTES_MAX: usize = 256 << 20;

/// Longest answer of `/server_info`; it is a page of settings. A longer one tells nothing, and the
/// engine is not read.
pub const SERVER_INFO_BYTES_MAX: usize = 1 << 20;

/// Most events in one answer: twice what an engine of two ranks keeps with the usual 100,000. More
/// is not read.
pub const EVENTS_PER_BODY_MAX: usize = 1 << 18;

/// Most hashes in one event: a context of 16 million tokens in blocks of 16. An event with more is
/// lost.
pub const HASHES_PER_EVENT_MAX: usize = 1 << 20;

/// Longest hash, salt or media name, in bytes: from requests of customers, so far above any that
/// is meant. An event with a longer one is lost.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Blocks remembered of a rank, because a removal names neither tier nor descendants. An engine
/// with more resident at a time has its further stores left out, which is a loss of stores.
pub const BLOCKS_MAX: usize = 8 << 20;

/// Partial blocks remembered of a rank. The engine lets some of them go without a word, so the
/// oldest are forgotten: they serve no match.
pub const PARTIALS_MAX: usize = 1 << 16;
