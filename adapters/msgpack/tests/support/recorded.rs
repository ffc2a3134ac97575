//! Every recorded frame, against a derivation that shares no code with the decoder.

use std::{fs, path::PathBuf, process::Command};

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_adapters_msgpack::Decoded;
use kvbridge_schemas::{
    BlockHash, ClearCause, Event, ExtraKey, HashScheme, Parent, Place, Scope, Stored, content_hash,
};
use serde_json::{Map, Value, json};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hex digit");
    text.trim()
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).expect("two digits"))
        .collect()
}

/// (seq frame, payload) of the frame in that line.
fn frame(file: &str, line: &str) -> (Vec<u8>, Vec<u8>) {
    if file.ends_with(".txt") {
        let (_, hex) = line.split_once(' ').expect("release and hex");
        return (vec![0; 8], unhex(hex));
    }
    let record: Value = serde_json::from_str(line).expect("a record");
    let frames = record["frames_hex"].as_array().expect("frames");
    match frames.as_slice() {
        [.., seq, payload] => {
            (unhex(seq.as_str().unwrap_or("")), unhex(payload.as_str().unwrap_or("")))
        }
        _ => panic!("{file}: a frame has a seq and a payload"),
    }
}

/// Every frame of every file means what was derived. The count is how many frames of it the engine
/// sent: a file that is not read shows there.
pub(crate) fn check(files: &[(&str, usize)], decode: impl Fn(&[u8], &[u8]) -> Decoded) {
    for (file, count) in files.iter().copied() {
        let lines = fs::read_to_string(folder().join(file)).expect("a fixture");
        let lines: Vec<&str> = lines.lines().collect();
        let stem = file.rsplit_once('.').expect("an extension").0;
        let expected = fs::read_to_string(folder().join(format!("expect/{stem}.ndjson")));
        let expected = expected.expect("the expectation");
        assert_eq!(expected.lines().count(), count, "{file}");
        let at = |line: &Value| {
            lines[usize::try_from(line.as_u64().expect("a line")).expect("small") - 1]
        };
        for expected in expected.lines() {
            let mut expected: Map<String, Value> =
                serde_json::from_str(expected).expect("an object");
            let line = expected.remove("line").expect("a line");
            expected.remove("socket");
            let (seq, payload) = frame(file, at(&line));
            let decoded = decode(&seq, &payload);
            if let Some(live) = expected.remove("same_as") {
                let (live_seq, live_payload) = frame(file, at(&live));
                assert_eq!(decoded, decode(&live_seq, &live_payload));
                continue;
            }
            let described = match decoded {
                Decoded::EndMarker => json!({ "end_marker": true }),
                Decoded::Batch(decoded) => {
                    assert_eq!(decoded.body, None, "{file}:{line}");
                    assert_eq!(decoded.faults, [], "{file}:{line}");
                    assert_eq!(decoded.batch.digest, kvbridge_schemas::digest(&payload));
                    describe(&decoded.batch)
                }
            };
            assert_eq!(described, Value::Object(expected), "{file}:{line}");
        }
    }
}

/// The files in `expect/` are what the script says.
pub(crate) fn check_script(script: &str) {
    let output = Command::new("python3")
        .args(["-B", script, "--check"])
        .current_dir(folder())
        .output()
        .expect("python3 is needed for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

// === a batch as the script writes it

fn describe(batch: &Batch) -> Value {
    assert_eq!((batch.loss, batch.span, batch.epoch), (Loss::Nothing, 1, None));
    assert_eq!((&batch.hash.scheme, &batch.incarnation), (&HashScheme::Unknown, &None));
    present(json!({
        "seq": batch.seq.0,
        "ts": batch.ts,
        "rank": batch.rank,
        "format": batch.format,
        "block_size": batch.hash.block_size,
        "bytes": batch.bytes,
        "events": batch.events.iter().map(event).collect::<Vec<_>>(),
    }))
}

fn event(event: &Event) -> Value {
    match event {
        Event::Stored(stored) => store(stored),
        Event::Removed(removed) => with_place(
            json!({
                "type": "removed",
                "hashes": removed.hashes.iter().map(hex).collect::<Vec<_>>(),
            }),
            &removed.place,
        ),
        Event::Cleared(cleared) => {
            assert_eq!(cleared.cause, ClearCause::Engine);
            let Scope::Tiers(tiers) = &cleared.scope else { panic!("a clear has tiers") };
            let scope: Vec<&str> = tiers.iter().map(|tier| tier.as_str()).collect();
            json!({ "type": "cleared", "scope": scope, "cause": "engine" })
        }
        other => panic!("an engine does not send {other:?}"),
    }
}

fn store(stored: &Stored) -> Value {
    let parent = match &stored.parent {
        Parent::Root => "root".to_owned(),
        Parent::Unknown => "unknown".to_owned(),
        Parent::Block(hash) => hex(hash),
    };
    let content = |value: u64| format!("{value:016x}");
    let block = |block: &kvbridge_schemas::StoredBlock| {
        json!([hex(&block.hash), block.content.map(content)])
    };
    let extra: Vec<Vec<Value>> =
        stored.extra.iter().map(|entry| entry.iter().map(extra_key).collect()).collect();
    with_place(
        json!({
            "type": "stored",
            "parent": parent,
            "block_size": stored.block_size,
            "token_count": stored.tokens.0.len(),
            "tokens": content(content_hash(&stored.tokens.0)),
            "blocks": stored.blocks.iter().map(block).collect::<Vec<_>>(),
            "partial": stored.partial.then_some(true),
            "bigram": stored.bigram.then_some(true),
            "lora": stored.lora,
            "lora_id": stored.lora_id,
            "salt": stored.salt,
            "extra": Some(extra).filter(|extra| !extra.is_empty()),
            "session": stored.session,
        }),
        &stored.place,
    )
}

fn extra_key(key: &ExtraKey) -> Value {
    match key {
        ExtraKey::Text(text) => json!(text),
        ExtraKey::Item { id, offset } => json!({ "item": [id, offset] }),
        ExtraKey::Bytes(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "bytes": hex })
        }
    }
}

fn with_place(mut value: Value, place: &Place) -> Value {
    value["tier"] = json!(place.tier.as_str());
    value["medium"] = json!(place.medium);
    value["locality"] = json!(place.locality);
    value["ownership"] = json!(place.ownership);
    if let Some(group) = &place.group {
        value["group"] = present(json!({
            "index": group.index,
            "kind": group.kind.as_ref().map(|kind| kind.as_str()),
            "window": group.window,
        }));
    }
    present(value)
}

fn hex(hash: &BlockHash) -> String {
    hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Without the keys that are null.
fn present(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}
