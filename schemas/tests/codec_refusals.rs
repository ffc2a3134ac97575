//! What the codec refuses, by which name, and that it tells nobody what it read.

mod cases;

use kvbridge_schemas::{
    BlockHashError, Envelope, Event, SnapshotHeader, SnapshotRecord, Status, Tier, Trust,
    codec::{
        self, CodecError, DEPTH_MAX, EVENTS_MAX, Fault, HASHES_MAX, ITEMS_MAX, PAYLOAD_BYTES_MAX,
        Position, TIERS_MAX, TOKENS_MAX,
    },
};
use serde_json::{Value, json};

/// An envelope as a JSON value, with `events`.
fn envelope(events: Value) -> Value {
    json!({
        "v": 1, "replica": {"model": "m", "instance": "h:1", "rank": 0}, "epoch": 1, "seq": 2,
        "span": 1, "digest": "00".repeat(16), "trust": "exact", "ts": 0,
        "engine": {"kind": "vllm", "format": "vllm.map"},
        "hash": {"scheme": "unknown", "block_size": 4}, "events": events,
    })
}

fn from_json(events: Value) -> Result<Envelope, CodecError> {
    let value = envelope(events);
    let read = codec::from_json(&value);
    // The text is read as the value is; only the place in an error differs.
    match (&read, codec::from_json_str::<Envelope>(&value.to_string())) {
        (
            Err(CodecError::Malformed { fault, .. }),
            Err(CodecError::Malformed { fault: text, .. }),
        ) => {
            assert_eq!(*fault, text);
        }
        (read, text) => assert_eq!(*read, text),
    }
    read
}

/// An envelope in msgpack whose `events` are these bytes.
fn msgpack(events: &[u8]) -> Vec<u8> {
    let empty = from_json(json!([])).expect("a good envelope");
    let mut payload = codec::encode_msgpack(&empty);
    assert_eq!(payload.pop(), Some(0x90), "an empty list is last");
    payload.extend_from_slice(events);
    payload
}

/// A msgpack list of `count` times `item`.
fn list(count: usize, item: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xdd];
    bytes.extend_from_slice(&u32::try_from(count).expect("a length").to_be_bytes());
    bytes.extend(item.iter().copied().cycle().take(item.len() * count));
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![0xd9, u8::try_from(text.len()).expect("a short text")];
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// A msgpack map.
fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0x80 | u8::try_from(entries.len()).expect("a small map")];
    for (key, value) in entries {
        bytes.extend(text(key));
        bytes.extend_from_slice(value);
    }
    bytes
}

fn decode(payload: &[u8]) -> CodecError {
    codec::decode_msgpack::<Envelope>(payload).expect_err("refused")
}

#[test]
fn another_version_is_refused_by_name_whatever_else_differs() {
    let two = CodecError::Version { found: 2 };
    let mut other = envelope(json!([]));
    other["v"] = json!(2);
    assert_eq!(codec::from_json::<Envelope>(&other), Err(two.clone()));
    // A later major version may have another form of anything.
    let strange = json!({"events": "none", "replica": 7, "v": 2});
    assert_eq!(codec::from_json::<Envelope>(&strange), Err(two.clone()));
    assert_eq!(codec::from_json_str::<Envelope>(&strange.to_string()), Err(two.clone()));
    assert_eq!(codec::from_json::<Status>(&strange), Err(two.clone()));
    assert_eq!(codec::from_json::<SnapshotHeader>(&strange), Err(two.clone()));
    let packed = map(&[("replica", vec![7]), ("v", vec![2])]);
    assert_eq!(decode(&packed), two);
    assert_eq!(two.to_string(), "schema version 2, expected 1");
    let missing = CodecError::Missing { of: "envelope", field: "v" };
    assert_eq!(codec::from_json::<Envelope>(&json!({})), Err(missing));
}

#[test]
fn unknown_fields_and_words_are_kept_or_ignored() {
    let mut later = envelope(json!([
        {"type": "stored", "block_size": 4, "blocks": [{"hash": "01", "later": 1}],
         "tier": "later", "group": {"index": 0, "kind": "later", "later": [1]}, "later": {"a": []}},
        {"type": "later", "x": 1},
        {"type": "cleared", "scope": "all", "cause": "later"},
    ]));
    later["later"] = json!({"deep": [[[]]]});
    later["trust"] = json!("later");
    let read: Envelope = codec::from_json(&later).expect("a later minor version");
    assert_eq!(read.trust, Trust::None);
    let Event::Stored(stored) = &read.events[0] else { panic!("a store") };
    assert_eq!(stored.place.tier, Tier::Other("later".into()));
    assert_eq!(read.events[1], Event::Unknown("later".into()));
    assert_eq!(read.events.len(), 3);
}

