//! The native stream: what the engine publishes over ZeroMQ once its `kv_events_config` is set.
//!
//! Bytes to [`Batch`](kvbridge_adapters_api::Batch), without I/O and without state. It was built
//! from the engine's sources (change 17023 and the sink in C++ after it) and compared with a
//! derivation in another language; no bytes of a real engine were ever seen. What it cannot say is
//! in [`capabilities`].
//!
//! ```
//! use kvbridge_adapters_trtllm::stream::{Decoded, Decoder};
//!
//! // [ts, [{"type": "AllBlocksCleared"}], 0]
//! let payload =
//!     [&[0x93, 0x01, 0x91, 0x81, 0xa4], &b"type\xb0AllBlocksCleared"[..], &[0x00]].concat();
//! let decoded = Decoder::default().decode(&7_u64.to_be_bytes(), &payload).expect("a seq frame");
//! let Decoded::Batch(decoded) = decoded else { panic!("a batch") };
//! assert_eq!((decoded.batch.seq.0, decoded.batch.events.len()), (7, 1));
//! assert!(decoded.faults.is_empty());
//! ```

use kvbridge_adapters_api::{Capabilities, Continuity, Drain, Knobs, Removal, Replay};
use kvbridge_adapters_msgpack::{Dialect, Fault, Opened, Read, Reader, fill_content};
use kvbridge_schemas::{
    ClearCause, Cleared, Event, HashScheme, Parent, Place, Removed, Scope, Stored, Tier, Tokens,
};

pub use kvbridge_adapters_msgpack::{
    BodyError, Decoded, DecodedBatch, EventFault, FrameError, Limits, LostKind, Reason, limits,
};

use crate::wire::stream::{self, RawEvent, RawPlace, RawRemoved, RawStored};

/// Format of every batch of the native stream.
pub const FORMAT_MAP: &str = Native::FORMAT_MAP;

/// What the engine hashes blocks with where it publishes: no other algorithm can be chosen there.
const SCHEME: &str = "trtllm.v2_sha256_64";

/// What an operator sets at the engine.
pub const KNOBS: Knobs = Knobs {
    events: "kv_cache_config.kv_events_config with enable_kv_cache_events, in a build that has it (about 1.3.0rc26 on); enable_block_reuse on",
    endpoint: "kv_events_config.endpoint, e.g. tcp://*:5557; rank r has port + r",
    journal: "kv_events_config.replay_endpoint, e.g. tcp://*:5657",
    buffer: "kv_events_config.buffer_steps (10000 batches unless set)",
    hashes: "nothing: they are v2_sha256_64",
    block_size: "kv_cache_config.tokens_per_block",
    releases: &[(FORMAT_MAP, "about 1.3.0rc26 on")],
};

/// Decodes the messages of one publisher.
pub type Decoder = kvbridge_adapters_msgpack::Decoder<Native>;

/// The events of the native stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

/// The capabilities of a publisher. `replay`: its `replay_endpoint` is set. `bind`: we bind and the
/// engine connects, which none is known to do.
///
/// Stores above `max_entries` of one iteration are left out without a word, and in the sink in C++
/// all that would hang below them: the source must say so
/// ([`Unannounced`](kvbridge_adapters_api::SourceEvent::Unannounced)), and no view of it is exact.
pub fn capabilities(replay: bool, bind: bool) -> Capabilities {
    Capabilities {
        // Seqs restart at 0 with the process, and nothing else tells lives apart.
        epoch_on_wire: false,
        replay: if replay { Replay::Journal } else { Replay::Absent },
        snapshot: None,
        continuity: if bind { Continuity::Unproven } else { Continuity::Proven },
        // A tree holds a block once, and what is removed has left it.
        removal: Removal::LastCopy,
        clear_scope: Scope::Tiers(vec![Tier::Device]),
        drain: Drain::Shared,
        // What was left out is in the pool too.
        one_hash_per_block: false,
    }
}

impl Dialect for Native {
    const RANK: &'static str = stream::RANK;
    /// A batch without events has no form.
    const FORMAT_ARRAY: &'static str = "trtllm.map";
    const FORMAT_MAP: &'static str = "trtllm.map";

