//! Bytes from someone who means harm, in the native stream: named errors, bounded memory, no panic,
//! no secrets.

use std::fs;

use kvbridge_adapters_trtllm::stream::{Decoded, Decoder, Limits, LostKind, Reason};
use kvbridge_schemas::{Event, ExtraKey, StoredBlock};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    recorded::{folder, unhex},
    sound::check,
    stream::{batch, decode, removed, stored},
    writer::{V, array, int, ints, map, text},
};

/// Every payload that the script wrote.
fn payloads() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(folder().join("trtllm-native-derived.jsonl")).expect("frames");
    let payload = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("a record");
        let payload = record["frames_hex"].as_array().and_then(|frames| frames.last()?.as_str());
        unhex(payload.expect("a payload"))
    };
    text.lines().map(payload).filter(|payload| !payload.is_empty()).collect()
}

#[test]
fn truncated_anywhere_is_a_lost_body() {
    let payloads = payloads();
    assert_eq!(payloads.len(), 12);
    for (index, payload) in payloads.iter().enumerate() {
        for end in 0..payload.len() {
            let decoded = decode(&payload[..end]);
            check(&decoded);
            assert!(decoded.body.is_some(), "payload {index} cut at {end}");
        }
    }
}

#[test]
fn nesting_costs_no_stack() {
    const DEPTH: usize = 1 << 20;
    let deep = V::Raw([vec![0x91; DEPTH], vec![0xc0]].concat());
    let faulty = ["token_ids", "mm_keys", "block_hashes", "medium"];
    let borne = ["unknown", "extra_keys"];
    for (field, faults) in faulty.map(|it| (it, 1)).into_iter().chain(borne.map(|it| (it, 0))) {
        let events = [removed(1), stored([(field, deep.clone())]), removed(2)];
        let decoded = decode(&batch(events).pack());
        check(&decoded);
        assert_eq!((decoded.body, decoded.faults.len()), (None, faults), "{field}");
    }
}

#[test]
fn claimed_length_is_refused_before_memory_is_taken() {
    for marker in [0xdd, 0xdf, 0xc6, 0xdb, 0xc9] {
        let huge = || V::Raw(vec![marker, 0xff, 0xff, 0xff, 0xff]);
        let fields = ["block_hashes", "parent_block_hash", "token_ids", "extra_keys", "mm_keys"];
        let inside = fields.map(|field| batch([stored([(field, huge())])]));
        let deeper = [
            batch([stored([("mm_keys", array([huge(), V::Nil]))])]),
            batch([stored([("mm_keys", array([array([huge()]), V::Nil]))])]),
            batch([stored([("token_ids", array([text("a"), huge()]))])]),
            batch([huge()]),
        ];
        for payload in inside.into_iter().chain(deeper) {
            let decoded = decode(&payload.pack());
            check(&decoded);
            assert!(decoded.body.is_some(), "{payload:?}");
        }
    }
}

