//! Bytes from someone who means harm: named errors, bounded memory, no panic, no secrets.

use kvbridge_adapters_vllm::{BodyError, Decoder, Limits, LostKind, Reason};
use kvbridge_schemas::{BlockHash, Event, ExtraKey, StoredBlock};
use proptest::prelude::*;

use crate::{
    decode, decode_with, fixtures,
    pack::{
        V, array, batch, cleared, int, ints, map, removed_array, stored_array, stored_map, text,
    },
    sound::check,
};

#[test]
fn truncated_anywhere_is_a_lost_body() {
    for (release, payload) in fixtures::vectors() {
        for end in 0..payload.len() {
            let decoded = decode(&payload[..end]);
            check(&decoded);
            assert!(decoded.body.is_some(), "{release} cut at {end}");
        }
    }
}

#[test]
fn nesting_costs_no_stack() {
    const DEPTH: usize = 1 << 20;
    let arrays = V::Raw([vec![0x91; DEPTH], vec![0xc0]].concat());
    let mut maps = [0x81, 0xa0].repeat(DEPTH);
    maps.push(0xc0);
    for deep in [arrays, V::Raw(maps)] {
        assert!(decode(&deep.pack()).body.is_some());
        let events = [
            (deep.clone(), 1),
            (array([text("New"), deep.clone()]), 1),
            (map([("type", text("New")), ("x", deep.clone())]), 1),
            (stored_map([("x", deep.clone())]), 0),
            (stored_map([("token_ids", deep.clone())]), 1),
            (stored_map([("extra_keys", deep.clone())]), 1),
        ];
        for (event, faults) in events {
            let decoded = decode(&batch([removed_array(1), event, removed_array(2)]).pack());
            check(&decoded);
            assert_eq!((decoded.body, decoded.faults.len()), (None, faults));
        }
    }
}

#[test]
fn claimed_length_is_refused_before_memory_is_taken() {
    for marker in [0xdd, 0xdf, 0xc6, 0xdb, 0xc9] {
        let huge = || V::Raw(vec![marker, 0xff, 0xff, 0xff, 0xff]);
        let payloads = [
            huge(),
            array([huge(), V::Array(vec![])]),
            array([int(1), huge()]),
            array([int(1), V::Array(vec![huge()])]),
            batch([stored_map([("block_hashes", huge())])]),
            batch([stored_map([("parent_block_hash", huge())])]),
            batch([stored_map([("token_ids", huge())])]),
            batch([stored_map([("extra_keys", huge())])]),
            batch([stored_map([("extra_keys", array([huge(), V::Nil]))])]),
            batch([stored_map([("medium", huge())])]),
            batch([stored_map([("unknown", huge())])]),
            batch([array([text("BlockRemoved"), huge()])]),
        ];
        for payload in payloads {
            let decoded = decode(&payload.pack());
            check(&decoded);
            assert!(decoded.body.is_some(), "{payload:?}");
        }
    }
}

#[test]
fn reserved_marker_is_a_lost_body() {
    let reserved = V::Raw(vec![0xc1]);
    let decoded = decode(&batch([stored_map([("x", reserved)])]).pack());
    assert_eq!(decoded.body, Some(BodyError::Unwalkable(Reason::Reserved)));
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
    let fields: [(&'static str, &[usize]); 14] = [
        ("block_hashes", &[7]),
        ("parent_block_hash", &[4, 5, 6, 9]),
        ("token_ids", &[7]),
        ("block_size", &[5]),
        ("lora_id", &[5, 6, 9]),
        ("medium", &[3, 9]),
        ("lora_name", &[3, 9]),
        ("extra_keys", &[9]),
        ("group_idx", &[5, 9]),
        ("kv_cache_spec_kind", &[3, 9]),
        ("kv_cache_spec_sliding_window", &[5, 9]),
        ("locality", &[3, 9]),
        ("ownership", &[3, 9]),
        ("session_id", &[3, 9]),
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
            assert_eq!(decoded.batch.events.len(), 2);
        }
    }
}

#[test]
fn token_that_is_no_u32_loses_its_event() {
    let bad = [
        (V::Float(5.0), Reason::WrongType),
        (int(-1), Reason::OutOfRange),
        (int(1 << 32), Reason::OutOfRange),
        (int(i128::from(u64::MAX)), Reason::OutOfRange),
        (array([int(1), int(2)]), Reason::WrongType),
        (V::Nil, Reason::WrongType),
    ];
    for (token, reason) in bad {
        for at in [0, 1, 15, 63, 64, 299] {
            let mut tokens: Vec<V> = (0..300).map(V::Int).collect();
            tokens[at] = token.clone();
            let decoded = decode(&batch([stored_map([("token_ids", V::Array(tokens))])]).pack());
            let [fault] = decoded.faults.as_slice() else { panic!("one fault") };
            assert_eq!((fault.field, fault.reason), (Some("token_ids"), reason));
        }
    }
}

