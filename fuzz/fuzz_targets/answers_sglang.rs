//! What an SGLang engine answers when it is asked: messages of a snapshot (a byte that says which
//! kind, two bytes of length, the payload, and so on), or what it says of its sockets.
//!
//! Nothing panics, no more blocks come than the limits allow, and a snapshot is whole only if it
//! holds as many as it says.
#![no_main]

use kvbridge_adapters_sglang::{
    CHUNK_HASHES_MAX, SnapshotMessage, SnapshotReader, ends_snapshot, server_info,
};
use libfuzzer_sys::fuzz_target;

const KINDS: [&[u8]; 5] = [b"header", b"chunk", b"end", b"error", b"trailer"];

fuzz_target!(|message: &[u8]| {
    if message.first() == Some(&b'{') {
        if let Ok(info) = server_info::read(message) {
            assert!(info.block_size > 0 && info.live.port_of(info.dp_size - 1).is_some());
        }
        return;
    }
    let mut reader = SnapshotReader::default();
    let mut count = 0;
    let mut rest = message;
    while let [kind, high, low, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (payload, more) = more.split_at(length);
        rest = more;
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        match reader.read(kind, payload) {
            Ok(SnapshotMessage::Header) => (),
            Ok(SnapshotMessage::Records(records)) => {
                assert!(records.len() <= CHUNK_HASHES_MAX);
                count += records.len() as u64;
            }
            Ok(SnapshotMessage::Whole(intro)) => {
                assert!(intro.record_count >= count && ends_snapshot(kind));
                return;
            }
            Err(_) => return,
        }
    }
});
