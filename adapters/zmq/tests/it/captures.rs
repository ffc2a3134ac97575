//! Every frame recorded from real engines is read, and a replay is byte for byte what was live.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvbridge_adapters_zmq::frame::{
    FRAME_BYTES_MAX, LiveForm, ReplayFrame, parse_live, parse_replay,
};
use serde_json::Value;

use crate::peer::fixture;

fn frames(record: &Value) -> Vec<Bytes> {
    let frames = record["frames_hex"].as_array().unwrap();
    frames.iter().map(|frame| bytes_of(frame.as_str().unwrap())).collect()
}

fn bytes_of(hex: &str) -> Bytes {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Live messages, replayed batches that equal a live one, and end markers of a capture.
fn read(name: &str) -> (usize, usize, usize) {
    let capture = std::fs::read_to_string(fixture(name)).unwrap();
    let records: Vec<Value> =
        capture.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |socket: &'static str| {
        records.iter().filter(move |record| record["socket"] == socket && record["dir"] == "in")
    };
    // Seqs repeat after a restart, so a seq may have several payloads.
    let mut live: BTreeMap<u64, Vec<Bytes>> = BTreeMap::new();
    for record in of("sub") {
        let frame = parse_live(frames(record), LiveForm::Plain, FRAME_BYTES_MAX).unwrap();
        live.entry(frame.seq_frame.seq()).or_default().push(frame.payload);
    }
    let (mut equal, mut ends) = (0, 0);
    for record in of("replay") {
        // What a REQ got lacks the delimiter, which that socket eats.
        let frames = frames(record);
        if !frames[0].is_empty() {
            continue;
        }
        match parse_replay(frames, FRAME_BYTES_MAX) {
            Ok(ReplayFrame::Batch { seq_frame, payload, .. }) => {
                let same = live.get(&seq_frame.seq()).is_some_and(|live| live.contains(&payload));
                equal += usize::from(same);
            }
            Ok(ReplayFrame::End) => ends += 1,
            Err(error) => panic!("{name}: {error}"),
        }
    }
    (live.values().map(Vec::len).sum(), equal, ends)
}

#[test]
fn captures_are_read_in_both_framings() {
    assert_eq!(read("vllm-0.16.0-basic.jsonl"), (67, 134, 8));
    assert_eq!(read("vllm-0.32.0-basic.jsonl"), (66, 134, 8));
    assert_eq!(read("sglang-0.5.9-radix-p16.jsonl"), (10, 17, 3));
    assert_eq!(read("sglang-0.5.23-radix-p16.jsonl"), (10, 17, 3));
    assert_eq!(read("sglang-0.5.23-server-p16-restart.jsonl"), (28, 30, 3));
}
