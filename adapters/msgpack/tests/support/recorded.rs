//! Every recorded frame, against a derivation that shares no code with the decoder.

use std::{fs, path::PathBuf, process::Command};

use kvbridge_adapters_api::{Compared, HashChain, HashFunction};
use kvbridge_adapters_msgpack::Decoded;
use kvbridge_schemas::Event;
use serde_json::{Map, Value, json};

pub(crate) use described::describe;

#[path = "../../../api/tests/support/described.rs"]
mod described;

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

/// Blocks of a recording's live stream whose hashes are what the engine's function makes of the
/// announced tokens, and others. A life begins with a new chain.
pub(crate) fn compare_hashes(
    file: &str,
    function: HashFunction,
    decode: impl Fn(&[u8], &[u8]) -> Decoded,
) -> Compared {
    let lines = fs::read_to_string(folder().join(file)).expect("a fixture");
    let (mut chain, mut sum, mut last) = (HashChain::new(function), Compared::default(), 0);
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).expect("a record");
        if record["socket"] != "sub" {
            continue;
        }
        let (seq, payload) = frame(file, line);
        let Decoded::Batch(decoded) = decode(&seq, &payload) else { continue };
        if decoded.batch.seq.0 < last {
            chain = HashChain::new(function);
        }
        last = decoded.batch.seq.0;
        for event in &decoded.batch.events {
            if let Event::Stored(stored) = event {
                let Compared { equal, different } = chain.look(stored);
                sum.equal += equal;
                sum.different += different;
            }
        }
    }
    sum
}
