//! Any bytes as an envelope: no panic, and what was read is written and read as the same.
#![no_main]

use kvbridge_schemas::{Envelope, codec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(envelope) = codec::decode_msgpack::<Envelope>(bytes) else { return };
    let again = codec::decode_msgpack(&codec::encode_msgpack(&envelope));
    assert!(again.as_ref() == Ok(&envelope), "an envelope changed on its way");
});