#[test]
fn wrong_type_of_any_field_is_named() {
    let values = || {
        vec![
            V::Float(1.5),
            V::Raw(vec![0xc3]),
            V::Raw(vec![0xd4, 1, 1]),
            text("x"),
            V::Bytes(vec![1]),
            int(1),
            int(-1),
            ints([1]),
            map([("a", int(1))]),
            V::Nil,
        ]
    };
    // Field, and which of the values above it takes.
    let fields: [(&'static str, &[usize]); 9] = [
        ("block_hashes", &[7]),
        ("parent_block_hash", &[4, 5, 6, 9]),
        ("token_ids", &[7]),
        ("block_size", &[5]),
        ("lora_id", &[5, 6, 9]),
        ("lora_name", &[3, 9]),
        ("medium", &[3, 9]),
        ("locality", &[3, 9]),
        ("mm_keys", &[9]),
    ];
    for (field, takes) in fields {
        for (index, value) in values().into_iter().enumerate() {
            let events = [removed(1), stored([(field, value.clone())]), removed(2)];
            let decoded = decode(&batch(events).pack());
            check(&decoded);
            if takes.contains(&index) {
                assert_eq!(decoded.faults, [], "{field} {value:?}");
                continue;
            }
            let [fault] = decoded.faults.as_slice() else { panic!("{field} took {value:?}") };
            assert_eq!((fault.index, fault.kind, fault.field), (1, LostKind::Stored, Some(field)));
            assert!(matches!(fault.reason, Reason::WrongType | Reason::OutOfRange));
            assert_eq!(decoded.batch.events.len(), 2);
        }
    }
}

#[test]
fn media_that_pairs_with_no_block_loses_its_event() {
    let key = || map([("type", text("mm_key")), ("hash", text("ab")), ("start_offset", int(4))]);
    let reason = |keys: V| {
        let decoded = decode(&batch([stored([("mm_keys", keys)])]).pack());
        decoded.faults.first().map(|fault| (fault.field, fault.reason))
    };
    assert_eq!(reason(array([array([key()]), V::Nil])), None);
    assert_eq!(reason(array([V::Nil])), None);
    let named = |reason| Some((Some("mm_keys"), reason));
    assert_eq!(reason(array([array([key()])])), named(Reason::Unpaired));
    let nameless = map([("start_offset", int(4))]);
    assert_eq!(reason(array([array([nameless]), V::Nil])), named(Reason::Missing));
}

#[test]
fn limits_hold() {
    let limits = Limits {
        hashes_per_event: 2,
        tokens_per_event: 8,
        extra_keys_per_event: 3,
        items_per_batch: 9,
        extra_key_bytes: 5,
        ..Limits::default()
    };
    let decoder = Decoder::new(limits, vec![]);
    let fault = |event: V| {
        let payload = batch([event]).pack();
        let Ok(Decoded::Batch(decoded)) = decoder.decode(&[0; 8], &payload) else {
            panic!("a batch")
        };
        assert_eq!(decoded.body, None);
        decoded.faults.first().map(|fault| (fault.field, fault.reason))
    };
    let many = |field| Some((Some(field), Reason::TooMany));
    assert_eq!(fault(stored([])), None);
    assert_eq!(fault(stored([("block_hashes", ints(0..3))])), many("block_hashes"));
    assert_eq!(fault(stored([("token_ids", ints(0..9))])), many("token_ids"));
    assert_eq!(fault(stored([("mm_keys", V::Array(vec![V::Nil; 4]))])), many("mm_keys"));
    let digests = V::Array(vec![text("a"); 8]);
    assert_eq!(fault(stored([("token_ids", digests)])), many("token_ids"));
    let long = V::Array(vec![text("abcdef")]);
    assert_eq!(fault(stored([("token_ids", long)])), Some((Some("token_ids"), Reason::TooLong)));
}

#[test]
fn memory_follows_the_bytes_that_came() {
    let count = 100_000;
    let item = || map([("hash", text(""))]);
    let events = [
        stored([("block_hashes", ints(std::iter::repeat_n(1, count)))]),
        stored([("token_ids", ints(std::iter::repeat_n(1, count)))]),
        stored([("mm_keys", array([V::Array(vec![item(); count]), V::Nil]))]),
    ];
    let decoded = decode(&batch(events).pack());
    assert_eq!(decoded.faults, []);
    let room = |event: &Event| match event {
        Event::Stored(stored) => {
            let keys: usize = stored.extra.iter().map(Vec::capacity).sum();
            stored.blocks.capacity() * size_of::<StoredBlock>()
                + stored.tokens.0.capacity() * size_of::<u32>()
                + stored.extra.capacity() * size_of::<Vec<ExtraKey>>()
                + keys * size_of::<ExtraKey>()
        }
        _ => 0,
    };
    let total: usize = decoded.batch.events.iter().map(room).sum();
    let dearest = size_of::<StoredBlock>().max(size_of::<ExtraKey>());
    assert!(total <= 2 * dearest * decoded.batch.bytes as usize, "{total}");
}

#[test]
fn nothing_secret_is_in_the_debug_form() {
    let secret = "correct-horse";
    let tokens = || ints([1, 2, 3, 4, 5, 6, 7, 987_654]);
    let key = map([("hash", text(secret)), ("start_offset", int(0))]);
    let media = || array([array([key.clone()]), V::Nil]);
    let good = [("mm_keys", media()), ("token_ids", tokens())];
    let bad = [("mm_keys", media()), ("token_ids", tokens()), ("block_size", text(secret))];
    let digests = [("token_ids", V::Array(vec![text(secret); 8])), ("block_size", text("x"))];
    let unknown = map([("type", text("correct-horse battery")), ("token_ids", tokens())]);
    let decoded = decode(&batch([stored(good), stored(bad), stored(digests), unknown]).pack());
    assert_eq!((decoded.batch.events.len(), decoded.faults.len()), (1, 3));
    let shown = format!("{decoded:?}");
    assert!(!shown.contains("correct") && !shown.contains("987654"), "{shown}");
}

proptest! {
    #[test]
    fn mutated_payloads_do_not_panic(
        payload in 0..12_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut payload = payloads().swap_remove(payload);
        for (at, byte) in changes {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        if cuts {
            payload.truncate(cut.index(payload.len()));
        }
        let decoded = decode(&payload);
        check(&decoded);
        prop_assert_eq!(decode(&payload), decoded);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(payload in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&decode(&payload));
        let inside = batch([removed(1), V::Raw(payload), stored([])]).pack();
        check(&decode(&inside));
    }
}
