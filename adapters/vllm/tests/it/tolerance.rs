//! Every form of the wire is read, and what cannot be read costs only itself.

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_vllm::{
    BodyError, Decoded, Decoder, EventFault, FORMAT_ARRAY, FORMAT_MAP, FrameError, Limits,
    LostKind, Reason,
};
use kvbridge_schemas::{BlockHash, Event, Seq};

use crate::{
    decode, decode_with, only_store,
    pack::{
        V, array, batch, cleared, int, ints, map, removed_array, stored_array, stored_map, text,
    },
};

// === the frame

#[test]
fn seq_frame_has_8_or_24_bytes() {
    let payload = batch([]).pack();
    let decoder = Decoder::default();
    let mut long = 9_u64.to_be_bytes().to_vec();
    long.extend(0xa0..0xb0);
    match decoder.decode(&long, &payload) {
        Ok(Decoded::Batch(decoded)) => {
            assert_eq!(decoded.batch.seq, Seq(9));
            let publisher = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
            assert_eq!(decoded.batch.incarnation.as_deref(), Some(publisher));
        }
        other => panic!("expected a batch: {other:?}"),
    }
    for bytes in [0, 1, 7, 9, 16, 23, 25] {
        let error = decoder.decode(&vec![1; bytes], &payload);
        assert_eq!(error, Err(FrameError::SeqLength { bytes }));
    }
}

#[test]
fn all_ones_is_the_end_marker() {
    let decoder = Decoder::default();
    assert_eq!(decoder.decode(&[0xff; 8], &[]), Ok(Decoded::EndMarker));
    assert_eq!(decode(&[]).body, Some(BodyError::Empty));
}

// === the batch

#[test]
fn batch_has_two_elements_or_more_or_is_a_map() {
    let events = || V::Array(vec![cleared()]);
    let publisher = V::Bytes(vec![7; 16]);
    let forms = [
        (array([V::Float(2.5), events()]), None),
        (array([V::Float(2.5), events(), V::Nil]), None),
        (array([V::Float(2.5), events(), int(3)]), Some(3)),
        (array([V::Float(2.5), events(), int(3), publisher, map([("x", V::Nil)])]), Some(3)),
        (
            map([("data_parallel_rank", int(3)), ("events", events()), ("ts", V::Float(2.5))]),
            Some(3),
        ),
        (map([("ts", V::Float(2.5)), ("new", events()), ("events", events())]), None),
    ];
    for (form, rank) in forms {
        let decoded = decode(&form.pack());
        assert_eq!(decoded.body, None);
        assert_eq!((decoded.batch.ts, decoded.batch.rank), (2_500_000, rank));
        assert_eq!(decoded.batch.events.len(), 1);
    }
}

#[test]
fn time_is_microseconds_or_unknown() {
    let mut narrow = vec![0xca];
    narrow.extend(0.5_f32.to_be_bytes());
    let table = [
        (V::Float(1.000_001), 1_000_001),
        (int(3), 3_000_000),
        (int(1_750_000_000), 1_750_000_000_000_000),
        (V::Raw(narrow), 500_000),
        (V::Float(-1.0), 0),
        (int(-1), 0),
        (V::Float(f64::NAN), 0),
        (V::Float(f64::INFINITY), 0),
        (V::Nil, 0),
    ];
    for (ts, micros) in table {
        let decoded = decode(&array([ts.clone(), V::Array(vec![])]).pack());
        assert_eq!((decoded.body, decoded.batch.ts), (None, micros), "{ts:?}");
    }
}

#[test]
fn unreadable_batch_field_is_a_lost_body() {
    let field = |field, reason| BodyError::Field { field, reason };
    let events = || V::Array(vec![cleared()]);
    let table = [
        (array([text("x"), events()]), field("ts", Reason::WrongType)),
        (array([int(1), int(1)]), field("events", Reason::WrongType)),
        (array([int(1), events(), text("x")]), field("data_parallel_rank", Reason::WrongType)),
        (array([int(1), events(), int(-1)]), field("data_parallel_rank", Reason::OutOfRange)),
        (map([("events", events()), ("events", events())]), field("events", Reason::Duplicate)),
        (map([("ts", int(1))]), BodyError::NoEvents),
        (array([int(1)]), BodyError::NotABatch),
        (array([]), BodyError::NotABatch),
        (int(1), BodyError::NotABatch),
        (V::Nil, BodyError::NotABatch),
    ];
    for (form, error) in table {
        let decoded = decode(&form.pack());
        assert_eq!(decoded.body, Some(error), "{form:?}");
        assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::Body, 0));
    }
    let mut trailing = batch([cleared()]).pack();
    trailing.push(0xc0);
    let decoded = decode(&trailing);
    assert_eq!(decoded.body, Some(BodyError::TrailingBytes { bytes: 1 }));
    assert_eq!(decoded.batch.events, []);
}

