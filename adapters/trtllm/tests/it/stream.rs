//! The native stream: written by a script that shares no code with the decoder, and what of it is
//! borne with. No engine's bytes are here.

use kvbridge_adapters_api::{Compared, Loss};
use kvbridge_adapters_trtllm::{
    block_key::hash_function,
    stream::{Decoded, DecodedBatch, Decoder, LostKind, Reason, capabilities},
};
use kvbridge_schemas::{BlockHash, Event, Parent, Stored, Tier};

use crate::{
    recorded::{check, check_script, compare_hashes},
    writer::{V, array, int, ints, map, text},
};

const FILES: [(&str, usize); 1] = [("trtllm-native-derived.jsonl", 13)];

pub(crate) fn decode(payload: &[u8]) -> DecodedBatch {
    match Decoder::default().decode(&7_u64.to_be_bytes(), payload) {
        Ok(Decoded::Batch(decoded)) => decoded,
        other => panic!("expected a batch: {other:?}"),
    }
}

/// A batch of rank 0.
pub(crate) fn batch(events: impl IntoIterator<Item = V>) -> V {
    array([V::Float(1_750_000_000.25), V::Array(events.into_iter().collect()), int(0)])
}

/// A store of two blocks of four tokens at the root, with other fields beside or instead.
pub(crate) fn stored(more: impl IntoIterator<Item = (&'static str, V)>) -> V {
    let mut pairs = vec![
        ("type", text("BlockStored")),
        ("block_hashes", ints([1, -2])),
        ("parent_block_hash", V::Nil),
        ("token_ids", ints(1..9)),
        ("block_size", int(4)),
        ("lora_id", V::Nil),
        ("medium", text("GPU")),
        ("lora_name", V::Nil),
    ];
    for (key, value) in more {
        match pairs.iter_mut().find(|(known, _)| *known == key) {
            Some(pair) => pair.1 = value,
            None => pairs.push((key, value)),
        }
    }
    V::Map(pairs.into_iter().map(|(key, value)| (text(key), value)).collect())
}

pub(crate) fn removed(hash: i128) -> V {
    map([("type", text("BlockRemoved")), ("block_hashes", ints([hash])), ("medium", text("GPU"))])
}

/// The stores that one event became.
fn stores(event: V) -> Vec<Stored> {
    let decoded = decode(&batch([event]).pack());
    assert_eq!((&decoded.body, decoded.faults.as_slice()), (&None, &[][..]));
    let store = |event| match event {
        Event::Stored(stored) => stored,
        other => panic!("expected a store: {other:?}"),
    };
    decoded.batch.events.into_iter().map(store).collect()
}

fn contents(stored: &Stored) -> Vec<bool> {
    stored.blocks.iter().map(|block| block.content.is_some()).collect()
}

#[test]
fn every_frame_of_the_script_means_what_was_derived() {
    let decoder = Decoder::default();
    check(&FILES, |seq, payload| decoder.decode(seq, payload).expect("a seq frame"));
}

#[test]
fn frames_and_expectations_are_what_the_script_says() {
    check_script("derive_trtllm_native.py");
}

#[test]
fn hashes_follow_from_the_tokens_below_the_first_blocks() {
    let decoder = Decoder::default();
    let function = hash_function("trtllm.v2_sha256_64").expect("a function");
    let compared = compare_hashes(FILES[0].0, function, |seq, payload| {
        decoder.decode(seq, payload).expect("seq")
    });
    // A chain over two batches, one first block, and the one of a salt that no event names. The
    // text above an image has a hash made by hand.
    assert_eq!(compared, Compared { equal: 6, different: 2 });
}

#[test]
fn hashes_are_the_bits_of_the_drained_ones() {
    let [one] = <[Stored; 1]>::try_from(stores(stored([]))).expect("one store");
    let hashes: Vec<&BlockHash> = one.blocks.iter().map(|block| &block.hash).collect();
    assert_eq!(hashes, [&BlockHash::from_u64(1), &BlockHash::from_u64(u64::MAX - 1)]);
    assert_eq!((one.parent.clone(), contents(&one)), (Parent::Root, vec![true, true]));
    let one = &stores(stored([("parent_block_hash", int(-3))]))[0];
    assert_eq!(one.parent, Parent::Block(BlockHash::from_u64(u64::MAX - 2)));
}

#[test]
fn a_medium_that_nothing_sends_is_no_device() {
    let tier = |medium| stores(stored([("medium", medium)]))[0].place.tier.clone();
    assert_eq!(tier(V::Nil), Tier::Device);
    assert_eq!(tier(text("gpu")), Tier::Device);
    assert_eq!(tier(text("CPU")), Tier::Other("CPU".to_owned()));
}

/// A group in a store that is missing in its removal would leave the block behind for ever.
#[test]
fn groups_are_left_out_of_stores_and_removals_alike() {
    let group = [("group_idx", int(1)), ("kv_cache_spec_kind", text("sliding_window"))];
    assert_eq!(stores(stored(group))[0].place.group, None);
}

#[test]
fn tokens_may_be_negative_and_digests_end_what_can_be_matched() {
    let one = &stores(stored([("token_ids", ints([-1, 2, 3, 4, 5, 6, 7, 8]))]))[0];
    assert_eq!((one.tokens.0[0], contents(one)), (u32::MAX, vec![true, true]));

    let digest = || text("ab12");
    let tail = V::Array((1..8).map(V::Int).chain([digest()]).collect());
    let two = stores(stored([("token_ids", tail)]));
    assert_eq!(two.len(), 2);
    assert_eq!((two[0].tokens.0.as_slice(), contents(&two[0])), (&[1, 2, 3, 4][..], vec![true]));
    assert_eq!(two[1].parent, Parent::Block(BlockHash::from_u64(1)));
    assert_eq!((two[1].tokens.0.len(), contents(&two[1])), (0, vec![false]));

    // Where tokens and blocks do not pair up nothing tells which block it is in.
    let short = V::Array(vec![int(1), digest()]);
    let one = &stores(stored([("token_ids", short)]))[0];
    assert_eq!((one.tokens.0.len(), contents(one)), (0, vec![false, false]));
    let nothing =
        &stores(stored([("token_ids", V::Array(vec![digest(); 8])), ("block_size", int(0))]));
    assert_eq!(contents(&nothing[0]), [false, false]);
}

#[test]
fn what_would_look_plain_and_is_not_has_no_content() {
    for (field, value) in [
        ("extra_keys", array([array([text("x")]), V::Nil])),
        ("extra_keys", text("of another form")),
        ("extra_keys", array([int(1)])),
        ("lora_id", int(0)),
    ] {
        let one = &stores(stored([(field, value.clone())]))[0];
        assert_eq!((one.tokens.0.len(), contents(one)), (0, vec![false, false]), "{value:?}");
    }
    let named = stores(stored([("lora_id", int(1)), ("lora_name", text("a"))]));
    assert_eq!((named[0].lora.as_deref(), contents(&named[0])), (Some("a"), vec![true, true]));
    for blank in [V::Nil, V::Array(vec![]), array([V::Nil, V::Array(vec![])])] {
        assert_eq!(contents(&stores(stored([("extra_keys", blank)]))[0]), [true, true]);
    }
}

#[test]
fn events_by_position_are_refused_and_cost_what_they_may_have_been() {
    let by_place = array([text("BlockStored"), ints([1]), V::Nil, ints(1..5), int(4), V::Nil]);
    let removal = array([text("BlockRemoved"), ints([1])]);
    let decoded = decode(&batch([by_place, removed(5), removal]).pack());
    let faults: Vec<_> =
        decoded.faults.iter().map(|fault| (fault.kind, fault.field, fault.reason)).collect();
    let missing = |kind| (kind, Some("block_hashes"), Reason::Missing);
    assert_eq!(faults, [missing(LostKind::Stored), missing(LostKind::MayRemove)]);
    assert_eq!((decoded.batch.events.len(), decoded.batch.loss), (1, Loss::MayRemove));
}

#[test]
fn no_capability_promises_what_the_stream_cannot_hold() {
    let capabilities = capabilities(true, false);
    assert!(!capabilities.epoch_on_wire && !capabilities.one_hash_per_block);
    assert_eq!(capabilities.snapshot, None);
}
