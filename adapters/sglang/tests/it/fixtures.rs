//! Every recorded frame, against a derivation that shares no code with the decoder.

use std::fs;

use kvbridge_adapters_api::Compared;
use kvbridge_adapters_sglang::{Decoder, HASH_FUNCTION, decode};

use crate::recorded::{check, check_script, compare_hashes, folder, unhex};

/// Every file and how many frames of it the engine sent: a file that is not read shows here.
const FILES: [(&str, usize); 5] = [
    ("sglang-0.5.9-radix-p16.jsonl", 31),
    ("sglang-0.5.18-radix-p16-namespaces.jsonl", 6),
    ("sglang-0.5.23-radix-p16.jsonl", 31),
    ("sglang-0.5.23-radix-p16-eagle.jsonl", 3),
    ("sglang-0.5.23-server-p16-restart.jsonl", 63),
];

/// Every recorded payload once.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for (file, _) in FILES {
        let lines = fs::read_to_string(folder().join(file)).expect("a fixture");
        for line in lines.lines() {
            let record: serde_json::Value = serde_json::from_str(line).expect("a record");
            if record["socket"] == "sub" {
                payloads.push(unhex(record["frames_hex"][2].as_str().expect("a payload")));
            }
        }
    }
    payloads
}

#[test]
fn every_recorded_frame_means_what_was_derived() {
    let decoder = Decoder::default();
    check(&FILES, |seq, payload| decode(&decoder, b"kv@sgl", seq, payload).expect("a seq frame"));
}

#[test]
fn expectations_are_what_the_script_says() {
    check_script("derive_sglang.py");
}

#[test]
fn recorded_hashes_follow_from_the_recorded_tokens() {
    let decoder = Decoder::default();
    // Pages of pairs are hashed otherwise and are left out.
    for ((file, _), wanted) in FILES.into_iter().zip([21, 6, 21, 0, 41]) {
        let Compared { equal, different } = compare_hashes(file, HASH_FUNCTION, |seq, payload| {
            decode(&decoder, b"kv@sgl", seq, payload).expect("a seq frame")
        });
        assert_eq!((equal, different), (wanted, 0), "{file}");
    }
}