#[test]
fn format_is_that_of_the_first_event() {
    let format = |events: Vec<V>| decode(&batch(events).pack()).batch.format;
    assert_eq!(format(vec![]), FORMAT_ARRAY);
    assert_eq!(format(vec![stored_array(), stored_map([])]), FORMAT_ARRAY);
    assert_eq!(format(vec![stored_map([]), stored_array()]), FORMAT_MAP);
}

// === the events

#[test]
fn keys_come_in_any_order_and_unknown_ones_are_skipped() {
    let V::Map(mut pairs) = stored_map([("session_id", text("s"))]) else { panic!("a map") };
    let expected = only_store(V::Map(pairs.clone()));
    pairs.reverse();
    pairs.insert(2, (text("origin"), map([("deep", array([ints([1]), V::Nil]))])));
    pairs.insert(4, (int(5), text("a key that is no text")));
    assert_eq!(only_store(V::Map(pairs)), expected);
}

#[test]
fn trailing_elements_are_skipped_and_short_arrays_accepted() {
    let V::Array(mut event) = stored_array() else { panic!("an array") };
    let expected = only_store(V::Array(event.clone()));
    let mut long = event.clone();
    long.extend(std::iter::repeat_n(V::Nil, 6));
    long.extend([map([("cache", int(1))]), ints([1, 2])]);
    assert_eq!(only_store(V::Array(long)), expected);
    event.truncate(5);
    assert_eq!(only_store(V::Array(event)), expected);
}

#[test]
fn headers_may_be_wider_than_needed() {
    let stored = stored_array();
    let V::Array(items) = &stored else { panic!("an array") };
    let mut event = vec![0xdd, 0, 0, 0, 6, 0xdb, 0, 0, 0, 11];
    event.extend(b"BlockStored");
    event.extend([0xdc, 0, 2, 0xd3, 0, 0, 0, 0, 0, 0, 0, 11, 0xcd, 0, 12]);
    event.extend(items[2].pack());
    event.extend([0xdc, 0, 8, 0xcf, 0, 0, 0, 0, 0, 0, 0, 1, 0xd0, 2, 0xce, 0, 0, 0, 3, 0xcc, 4]);
    event.extend([5, 0xcd, 0, 6, 0xd1, 0, 7, 0xd2, 0, 0, 0, 8]);
    event.extend([0xce, 0, 0, 0, 4, 0xc0]);
    assert_eq!(only_store(V::Raw(event)), only_store(stored));
}

#[test]
fn hashes_of_every_kind_share_a_batch() {
    let bytes = |count: usize| vec![0xab; count];
    let hashes = array([
        int(-5),
        int(i128::from(i64::MIN)),
        int(i128::from(u64::MAX)),
        int(7),
        V::Bytes(bytes(8)),
        V::Bytes(bytes(16)),
        V::Bytes(bytes(32)),
        V::Bytes(bytes(128)),
    ]);
    let removed = array([text("BlockRemoved"), hashes, V::Nil]);
    let parent = stored_map([("parent_block_hash", V::Bytes(bytes(32)))]);
    let decoded = decode(&batch([removed, parent]).pack());
    assert_eq!(decoded.faults, []);
    let Some(Event::Removed(removed)) = decoded.batch.events.first() else { panic!("a removal") };
    let int = BlockHash::from_u64;
    let bin = |count| BlockHash::from_bytes(&bytes(count)).expect("a length that is used");
    let expected = [
        int(0xffff_ffff_ffff_fffb),
        int(1 << 63),
        int(u64::MAX),
        int(7),
        bin(8),
        bin(16),
        bin(32),
        bin(128),
    ];
    assert_eq!(removed.hashes, expected);
}

#[test]
fn token_widths_agree_with_the_plain_reader() {
    // Around the borders of the widths, and long enough for the windowed and the plain loop.
    let ids = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 128_000, 1 << 31, i128::from(u32::MAX)];
    for count in (0..200).chain([1000, 5000]) {
        let tokens: Vec<i128> = ids.iter().copied().cycle().take(count).collect();
        let stored = only_store(stored_map([("token_ids", ints(tokens.clone()))]));
        let read: Vec<i128> = stored.tokens.0.iter().map(|token| i128::from(*token)).collect();
        assert_eq!(read, tokens);
    }
}

// === losses

fn fault(index: u32, kind: LostKind, field: Option<&'static str>, reason: Reason) -> EventFault {
    EventFault { index, kind, field, reason, tag: None }
}

#[test]
fn bad_event_costs_only_itself() {
    let bad_store = stored_map([("token_ids", array([int(1), V::Float(2.0)]))]);
    let bad_removal = array([text("BlockRemoved"), text("x"), V::Nil]);
    let mut decoded = decode(&batch([stored_map([]), bad_store.clone(), removed_array(1)]).pack());
    let token = fault(1, LostKind::Stored, Some("token_ids"), Reason::WrongType);
    assert_eq!(decoded.faults, std::slice::from_ref(&token));
    assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::Stores, 2));

    decoded = decode(&batch([bad_removal, bad_store, cleared()]).pack());
    let removal = fault(0, LostKind::MayRemove, Some("block_hashes"), Reason::WrongType);
    assert_eq!(decoded.faults, [removal, token]);
    assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::MayRemove, 1));
}