    fn read<'a>(reader: &mut Reader<'a, '_>, opened: Opened<'a>) -> Result<Read<'a>, Fault> {
        Ok(match stream::read(reader, opened)? {
            RawEvent::Stored(raw) => stored(raw),
            RawEvent::Removed(RawRemoved { hashes, place: raw }) => {
                Read::Event(Event::Removed(Removed { hashes, place: place(&raw) }))
            }
            RawEvent::Cleared => {
                let scope = Scope::Tiers(vec![Tier::Device]);
                Read::Event(Event::Cleared(Cleared { scope, cause: ClearCause::Engine }))
            }
            RawEvent::Unknown(tag) => Read::Unknown(tag),
        })
    }

    fn hash_scheme() -> HashScheme {
        HashScheme::Named(SCHEME.to_owned())
    }
}

/// A store, or two: no query of plain tokens may reach a block that holds a media digest, nor what
/// is below it, but what is above it is like any other.
fn stored(mut raw: RawStored<'_>) -> Read<'_> {
    let parent = match raw.parent.take() {
        Some(hash) => Parent::Block(hash),
        // Not known to be sent: nothing says then that there is no parent.
        None if raw.tokens.is_empty() => Parent::Unknown,
        None => Parent::Root,
    };
    let cut = plain_count(&raw);
    if cut == raw.blocks.len() {
        return Read::Event(Event::Stored(plain(raw, parent)));
    }
    let Some(last) = cut.checked_sub(1).and_then(|last| raw.blocks.get(last)) else {
        return Read::Event(Event::Stored(opaque(raw, parent)));
    };
    let below = Parent::Block(last.hash.clone());
    let rest = RawStored {
        blocks: raw.blocks.split_off(cut),
        media: raw.media.split_off(cut.min(raw.media.len())),
        block_size: raw.block_size,
        lora_id: raw.lora_id,
        lora_name: raw.lora_name,
        place: raw.place,
        ..RawStored::default()
    };
    raw.tokens.truncate(size_of_block(&raw).saturating_mul(cut));
    let both = [plain(raw, parent), opaque(rest, below)];
    Read::Two(Box::new(both.map(Event::Stored)))
}

fn size_of_block(raw: &RawStored<'_>) -> usize {
    usize::try_from(raw.block_size).unwrap_or(usize::MAX)
}

/// How many blocks stand above the first of which the content cannot be told.
fn plain_count(raw: &RawStored<'_>) -> usize {
    // Routers ask by an adapter's name: beside its number alone the blocks would look plain.
    let is_nameless = raw.lora_id.is_some() && raw.lora_name.is_none();
    if raw.has_extra || is_nameless {
        return 0;
    }
    let Some(first) = raw.digests.first() else { return raw.blocks.len() };
    let size = size_of_block(raw);
    let is_dense = size.checked_mul(raw.blocks.len()) == Some(raw.tokens.len());
    let at = usize::try_from(*first).unwrap_or(usize::MAX);
    if is_dense { at.checked_div(size).unwrap_or(0) } else { 0 }
}

fn plain(mut raw: RawStored<'_>, parent: Parent) -> Stored {
    fill_content(&raw.tokens, raw.block_size, 0, &mut raw.blocks);
    let count = raw.tokens.len();
    // Only full blocks are published; one that falls short of what its event says would be partial.
    let partial = raw.blocks.len() == 1 && count > 0 && count < size_of_block(&raw);
    let tokens = std::mem::take(&mut raw.tokens);
    told(raw, parent, tokens, partial)
}

fn opaque(raw: RawStored<'_>, parent: Parent) -> Stored {
    told(raw, parent, Vec::new(), false)
}

fn told(raw: RawStored<'_>, parent: Parent, tokens: Vec<u32>, partial: bool) -> Stored {
    Stored {
        parent,
        block_size: raw.block_size,
        tokens: Tokens(tokens),
        blocks: raw.blocks,
        partial,
        bigram: false,
        place: place(&raw.place),
        lora: raw.lora_name.map(str::to_owned),
        lora_id: raw.lora_id,
        // It is in the hashes and in no event.
        salt: None,
        extra: raw.media,
        session: None,
    }
}

fn place(raw: &RawPlace<'_>) -> Place {
    let tier = match raw.medium {
        None => Tier::Device,
        Some(medium) if medium.eq_ignore_ascii_case("GPU") => Tier::Device,
        // Nothing is known to send another one.
        Some(medium) => Tier::Other(medium.to_owned()),
    };
    let own = |text: Option<&str>| text.map(str::to_owned);
    Place { medium: own(raw.medium), locality: own(raw.locality), ..Place::of(tier) }
}
