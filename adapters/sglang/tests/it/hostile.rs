//! Bytes from someone who means harm: named errors, bounded memory, no panic, no secrets. What all
//! engines of this form share is tried with vLLM's events.

use kvbridge_adapters_sglang::{Decoder, Limits, LostKind, Reason};
use kvbridge_schemas::{Event, StoredBlock};
use proptest::prelude::*;

use crate::{
    decode, decode_with, fixtures,
    pack::{
        V, array, batch, cleared, int, ints, map, pairs, removed, stored_array, stored_map, text,
    },
    sound::check,
};

#[test]
fn truncated_anywhere_is_a_lost_body() {
    let mut payloads = fixtures::payloads();
    payloads.sort_by_key(Vec::len);
    payloads.truncate(12);
    payloads.push(batch([stored_map([("token_ids", pairs(1, 9))])]).pack());
    for payload in payloads {
        for end in 0..payload.len() {
            let decoded = decode(&payload[..end]);
            check(&decoded);
            assert!(decoded.body.is_some(), "cut at {end}");
        }
    }
}

#[test]
fn claimed_length_is_refused_before_memory_is_taken() {
    for marker in [0xdd, 0xdf, 0xc6, 0xdb, 0xc9] {
        let huge = || V::Raw(vec![marker, 0xff, 0xff, 0xff, 0xff]);
        let payloads = [
            batch([stored_map([("block_hashes", huge())])]),
            batch([stored_map([("namespaced_block_hashes", huge())])]),
            batch([stored_map([("token_ids", huge())])]),
            batch([stored_map([("token_ids", array([ints([1, 2]), huge()]))])]),
            batch([stored_map([("cache_salt", huge())])]),
            batch([stored_array([text("GPU"), huge()])]),
            batch([stored_array([text("GPU"), map([("cache_salt", huge())])])]),
        ];
        for payload in payloads {
            let decoded = decode(&payload.pack());
            check(&decoded);
            assert!(decoded.body.is_some(), "{payload:?}");
        }
    }
}

#[test]
fn nesting_costs_no_stack() {
    const DEPTH: usize = 1 << 20;
    let deep = V::Raw([vec![0x91; DEPTH], vec![0xc0]].concat());
    let events = [
        (stored_map([("token_ids", deep.clone())]), 1),
        (stored_map([("x", deep.clone())]), 0),
        (stored_array([text("GPU"), deep.clone()]), 0),
        (stored_array([text("GPU"), map([("x", deep)])]), 0),
    ];
    for (event, faults) in events {
        let decoded = decode(&batch([removed(1), event, removed(2)]).pack());
        check(&decoded);
        assert_eq!((decoded.body, decoded.faults.len()), (None, faults));
    }
}

