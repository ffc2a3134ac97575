//! Every recorded frame and every vector, against a derivation that shares no code with the
//! decoder.

use std::fs;

use kvbridge_adapters_vllm::Decoder;

use crate::recorded::{check, check_script, folder, unhex};

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
