//! Every form of the wire is read, and what cannot be read costs only itself.

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_sglang::{
    BodyError, Decoded, Decoder, EventFault, FORMAT_ARRAY, FORMAT_MAP, Limits, LostKind, Reason,
};
use kvbridge_schemas::Seq;

use crate::{
    decode, decode_with, only_store,
    pack::{
        V, array, batch, cleared, int, ints, map, pairs, removed, stored_array, stored_map, text,
    },
};

fn fault(index: u32, kind: LostKind, field: Option<&'static str>, reason: Reason) -> EventFault {
    EventFault { index, kind, field, reason, tag: None }
}

#[test]
fn batch_has_two_elements_or_more_or_is_a_map() {
    let events = || V::Array(vec![cleared()]);
    let forms = [
        (array([V::Float(2.5), events()]), None),
        (array([V::Float(2.5), events(), V::Nil]), None),
        (array([V::Float(2.5), events(), int(3), V::Nil]), Some(3)),
        (map([("attn_dp_rank", int(3)), ("events", events()), ("ts", V::Float(2.5))]), Some(3)),
    ];
    for (form, rank) in forms {
        let decoded = decode(&form.pack());
        assert_eq!((decoded.body, decoded.batch.ts), (None, 2_500_000));
        assert_eq!((decoded.batch.rank, decoded.batch.events.len()), (rank, 1));
    }
}

#[test]
fn topic_names_the_life_or_nothing() {
    let payload = batch([cleared()]).pack();
    let decoder = Decoder::default();
    for plain in [b"".as_slice(), b"kv@host:1@model"] {
        assert_eq!(decode_with(&decoder, plain, &payload).batch.incarnation, None);
    }
    let named = decode_with(&decoder, b"kv\0sgl-kv-epoch=abc123", &payload);
    assert_eq!(named.batch.incarnation.as_deref(), Some("abc123"));
    assert_eq!(named.batch.events.len(), 1);
    let broken = decode_with(&decoder, b"kv\0sgl-kv-epoch=", &payload);
    assert_eq!((broken.body, broken.batch.loss), (Some(BodyError::Life), Loss::Body));
    assert_eq!((broken.batch.events.len(), broken.batch.seq), (0, Seq(7)));
}

#[test]
fn all_ones_is_the_end_marker_whatever_the_topic() {
    let decoder = Decoder::default();
    let end = kvbridge_adapters_sglang::decode(&decoder, b"kv\0sgl-kv-epoch=", &[0xff; 8], &[]);
    assert_eq!(end, Ok(Decoded::EndMarker));
}

#[test]
fn format_is_that_of_the_first_event() {
    let format = |events: Vec<V>| decode(&batch(events).pack()).batch.format;
    assert_eq!(format(vec![]), FORMAT_ARRAY);
    assert_eq!(format(vec![stored_array([]), stored_map([])]), FORMAT_ARRAY);
    assert_eq!(format(vec![stored_map([]), stored_array([])]), FORMAT_MAP);
}

#[test]
fn arrays_of_all_lengths_mean_the_same() {
    let plain = only_store(stored_array([]));
    let V::Array(mut short) = stored_array([]) else { panic!("an array") };
    short.pop();
    assert_eq!(only_store(V::Array(short)), plain);
    let gpu = only_store(stored_array([text("GPU")]));
    assert_eq!(gpu, only_store(stored_map([])));
    let long = stored_array([text("GPU"), V::Nil, map([("deep", ints([1]))]), ints([1])]);
    assert_eq!(only_store(long), gpu);
}

#[test]
fn keys_come_in_any_order_and_unknown_ones_are_skipped() {
    let V::Map(mut pairs) =
        stored_map([("namespaced_block_hashes", ints([21, 22])), ("session_id", text("s"))])
    else {
        panic!("a map")
    };
    let expected = only_store(V::Map(pairs.clone()));
    pairs.reverse();
    pairs.insert(2, (text("component_types"), array([text("full")])));
    pairs.insert(4, (int(5), text("a key that is no text")));
    assert_eq!(only_store(V::Map(pairs)), expected);
}

#[test]
fn bad_event_costs_only_itself() {
    let bad = stored_map([("token_ids", text("x"))]);
    let unknown = map([("type", text("BlockPinned"))]);
    let payload = batch([removed(1), bad, unknown, stored_array([]), removed(2)]).pack();
    let decoded = decode(&payload);
    let stored = fault(1, LostKind::Stored, Some("token_ids"), Reason::WrongType);
    let tag = Some("BlockPinned".to_owned());
    let unknown = EventFault { tag, ..fault(2, LostKind::UnknownTag, None, Reason::UnknownTag) };
    assert_eq!(decoded.faults, [stored, unknown]);
    assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::MayRemove, 3));
    let ignoring = Decoder::new(Limits::default(), vec!["BlockPinned".to_owned()]);
    assert_eq!(decode_with(&ignoring, b"", &payload).batch.loss, Loss::Stores);
}

#[test]
fn pairs_must_overlap_and_be_pairs() {
    let table = [
        (array([ints([1, 2]), ints([3, 4])]), Reason::Unchained),
        (array([ints([1, 2]), ints([2, 3, 4])]), Reason::WrongType),
        (array([ints([1]), ints([1, 2])]), Reason::WrongType),
        (array([ints([1, 2]), int(2)]), Reason::WrongType),
        (array([int(1), ints([1, 2])]), Reason::WrongType),
        (array([ints([1, -2])]), Reason::OutOfRange),
        (array([ints([1, 1 << 32])]), Reason::OutOfRange),
    ];
    for (tokens, reason) in table {
        let decoded = decode(&batch([stored_map([("token_ids", tokens.clone())])]).pack());
        let expected = fault(0, LostKind::Stored, Some("token_ids"), reason);
        assert_eq!(decoded.faults, [expected], "{tokens:?}");
    }
    assert!(!only_store(stored_map([("token_ids", ints([]))])).bigram);
    assert!(only_store(stored_map([("token_ids", pairs(0, 8))])).bigram);
}

#[test]
fn namespaced_hashes_must_pair_with_blocks() {
    let field = Some("namespaced_block_hashes");
    let store = stored_map([("namespaced_block_hashes", ints([21]))]);
    let removal = map([
        ("type", text("BlockRemoved")),
        ("block_hashes", ints([11])),
        ("namespaced_block_hashes", ints([21, 22])),
    ]);
    let decoded = decode(&batch([store, removal]).pack());
    let faults = [
        fault(0, LostKind::Stored, field, Reason::Unpaired),
        fault(1, LostKind::MayRemove, field, Reason::Unpaired),
    ];
    assert_eq!(decoded.faults, faults);
}

#[test]
fn long_session_id_costs_only_itself_and_a_salt_is_as_long_as_a_customer_likes() {
    let long = "x".repeat(5000);
    assert_eq!(only_store(stored_map([("session_id", text(&long))])).session, None);
    assert_eq!(only_store(stored_map([("cache_salt", text(&long))])).salt, Some(long));
}
