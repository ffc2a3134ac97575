//! Every recorded event, against a derivation that shares no code with the decoder.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use kvbridge_adapters_api::HashChain;
use kvbridge_adapters_trtllm::{Instance, block_key::hash_function};
use kvbridge_schemas::Event;
use serde_json::Value;

use crate::{batches, recorded::describe};

const RECORDED: &str = "trtllm-serializer-7ed07f06";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("a fixture")
}

/// What each event of an answer means, read as one rank.
fn meanings(body: &str) -> Vec<Value> {
    let mut instance = Instance::new(1, 1);
    let events = Instance::split(body.as_bytes()).expect("a list");
    let read = |event| {
        let step = instance.step(event);
        assert_eq!((&step.faults, step.strange), (&Vec::new(), None));
        let batches = batches(&step);
        let [(0, batch)] = batches.as_slice() else { panic!("one batch: {step:?}") };
        assert_eq!(batch.digest, kvbridge_schemas::digest(event.as_bytes()));
        describe(batch)
    };
    events.into_iter().map(read).collect()
}

#[test]
fn every_recorded_event_means_what_was_derived() {
    let expected = read(&format!("expect/{RECORDED}.ndjson"));
    let expected: Vec<Value> =
        expected.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(expected.len(), 12);
    let lines = read(&format!("{RECORDED}.jsonl"));
    let body = format!("[{}]", lines.lines().collect::<Vec<_>>().join(","));
    assert_eq!(meanings(&body), expected);
    // The same answer as the engine's server writes it, and inside the list of a release before
    // 0.19: other bytes, the same meaning.
    let whole = read(&format!("{RECORDED}.json"));
    for body in [whole.clone(), format!("[{whole}]")] {
        for (mut meaning, mut expected) in meanings(&body).into_iter().zip(expected.clone()) {
            meaning["bytes"].take();
            expected["bytes"].take();
            assert_eq!(meaning, expected);
        }
    }
}

#[test]
fn expectations_are_what_the_script_says() {
    let output = Command::new("python3")
        .args(["-B", "derive_trtllm.py", "--check"])
        .current_dir(folder())
        .output()
        .expect("python3 is needed for this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn recorded_hashes_follow_from_the_recorded_tokens() {
    let lines = read(&format!("{RECORDED}.jsonl"));
    let body = format!("[{}]", lines.lines().collect::<Vec<_>>().join(","));
    let mut instance = Instance::new(1, 1);
    let (mut equal, mut different) = (0, 0);
    let mut chains = BTreeMap::new();
    for event in Instance::split(body.as_bytes()).expect("a list") {
        let step = instance.step(event);
        for (_, batch) in batches(&step) {
            let Some(function) = hash_function(batch.hash.scheme.as_str()) else { continue };
            let chain = chains.entry(function.scheme).or_insert_with(|| HashChain::new(function));
            for event in &batch.events {
                if let Event::Stored(stored) = event {
                    let compared = chain.look(stored);
                    equal += compared.equal;
                    different += compared.different;
                }
            }
        }
    }
    // The recording's one hash of the second algorithm is a placeholder.
    assert_eq!((equal, different), (3, 1));
}
