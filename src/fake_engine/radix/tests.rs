//! The tree against its own events, and the encoder against the bytes of real releases.

use kvbridge_adapters_sglang::{Decoded, DecodedBatch, Decoder, decode};
use proptest::prelude::*;

use super::{encode::RadixEncoder, release::RadixRelease, *};
use crate::{
    capture::{CaptureReader, Socket},
    fake_engine::{
        encode::{POISON, Stray},
        engine::{Engine, Request},
        sequence::Chain,
    },
};

fn read(payload: &[u8]) -> DecodedBatch {
    match decode(&Decoder::default(), b"", &[0; 8], payload) {
        Ok(Decoded::Batch(decoded)) => decoded,
        other => panic!("expected a batch: {other:?}"),
    }
}

#[test]
fn recorded_engines_are_written_again_byte_for_byte() {
    for (name, release) in [
        ("sglang-0.5.9-radix-p16", RadixRelease::of(5, 9)),
        ("sglang-0.5.18-radix-p16-namespaces", RadixRelease::of(5, 18)),
        ("sglang-0.5.23-radix-p16", RadixRelease::NEWEST),
        ("sglang-0.5.23-radix-p16-eagle", RadixRelease::NEWEST),
        ("sglang-0.5.23-server-p16-restart", RadixRelease::NEWEST),
    ] {
        let path = format!("{}/tests/fixtures/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
        let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
        let mut count = 0;
        for (line, recorded) in CaptureReader::new(file) {
            let recorded = recorded.unwrap();
            if recorded.socket != Socket::LiveIn {
                continue;
            }
            let payload = &recorded.frames[2];
            let ts = f64::from_be_bytes(*payload[2..].first_chunk().unwrap());
            let DecodedBatch { batch, faults, body } = read(payload);
            assert!(faults.is_empty() && body.is_none(), "{name}:{line}");
            let again = RadixEncoder { release }.batch(ts, &batch.events, &[], batch.rank);
            assert_eq!(hex::encode(again), hex::encode(payload), "{name}:{line}");
            count += 1;
        }
        assert!(count > 0, "{name}");
    }
}

#[test]
fn strays_are_what_they_are_meant_to_be() {
    use kvbridge_adapters_api::Loss;
    for release in [RadixRelease::of(4, 9), RadixRelease::NEWEST] {
        let encoder = RadixEncoder { release };
        let loss = |strays: &[Stray]| read(&encoder.batch(0.0, &[], strays, Some(0))).batch.loss;
        assert_eq!(loss(&[]), Loss::Nothing);
        assert_eq!(loss(&[Stray::BadStore]), Loss::Stores);
        assert_eq!(loss(&[Stray::UnknownTag]), Loss::MayRemove);
        assert_eq!(read(POISON).batch.loss, Loss::Body);
    }
}

/// Counts what the events of a release say.
#[derive(Default)]
struct Listener(BTreeMap<(BlockHash, Tier), u32>);

impl Listener {
    fn hear(&mut self, encoder: RadixEncoder, events: &[Event]) {
        let payload = encoder.batch(1.5, events, &[], Some(0));
        let decoded = read(&payload);
        assert!(decoded.faults.is_empty() && decoded.body.is_none());
        for event in decoded.batch.events {
            match event {
                Event::Stored(stored) => {
                    if let Parent::Block(parent) = &stored.parent {
                        let parent = (parent.clone(), stored.place.tier.clone());
                        assert!(self.0.contains_key(&parent), "a parent is there before its child");
                    }
                    for block in stored.blocks {
                        assert!(block.content.is_some());
                        let tier = stored.place.tier.clone();
                        *self.0.entry((block.hash, tier)).or_default() += 1;
                    }
                }
                Event::Removed(removed) => {
                    for hash in removed.hashes {
                        let spot = (hash, removed.place.tier.clone());
                        *self.0.get_mut(&spot).expect("what goes was there") -= 1;
                    }
                    self.0.retain(|_, count| *count > 0);
                }
                Event::Cleared(_) => self.0.clear(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn agrees_with(&self, truth: &[Resident]) {
        let wire = |one: &Resident| {
            ((RadixEncoder::wire_hash(&whole(&one.hash)), one.tier.clone()), one.count)
        };
        assert_eq!(self.0, truth.iter().map(wire).collect());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Add { root: u32, len: u32, output: u32, lora: bool, salt: bool },
    Step,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_u32, 1..40_u32, 1..12_u32, any::<bool>(), any::<bool>()).prop_map(
            |(root, len, output, lora, salt)| Act::Add { root, len, output, lora, salt }
        ),
        12 => Just(Act::Step),
        1 => Just(Act::Reset),
    ]
}

proptest! {
    #[test]
    fn events_alone_tell_the_whole_truth(
        acts in proptest::collection::vec(act(), 1..120),
        pages in 12..40_u32,
        page_size in 1..6_u32,
        host_pages in 0..12_u32,
        patch in prop_oneof![Just(9_u32), Just(18), Just(20), Just(23)],
    ) {
        let release = RadixRelease::of(5, patch);
        let encoder = RadixEncoder { release };
        let chain = Chain::Plain { salted: release.salt() };
        let mut engine = Engine::new(RadixSettings { pages, page_size, host_pages }, chain, false);
        let mut listener = Listener::default();
        for (id, act) in acts.into_iter().enumerate() {
            match act {
                Act::Add { root, len, output, lora, salt } => engine.add(Request {
                    id: u64::try_from(id).unwrap(),
                    tokens: (0..len).map(|at| root * 1000 + at).collect(),
                    output_tokens: output,
                    lora: lora.then(|| "ad".to_owned()),
                    salt: salt.then(|| "s".to_owned()),
                }),
                Act::Step => {
                    listener.hear(encoder, &engine.step().events);
                    listener.agrees_with(&engine.truth());
                }
                Act::Reset => {
                    engine.reset(true);
                }
            }
            prop_assert!(engine.cache().used_count() <= usize::try_from(pages).unwrap());
        }
        for _ in 0..4000 {
            if engine.is_idle() {
                break;
            }
            listener.hear(encoder, &engine.step().events);
        }
        // Whatever was asked ends, and nothing is in use then.
        prop_assert!(engine.is_idle());
        listener.hear(encoder, &engine.flush());
        listener.agrees_with(&engine.truth());
        prop_assert!(engine.reset(false));
        prop_assert!(engine.truth().is_empty());
    }
}

/// What the mirror tells of an engine without a host tier and without adapters is all there is.
#[test]
fn mirror_of_a_plain_engine_is_the_truth_and_reads_back() {
    use kvbridge_adapters_sglang::{SnapshotMessage, SnapshotReader};
    let settings = RadixSettings { pages: 24, page_size: 2, host_pages: 0 };
    let mut engine = Engine::new(settings, Chain::Plain { salted: true }, false);
    let mut mirror = mirror::Mirror::default();
    mirror.hear(&engine.flush());
    for id in 0..12 {
        let root = u32::try_from(id % 5).unwrap() * 100;
        let tokens = (root..root + 9).collect();
        engine.add(Request { id, tokens, output_tokens: 3, lora: None, salt: None });
        while !engine.is_idle() {
            mirror.hear(&engine.step().events);
        }
    }
    let cut = mirror::Cut { life: "1f", rank: 0, barrier: 40, barrier_id: "b" };
    for short in [false, true] {
        let mut reader = SnapshotReader::default();
        let mut read = Vec::new();
        let mut said = None;
        for (kind, payload) in mirror.answer(&cut, short) {
            match reader.read(kind.as_bytes(), &payload).unwrap() {
                SnapshotMessage::Header => (),
                SnapshotMessage::Records(records) => read.extend(records),
                SnapshotMessage::Whole(intro) => said = Some(intro),
            }
        }
        let said = said.unwrap();
        assert_eq!(said.record_count == u64::try_from(read.len()).unwrap(), !short);
        if !short {
            let held = read.iter().map(|record| (record.hash.clone(), Tier::Device));
            let listener = Listener(held.map(|spot| (spot, 1)).collect());
            assert!(!listener.0.is_empty());
            listener.agrees_with(&engine.truth());
        }
    }
}