#[test]
fn unknown_tag_may_remove_unless_it_is_listed() {
    let inactive = array([text("BlockInactive"), ints([1]), map([("deep", V::Nil)])]);
    let as_map = map([("block_hashes", ints([1])), ("type", text("BlockInactive"))]);
    let payload = batch([removed_array(1), inactive, as_map, removed_array(2)]).pack();
    let decoded = decode(&payload);
    let tag = Some("BlockInactive".to_owned());
    let unknown = |index| EventFault {
        tag: tag.clone(),
        ..fault(index, LostKind::UnknownTag, None, Reason::UnknownTag)
    };
    assert_eq!(decoded.faults, [unknown(1), unknown(2)]);
    assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::MayRemove, 2));

    let ignoring = |tags: &[&str]| {
        Decoder::new(Limits::default(), tags.iter().map(|tag| (*tag).to_owned()).collect())
    };
    let decoded = decode_with(&ignoring(&["BlockInactive"]), &payload);
    assert_eq!((decoded.faults.len(), decoded.batch.loss), (0, Loss::Nothing));
    assert_eq!(decoded.batch.events.len(), 2);
    // A clear cannot be ignored.
    let decoded = decode_with(&ignoring(&["AllBlocksCleared"]), &batch([cleared()]).pack());
    assert_eq!(decoded.batch.events.len(), 1);
}

#[test]
fn event_without_a_type_may_remove() {
    let table = [
        (int(1), Reason::NotAnEvent),
        (V::Nil, Reason::NotAnEvent),
        (array([]), Reason::NoTag),
        (array([int(1)]), Reason::NoTag),
        (map([]), Reason::NoTag),
        (map([("block_hashes", ints([1]))]), Reason::NoTag),
        (map([("type", V::Nil)]), Reason::WrongType),
        (array([V::Raw(vec![0xa1, 0xff])]), Reason::NotUtf8),
    ];
    for (event, reason) in table {
        let decoded = decode(&batch([cleared(), event.clone(), cleared()]).pack());
        assert_eq!(decoded.faults, [fault(1, LostKind::UnknownTag, None, reason)], "{event:?}");
        assert_eq!((decoded.batch.loss, decoded.batch.events.len()), (Loss::MayRemove, 2));
    }
}

#[test]
fn name_of_an_unknown_type_is_kept_only_if_it_is_one() {
    let tag = |tag: &str| decode(&batch([array([text(tag)])]).pack()).faults[0].tag.clone();
    assert_eq!(tag("Block_2").as_deref(), Some("Block_2"));
    assert_eq!(tag("my secret prompt"), None);
    assert_eq!(tag(&"x".repeat(65)), None);
}

#[test]
fn field_of_every_release_must_be_there_once() {
    for (missing, name) in
        [(1, "block_hashes"), (2, "parent_block_hash"), (3, "token_ids"), (4, "block_size")]
    {
        let V::Map(mut pairs) = stored_map([]) else { panic!("a map") };
        let pair = pairs.remove(missing);
        let decoded = decode(&batch([V::Map(pairs.clone())]).pack());
        assert_eq!(decoded.faults, [fault(0, LostKind::Stored, Some(name), Reason::Missing)]);
        pairs.extend([pair.clone(), pair]);
        let decoded = decode(&batch([V::Map(pairs)]).pack());
        assert_eq!(decoded.faults, [fault(0, LostKind::Stored, Some(name), Reason::Duplicate)]);
    }
    let decoded = decode(&batch([array([text("BlockRemoved")])]).pack());
    let missing = fault(0, LostKind::MayRemove, Some("block_hashes"), Reason::Missing);
    assert_eq!(decoded.faults, [missing]);
}

#[test]
fn extra_keys_must_pair_with_blocks() {
    let store = |extra: V| decode(&batch([stored_map([("extra_keys", extra)])]).pack());
    let unpaired = fault(0, LostKind::Stored, Some("extra_keys"), Reason::Unpaired);
    assert_eq!(store(array([array([text("a")])])).faults, [unpaired]);
    // Entries that say nothing harm nothing.
    assert_eq!(store(array([V::Nil, V::Nil, V::Nil])).faults, []);
}

#[test]
fn long_session_id_costs_only_itself() {
    let long = "x".repeat(5000);
    assert_eq!(only_store(stored_map([("session_id", text(&long))])).session, None);
    let decoded = decode(&batch([stored_map([("lora_name", text(&long))])]).pack());
    assert_eq!(decoded.faults, [fault(0, LostKind::Stored, Some("lora_name"), Reason::TooLong)]);
    // A salt is as long as a customer likes.
    let extra = array([array([text(&long)]), V::Nil]);
    assert_eq!(only_store(stored_map([("extra_keys", extra)])).salt, Some(long));
}
