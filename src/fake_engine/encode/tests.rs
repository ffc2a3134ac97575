//! The encoder against the bytes of real releases, and our decoder as its reader.

use kvbridge_adapters_vllm::{Decoded, DecodedBatch, Decoder};
use kvbridge_schemas::EngineKind;

use super::*;
use crate::{
    capture::{CaptureReader, Socket},
    fake_engine::{cache::CacheSettings, engine::Engine, engine::Request, hash::none_hash},
    pipeline::registry,
};

const VECTORS: &str = include_str!("../../../tests/fixtures/vllm_wire_vectors.txt");

fn decode(payload: &[u8]) -> DecodedBatch {
    match Decoder::default().decode(&[0; 8], payload) {
        Ok(Decoded::Batch(decoded)) => decoded,
        other => panic!("expected a batch: {other:?}"),
    }
}

/// What one batch reads as, written again.
fn again(encoder: Encoder, payload: &[u8]) -> Vec<u8> {
    let ts = f64::from_be_bytes(*payload[2..].first_chunk().expect("a batch begins with its time"));
    let DecodedBatch { batch, faults, body } = decode(payload);
    assert!(faults.is_empty() && body.is_none(), "{faults:?} {body:?}");
    encoder.batch(ts, &batch.events, &[], batch.rank)
}

#[test]
fn every_release_vector_is_written_again_byte_for_byte() {
    let mut count = 0;
    for line in VECTORS.lines() {
        let (name, payload) = line.split_once(' ').unwrap();
        // What those hold beyond the model: lookahead tokens, signed hashes of Python, no rank.
        let Ok(release) = name.parse() else { continue };
        let payload = hex::decode(payload).unwrap();
        let bytes = again(Encoder { release, bytes: false }, &payload);
        assert_eq!(hex::encode(bytes), hex::encode(payload), "{name}");
        count += 1;
    }
    assert_eq!(count, 13);
}

#[test]
fn hashes_of_both_forms_in_one_batch_are_written_again() {
    let line = VECTORS.lines().find(|line| line.starts_with("0.23.0-mixed")).unwrap();
    let payload = hex::decode(line.split_once(' ').unwrap().1).unwrap();
    let bytes = again(Encoder { release: Release::of(23, 0), bytes: false }, &payload);
    // The vector was made by hand as a sink of everything: rank as in its own batch.
    assert_eq!(hex::encode(bytes), hex::encode(payload));
}

#[test]
fn recorded_engines_are_written_again_byte_for_byte() {
    for (name, release) in [
        ("vllm-0.10.2-publisher-only", Release::of(10, 2)),
        ("vllm-0.16.0-basic", Release::of(16, 0)),
        ("vllm-0.22.1-publisher-only", Release::of(22, 1)),
        ("vllm-0.25.1-publisher-only", Release::of(25, 1)),
        ("vllm-0.32.0-basic", Release::of(32, 0)),
        ("vllm-0.32.0-lora", Release::of(32, 0)),
    ] {
        let path = format!("{}/tests/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
        let mut count = 0;
        for (line, read) in CaptureReader::new(file) {
            let recorded = read.unwrap();
            if recorded.socket != Socket::LiveIn {
                continue;
            }
            let payload = &recorded.frames[2];
            let hash_is_bytes = payload.windows(2).any(|pair| pair == [0xc4, 0x20]);
            let bytes = again(Encoder { release, bytes: hash_is_bytes }, payload);
            assert_eq!(hex::encode(bytes), hex::encode(payload), "{name}:{line}");
            count += 1;
        }
        assert!(count > 0, "{name}");
    }
}

#[test]
fn what_the_model_sends_in_any_release_is_read_without_a_fault() {
    for text in ["0.9", "0.9.1", "0.10.2", "0.14", "0.17", "0.20", "0.22", "0.25", "0.28", "0.33"] {
        for bytes in [false, true] {
            let encoder = Encoder { release: text.parse().unwrap(), bytes };
            let settings = CacheSettings {
                blocks: 24,
                block_size: 4,
                window: encoder.release.group().then_some(8),
                host_blocks: 6,
                host_block_size_is_zero: encoder.release.host_block_size_is_zero(),
                host_group: encoder.release.maps(),
            };
            let mut engine = Engine::new(settings, none_hash("0"), encoder.release.tagged_keys());
            let mut seen = 0;
            for id in 0..12_u32 {
                let tokens = (0..21).map(|at| at + (id % 3) * 1000).collect();
                let lora = (id % 2 == 1).then(|| "ad".to_owned());
                let salt = (id % 5 == 0).then(|| "s".to_owned());
                engine.add(Request { id: u64::from(id), tokens, output_tokens: 6, lora, salt });
                while !engine.is_idle() {
                    let events = engine.step().events;
                    let payload = encoder.batch(1.5, &events, &[], Some(3));
                    let decoding =
                        registry::decode(&EngineKind::Vllm, &[vec![], vec![0; 8], payload.clone()]);
                    assert_eq!(decoding.faults, Vec::<String>::new(), "{text}");
                    let batch = decoding.batch.unwrap();
                    assert_eq!(batch.events.len(), events.len());
                    seen += events.len();
                }
            }
            assert!(seen > 30, "{text}: {seen}");
        }
    }
}

#[test]
fn strays_are_what_they_are_meant_to_be() {
    use kvbridge_adapters_api::Loss;
    for release in [Release::of(20, 0), Release::NEWEST] {
        let encoder = Encoder { release, bytes: false };
        let loss = |strays: &[Stray]| decode(&encoder.batch(0.0, &[], strays, Some(0))).batch.loss;
        assert_eq!(loss(&[]), Loss::Nothing);
        let (store, tag) = (loss(&[Stray::BadStore]), loss(&[Stray::UnknownTag]));
        assert!(Loss::Nothing < store && store < tag && tag < Loss::Body, "{store:?} {tag:?}");
        assert_eq!(decode(POISON).batch.loss, Loss::Body);
    }
}