#[test]
fn limits_hold() {
    let limits = Limits {
        payload_bytes: 400,
        events_per_batch: 3,
        hashes_per_event: 2,
        tokens_per_event: 8,
        extra_keys_per_event: 4,
        items_per_batch: 7,
        text_bytes: 20,
        extra_key_bytes: 5,
    };
    let decoder = Decoder::new(limits, vec![]);
    let faults = |events: Vec<V>| {
        let decoded = decode_with(&decoder, &batch(events).pack());
        assert_eq!(decoded.body, None);
        decoded.faults.iter().map(|fault| (fault.field, fault.reason)).collect::<Vec<_>>()
    };
    let keys = |entry: V| stored_map([("extra_keys", array([entry, V::Nil]))]);
    let many = |field| [(Some(field), Reason::TooMany)];
    assert_eq!(faults(vec![stored_map([])]), []);
    assert_eq!(faults(vec![stored_map([("block_hashes", ints(0..3))])]), many("block_hashes"));
    assert_eq!(faults(vec![stored_map([("token_ids", ints(0..9))])]), many("token_ids"));
    assert_eq!(faults(vec![keys(array([text("a"), text("b")]))]), []);
    assert_eq!(faults(vec![keys(array([text("a"), text("b"), text("c")]))]), many("extra_keys"));
    let three = array([array([V::Nil]), V::Nil]);
    assert_eq!(faults(vec![stored_map([("extra_keys", three)])])[0].1, Reason::WrongType);
    let long = [(Some("extra_keys"), Reason::TooLong)];
    assert_eq!(faults(vec![keys(array([text("abcdef")]))]), long);
    assert_eq!(faults(vec![keys(array([V::Bytes(vec![0; 6])]))]), long);
    let medium = stored_map([("medium", text(&"x".repeat(21)))]);
    assert_eq!(faults(vec![medium]), [(Some("medium"), Reason::TooLong)]);
    // Hashes over the whole batch: 2 + 2 + 4 > 7.
    let removal = array([text("BlockRemoved"), ints([1, 2])]);
    let two = || removal.clone();
    assert_eq!(faults(vec![two(), two(), keys(V::Nil)]), many("extra_keys"));

    let body = |payload: V| decode_with(&decoder, &payload.pack()).body;
    let four = batch(vec![cleared(); 4]);
    assert_eq!(body(four), Some(BodyError::TooManyEvents { count: 4, max: 3 }));
    let large = batch([array([text("New"), V::Bytes(vec![0; 400])])]);
    let bytes = large.pack().len();
    assert_eq!(body(large), Some(BodyError::TooLarge { bytes, max: 400 }));
}

#[test]
fn memory_follows_the_bytes_that_came() {
    // The dearest bytes: hashes of one byte, tokens of one byte, entries and texts of one byte.
    let count = 100_000;
    let hashes = ints(std::iter::repeat_n(1, count));
    let nils = |count| V::Array(vec![V::Nil; count]);
    let texts = array([V::Array(vec![text(""); count]), V::Nil]);
    let events = [
        stored_map([("block_hashes", hashes), ("extra_keys", nils(count))]),
        stored_map([("token_ids", ints(std::iter::repeat_n(1, count)))]),
        stored_map([("extra_keys", texts)]),
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
    // Twice, because a vector that outgrows its first room doubles.
    let dearest = size_of::<StoredBlock>().max(size_of::<ExtraKey>());
    assert!(total <= 2 * dearest * decoded.batch.bytes as usize, "{total}");
    assert!(dearest <= 56, "the reason of ITEMS_PER_BATCH_MAX names 56 bytes");
    assert!(size_of::<BlockHash>() <= dearest);
}

#[test]
fn nothing_secret_is_in_the_debug_form() {
    let secret = "correct-horse";
    let extra = || array([array([text(secret), array([text(secret), int(1)])]), V::Nil]);
    let tokens = || ints([1, 2, 3, 4, 5, 6, 7, 987_654]);
    let good = [("extra_keys", extra()), ("token_ids", tokens()), ("session_id", text(secret))];
    let bad = [("extra_keys", extra()), ("token_ids", tokens()), ("block_size", text(secret))];
    let unknown = array([text("correct-horse battery"), tokens()]);
    let decoded = decode(&batch([stored_map(good), stored_map(bad), unknown]).pack());
    assert_eq!((decoded.batch.events.len(), decoded.faults.len()), (1, 2));
    let shown = format!("{decoded:?}");
    assert!(!shown.contains("correct") && !shown.contains("987654"), "{shown}");
}

proptest! {
    #[test]
    fn mutated_vectors_do_not_panic(
        vector in 0..17_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let (_, mut payload) = fixtures::vectors().swap_remove(vector);
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
        // Most random bytes fail at once: put them where an event's fields are.
        let inside = batch([removed_array(1), V::Raw(payload), stored_array()]).pack();
        check(&decode(&inside));
    }
}
