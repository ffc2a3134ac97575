//! Every recorded frame and every vector, against a derivation that shares no code with the
//! decoder.

use std::fs;

use kvbridge_adapters_api::Compared;
use kvbridge_adapters_vllm::{Decoder, block_hash::hash_function};

use crate::recorded::{check, check_script, compare_hashes, folder, unhex};

/// Every file and how many frames of it the engine sent: a file that is not read shows here.
const FILES: [(&str, usize); 8] = [
    ("vllm-0.10.2-publisher-only.jsonl", 70),
    ("vllm-0.16.0-basic.jsonl", 210),
    ("vllm-0.22.1-publisher-only.jsonl", 70),
    ("vllm-0.25.1-publisher-only.jsonl", 70),
    ("vllm-0.32.0-basic.jsonl", 209),
    ("vllm-0.32.0-lora.jsonl", 4),
    ("vllm-0.33.0-publisher-only.jsonl", 70),
    ("vllm_wire_vectors.txt", 17),
];

/// The 17 vectors: release and payload.
pub(crate) fn vectors() -> Vec<(String, Vec<u8>)> {
    let text = fs::read_to_string(folder().join("vllm_wire_vectors.txt")).expect("the vectors");
    text.lines()
        .map(|line| {
            let (release, hex) = line.split_once(' ').expect("release and hex");
            (release.to_owned(), unhex(hex))
        })
        .collect()
}

#[test]
fn every_recorded_frame_means_what_was_derived() {
    let decoder = Decoder::default();
    check(&FILES, |seq, payload| decoder.decode(seq, payload).expect("a seq frame"));
}

#[test]
fn expectations_are_what_the_script_says() {
    check_script("derive_vllm.py");
}

/// The engines ran with the default algorithm and PYTHONHASHSEED=0.
#[test]
fn recorded_hashes_follow_from_the_recorded_tokens() {
    let decoder = Decoder::default();
    let compared = |file, scheme, seed| {
        let function = hash_function(scheme, seed).expect("a function");
        compare_hashes(file, function, |seq, payload| decoder.decode(seq, payload).expect("seq"))
    };
    // The one other hash of 0.16 has a salt in it, of which that release says nothing.
    for (file, wanted) in [
        ("vllm-0.16.0-basic.jsonl", (44, 1)),
        ("vllm-0.32.0-basic.jsonl", (37, 0)),
        ("vllm-0.32.0-lora.jsonl", (2, 0)),
    ] {
        let Compared { equal, different } = compared(file, "sha256", Some("0"));
        assert_eq!((equal, different), wanted, "{file}");
        for (scheme, seed) in [("sha256_cbor", Some("0")), ("sha256", None)] {
            assert_eq!(compared(file, scheme, seed).equal, 0, "{file}: another function");
        }
    }
}
