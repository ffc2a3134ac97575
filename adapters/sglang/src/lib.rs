//! SGLang KV-cache events: every wire form from 0.4.9 on, decoded and normalised.
//!
//! Bytes to [`Batch`](kvbridge_adapters_api::Batch), without I/O and without state. What cannot be
//! read costs as little as it can: an event its neighbours nothing, a payload its seq nothing.
//!
//! ```
//! use kvbridge_adapters_sglang::{Decoded, Decoder, decode};
//!
//! // SGLang 0.5.9: [ts, [["AllBlocksCleared"]], rank]
//! let payload = [&[0x93, 0x01, 0x91, 0x91, 0xb0], &b"AllBlocksCleared"[..], &[0x00]].concat();
//! let decoded = decode(&Decoder::default(), b"kv", &7_u64.to_be_bytes(), &payload);
//! let Ok(Decoded::Batch(decoded)) = decoded else { panic!("a batch") };
//! assert_eq!(decoded.batch.seq.0, 7);
//! assert_eq!(decoded.batch.events.len(), 1);
//! assert!(decoded.faults.is_empty());
//! ```
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod block_hash;
mod capabilities;
mod knobs;
mod metrics;
mod normalize;
pub mod server_info;
mod snapshot;
mod sources;
mod wire;

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_msgpack::{Dialect, Fault, Opened, Read, Reader};
use kvbridge_schemas::HashScheme;

pub use block_hash::HASH_FUNCTION;
pub use capabilities::{capabilities, snapshot_support};
pub use knobs::KNOBS;
pub use kvbridge_adapters_msgpack::{
    BodyError, Decoded, DecodedBatch, EventFault, FrameError, Limits, LostKind, Reason, limits,
};
pub use metrics::read_metrics;
pub use server_info::{ServerInfo, ServerInfoError};
pub use snapshot::{
    CHUNK_HASHES_MAX, CHUNK_RECORDS_MAX, RECORD_HASHES_MAX, SNAPSHOT_RECORDS_MAX, SNAPSHOT_REQUEST,
    SnapshotFault, SnapshotMessage, SnapshotReader, ends_snapshot,
};
pub use sources::read_sources;
pub use wire::topic::{LIFE_BYTES_MAX, Topic, TopicError};

/// Format of a batch whose events are positional arrays (to 0.5.19), or that has none.
pub const FORMAT_ARRAY: &str = Sglang::FORMAT_ARRAY;
/// Format of a batch whose events are maps (from 0.5.20).
pub const FORMAT_MAP: &str = Sglang::FORMAT_MAP;

/// Decodes the payloads of one publisher; [`decode`] also reads the topic.
pub type Decoder = kvbridge_adapters_msgpack::Decoder<Sglang>;

/// SGLang's events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sglang;

impl Dialect for Sglang {
    const RANK: &'static str = wire::RANK;
    const FORMAT_ARRAY: &'static str = "sglang.array";
    const FORMAT_MAP: &'static str = "sglang.map";

    fn read<'a>(reader: &mut Reader<'a, '_>, opened: Opened<'a>) -> Result<Read<'a>, Fault> {
        wire::read(reader, opened).map(normalize::event)
    }

    /// Releases before SHA-256 have the same form.
    fn hash_scheme() -> HashScheme {
        HashScheme::Unknown
    }
}

/// Decodes one message, live or replayed. A topic that is absent is empty.
///
/// A life that cannot be read costs the body: batches of two lives in one view would be ghosts.
pub fn decode(
    decoder: &Decoder,
    topic: &[u8],
    seq_frame: &[u8],
    payload: &[u8],
) -> Result<Decoded, FrameError> {
    let mut decoded = decoder.decode(seq_frame, payload)?;
    if let Decoded::Batch(read) = &mut decoded {
        match Topic::read(topic) {
            Ok(topic) => {
                if let Some(life) = topic.life {
                    read.batch.incarnation = Some(life.to_owned());
                }
            }
            Err(_) => {
                read.batch.events.clear();
                read.batch.loss = Loss::Body;
                read.faults.clear();
                read.body = Some(BodyError::Life);
            }
        }
    }
    Ok(decoded)
}