#[test]
fn wrong_type_of_any_field_is_named() {
    let values = || {
        vec![
            V::Float(1.5),
            V::Raw(vec![0xc3]),
            text("x"),
            V::Bytes(vec![1]),
            int(1),
            int(-1),
            ints([1, 1]),
            map([("a", int(1))]),
            V::Nil,
        ]
    };
    // Field, and which of the values above it takes.
    let fields: [(&'static str, &[usize]); 12] = [
        ("block_hashes", &[6]),
        ("parent_block_hash", &[3, 4, 5, 8]),
        ("token_ids", &[6]),
        ("block_size", &[4]),
        ("lora_id", &[4, 5, 8]),
        ("medium", &[2, 8]),
        ("metadata", &[6, 7, 8]),
        ("lora_name", &[2, 8]),
        ("cache_salt", &[2, 8]),
        ("session_id", &[2, 8]),
        ("namespaced_block_hashes", &[6, 8]),
        ("namespaced_parent_block_hash", &[3, 4, 5, 8]),
    ];
    for (field, takes) in fields {
        for (index, value) in values().into_iter().enumerate() {
            let payload =
                batch([cleared(), stored_map([(field, value.clone())]), cleared()]).pack();
            let decoded = decode(&payload);
            check(&decoded);
            if takes.contains(&index) {
                assert_eq!(decoded.faults, [], "{field} {value:?}");
                continue;
            }
            let [fault] = decoded.faults.as_slice() else { panic!("{field} took {value:?}") };
            assert_eq!((fault.index, fault.kind, fault.field), (1, LostKind::Stored, Some(field)));
            assert!(matches!(fault.reason, Reason::WrongType | Reason::OutOfRange));
        }
    }
}

#[test]
fn limits_hold() {
    let limits = Limits {
        hashes_per_event: 2,
        tokens_per_event: 8,
        items_per_batch: 5,
        extra_key_bytes: 5,
        ..Limits::default()
    };
    let decoder = Decoder::new(limits, vec![]);
    let faults = |events: Vec<V>| {
        let decoded = decode_with(&decoder, b"", &batch(events).pack());
        let faults = decoded.faults.iter();
        faults.map(|fault| (fault.field, fault.reason)).collect::<Vec<_>>()
    };
    assert_eq!(faults(vec![stored_map([("token_ids", pairs(0, 8))])]), []);
    let many = |field| [(Some(field), Reason::TooMany)];
    assert_eq!(faults(vec![stored_map([("token_ids", pairs(0, 9))])]), many("token_ids"));
    let namespaced = || stored_map([("namespaced_block_hashes", ints([1, 2]))]);
    assert_eq!(faults(vec![namespaced()]), []);
    // Hashes over the whole batch: 2 + 2 + 2 > 5.
    assert_eq!(faults(vec![removed(1), removed(2), namespaced()]), many("namespaced_block_hashes"));
    let salted = stored_map([("cache_salt", text("abcdef"))]);
    assert_eq!(faults(vec![salted]), [(Some("cache_salt"), Reason::TooLong)]);
}

#[test]
fn memory_follows_the_bytes_that_came() {
    let count = 100_000;
    let same = |value| std::iter::repeat_n(value, count);
    let events = [
        stored_map([("block_hashes", ints(same(1))), ("namespaced_block_hashes", ints(same(1)))]),
        stored_map([("token_ids", V::Array(vec![ints([1, 1]); count]))]),
    ];
    let decoded = decode(&batch(events).pack());
    assert_eq!(decoded.faults, []);
    let room = |event: &Event| match event {
        Event::Stored(stored) => {
            stored.blocks.capacity() * size_of::<StoredBlock>()
                + stored.tokens.0.capacity() * size_of::<u32>()
        }
        _ => 0,
    };
    let total: usize = decoded.batch.events.iter().map(room).sum();
    assert!(total <= 2 * size_of::<StoredBlock>() * decoded.batch.bytes as usize, "{total}");
}

#[test]
fn nothing_secret_is_in_the_debug_form() {
    let secret = "correct-horse";
    let tokens = || ints([1, 2, 3, 4, 5, 6, 7, 987_654]);
    let keys = || [("token_ids", tokens()), ("cache_salt", text(secret))];
    let [tokens_key, salt] = keys();
    let session = ("session_id", text(secret));
    let good = stored_map([tokens_key, salt, session]);
    let [tokens_key, salt] = keys();
    let bad = stored_map([tokens_key, salt, ("block_size", text(secret))]);
    let decoded = decode(&batch([good, bad]).pack());
    assert_eq!((decoded.batch.events.len(), decoded.faults.len()), (1, 1));
    let shown = format!("{decoded:?}");
    assert!(!shown.contains("correct") && !shown.contains("987654"), "{shown}");
}

proptest! {
    #[test]
    fn mutated_recordings_do_not_panic(
        payload in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut payloads = fixtures::payloads();
        payloads.push(batch([stored_map([("token_ids", pairs(1, 9))])]).pack());
        let mut payload = payloads.swap_remove(payload.index(payloads.len()));
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
    fn arbitrary_bytes_do_not_panic(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        topic in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let decoder = Decoder::default();
        check(&decode_with(&decoder, &topic, &payload));
        let marked = [b"kv\0sgl-kv-epoch=".as_slice(), &topic].concat();
        // Most random bytes fail at once: put them where an event's fields are.
        let inside = batch([removed(1), V::Raw(payload), stored_array([])]).pack();
        check(&decode_with(&decoder, &marked, &inside));
    }
}
