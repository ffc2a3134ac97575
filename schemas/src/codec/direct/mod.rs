//! The messages that come by the thousand, without serde: envelopes and snapshot records.
//!
//! Through serde a block of 16 tokens cost 173 ns in a store of many and 578 ns in one of its own,
//! and a record 168 ns: every value is dispatched by itself, and moved once for each layer of named
//! faults. Here, where a value is read where it belongs, they cost a third
//! (`docs/performance.md`).
//!
//! The direct reader takes what our own writers make, with unknown fields and words. At anything
//! else (another type, a null, a field twice, a limit passed, an end too early) it gives up and
//! says nothing; serde then reads the message from its start and decides. So a message can be read
//! faster, never differently, and faults are named in one place. Debug builds (the tests, the
//! simulators, the fuzzers) read and write every message both ways and compare.

mod events;
mod read;
#[cfg(test)]
mod tests;
mod write;

use super::wire::{Show, Wire};

/// Writes `message`.
pub(super) fn encode<W: Wire>(message: &W) -> Vec<u8> {
    match message.write_direct() {
        Some(bytes) => {
            debug_assert!(bytes == by_serde(message), "both writers write the same bytes");
            bytes
        }
        None => by_serde(message),
    }
}

fn by_serde<W: Wire>(message: &W) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let mut to = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    message.write(Show::All, &mut to).expect("memory takes any message, and every length is known");
    bytes
}

/// Whether serde reads `payload` as this message: both ways write it alike.
pub(super) fn same<W: Wire>(message: &W, payload: &[u8]) -> bool {
    super::serde_msgpack::<W>(payload).is_ok_and(|read| by_serde(&read) == by_serde(message))
}

pub(super) use read::{chunk, envelope, record};
pub(super) use write::{write_chunk, write_envelope, write_record};