#[test]
fn null_is_read_as_a_missing_key() {
    let reset = json!({"type": "reset", "cause": "c", "trust": "none", "snapshot": null});
    let read = from_json(json!([reset])).expect("null is not known");
    assert_eq!(codec::to_json(&read)["events"][0].get("snapshot"), None);
}

#[test]
fn missing_fields_and_bad_hashes_have_names() {
    let missing = |of, field| Err(CodecError::Missing { of, field });
    assert_eq!(from_json(json!([{}])), missing("event", "type"));
    assert_eq!(from_json(json!([{"type": "removed", "hashes": []}])), missing("removed", "tier"));
    let removed = |hash: &str| json!([{"type": "removed", "hashes": [hash], "tier": "device"}]);
    let empty = CodecError::BlockHash(BlockHashError { len: 0 });
    assert_eq!(empty.to_string(), "block hash has 0 bytes, expected 1 to 2048");
    assert_eq!(from_json(removed("")), Err(empty));
    assert_eq!(from_json(removed("0A")), Err(CodecError::Hex { of: "block hash" }));
    assert_eq!(from_json(removed("0")), Err(CodecError::Hex { of: "block hash" }));
    let mut short = envelope(json!([]));
    short["digest"] = json!("00");
    let length = CodecError::Length { of: "digest", found: 1, expected: 16 };
    assert_eq!(codec::from_json::<Envelope>(&short), Err(length));
}

#[test]
fn structures_come_as_maps_only() {
    let wrong = |error| matches!(error, CodecError::Malformed { fault: Fault::WrongType, .. });
    assert!(wrong(decode(&list(12, &[1]))));
    assert!(wrong(from_json(json!([["stored"]])).unwrap_err()));
}

#[test]
fn trailing_bytes_are_refused_where_they_begin() {
    let mut payload = msgpack(&[0x90]);
    let at = Position::Byte(u64::try_from(payload.len()).unwrap());
    payload.push(0xc0);
    assert_eq!(decode(&payload), CodecError::Malformed { at, fault: Fault::Trailing });
    let text = format!("{} {{}}", envelope(json!([])));
    let error = codec::from_json_str::<Envelope>(&text).unwrap_err();
    assert!(matches!(error, CodecError::Malformed { fault: Fault::Trailing, .. }), "{error}");
}

#[test]
fn too_deep_is_refused_before_the_stack_is_used_up() {
    let mut deep = map(&[("later", Vec::new())]);
    deep.extend(std::iter::repeat_n(0x91, 1_000_000));
    deep.push(0x90);
    let error = decode(&deep);
    assert!(matches!(error, CodecError::Malformed { fault: Fault::TooDeep, .. }), "{error}");
    let text = format!("{{\"later\":{}", "[".repeat(1_000_000));
    codec::from_json_str::<Envelope>(&text).unwrap_err();
    // Deep enough for every field there is, and for some that may come.
    let mut later = map(&[("later", Vec::new())]);
    later.extend(std::iter::repeat_n(0x91, DEPTH_MAX - 3));
    later.push(0xc0);
    assert_eq!(decode(&later), CodecError::Missing { of: "envelope", field: "v" });
}

#[test]
fn too_many_of_anything_is_refused_by_name() {
    let large = vec![0_u8; PAYLOAD_BYTES_MAX + 1];
    let max = PAYLOAD_BYTES_MAX;
    assert_eq!(decode(&large), CodecError::TooLarge { found: max + 1, max });

    let too_many = |field, max| CodecError::TooMany { field, found: max + 1, max };
    let unknown = map(&[("type", text("x"))]);
    assert_eq!(decode(&msgpack(&list(EVENTS_MAX + 1, &unknown))), too_many("events", EVENTS_MAX));

    let one = |event: &[u8]| decode(&msgpack(&list(1, event)));
    let stored = |key, value| {
        map(&[
            ("type", text("stored")),
            ("block_size", vec![4]),
            ("tier", text("device")),
            ("blocks", vec![0x90]),
            (key, value),
        ])
    };
    let tokens = list(TOKENS_MAX + 1, &[7]);
    assert_eq!(one(&stored("tokens", tokens)), too_many("tokens", TOKENS_MAX));
    let extra = list(HASHES_MAX + 1, &[0x90]);
    assert_eq!(one(&stored("extra", extra)), too_many("extra", HASHES_MAX));
    let removed = |count| {
        let hashes = list(count, &[0xc4, 1, 0]);
        map(&[("type", text("removed")), ("tier", text("device")), ("hashes", hashes)])
    };
    assert_eq!(one(&removed(HASHES_MAX + 1)), too_many("hashes", HASHES_MAX));
    let scope = list(TIERS_MAX + 1, &text("device"));
    let cleared = map(&[("type", text("cleared")), ("cause", text("engine")), ("scope", scope)]);
    assert_eq!(one(&cleared), too_many("scope", TIERS_MAX));

    // Each event within its limits, all of them together not.
    let heavy = decode(&msgpack(&list(5, &removed(HASHES_MAX))));
    let found = 5 * HASHES_MAX;
    assert_eq!(heavy, CodecError::TooMany { field: "events", found, max: ITEMS_MAX });
}

#[test]
fn a_claimed_length_reserves_nothing() {
    // A list that claims 2^32 - 1 items and ends: refused at once, in no memory worth the name.
    let events = [0xdd, 0xff, 0xff, 0xff, 0xff];
    let error = decode(&msgpack(&events));
    assert!(matches!(error, CodecError::Malformed { fault: Fault::Truncated, .. }), "{error}");
    let chunk = codec::decode_msgpack::<Vec<SnapshotRecord>>(&events).unwrap_err();
    let at = Position::Byte(5);
    assert_eq!(chunk, CodecError::Malformed { at, fault: Fault::Truncated });
    assert_eq!(chunk.to_string(), "message ends too early at byte 5");
}

#[test]
fn no_error_shows_what_was_read() {
    const SECRET: &str = "SECRET-31337";
    let check = |error: CodecError| {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET) && !shown.contains("31337"), "{shown}");
    };
    for case in cases::all() {
        let good = case.message.json();
        let mut texts = vec![good.to_string().replace("\"type\"", "\"SECRET-31337\"")];
        for (from, to) in [(":0", ":\"SECRET-31337\""), ("\"", "\"SECRET-31337"), ("{", "[31337,{")]
        {
            texts.extend(good.to_string().match_indices(from).map(|(at, _)| {
                let (head, tail) = (&good.to_string()[..at], &good.to_string()[at + from.len()..]);
                format!("{head}{to}{tail}")
            }));
        }
        for text in texts {
            let _: Option<()> = case.message.decode_json_str(&text).err().map(check);
            if let Ok(value) = serde_json::from_str(&text) {
                let _: Option<()> = case.message.decode_json(&value).err().map(check);
            }
        }
    }
    let secret = text(SECRET);
    for field in ["v", "seq", "digest", "events", "replica"] {
        check(decode(&map(&[(field, secret.clone())])));
        check(decode(&map(&[(field, secret.clone()), (field, secret.clone())])));
    }
    let broken = [0xdb, 0, 0, 0, 2, 0xff, 0xfe];
    let error = decode(&map(&[("incarnation", broken.to_vec())]));
    assert!(matches!(error, CodecError::Malformed { fault: Fault::NotUtf8, .. }), "{error}");
}

#[test]
fn redacted_json_of_the_golden_store() {
    let all = cases::all();
    let case = all.iter().find(|case| case.name == "stored_every_field").unwrap();
    let cases::AnyMessage::Envelope(envelope) = &case.message else { panic!("an envelope") };
    let shown = codec::to_json_redacted(envelope);
    assert_eq!(shown["events"][0]["session"], "***");
    assert_eq!(shown["events"][0]["extra"], json!([["***", "***", "***", "***"]]));
    let case = all.iter().find(|case| case.name == "stored_lora_salt_two_blocks").unwrap();
    let cases::AnyMessage::Envelope(envelope) = &case.message else { panic!("an envelope") };
    let shown = codec::to_json_redacted(envelope);
    assert_eq!(shown["events"][0]["tokens"], json!({"count": 8}));
    assert_eq!(shown["events"][0]["salt"], "***");
    assert_eq!(shown["events"][0]["lora"], "ad1");
    // It is for eyes, not for readers.
    codec::from_json::<Envelope>(&shown).unwrap_err();
    let record = all.iter().find(|case| case.name == "snapshot_record_every_field").unwrap();
    let cases::AnyMessage::Record(record) = &record.message else { panic!("a record") };
    let shown = codec::to_json_redacted(record);
    assert_eq!((shown.get("extra"), &shown["salt"]), (None, &json!("***")));
    assert!(!format!("{record:?}").contains("s1"));
}
