//! What events mean: tiers, parents, content, pairs, adapters, salts, namespaces.

use kvbridge_adapters_api::{Continuity, Drain, Removal, Replay};
use kvbridge_adapters_sglang::capabilities;
use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, Parent, Projection, Scope, Tier, content_hash,
};

use crate::{
    decode, only_store,
    pack::{V, array, batch, cleared, int, ints, map, pairs, stored_array, stored_map, text},
};

fn hash(value: i64) -> BlockHash {
    BlockHash::from_u64(value.cast_unsigned())
}

#[test]
fn media_name_tiers_in_any_case() {
    let table = [
        ("GPU", Tier::Device),
        ("gpu", Tier::Device),
        ("CPU_PINNED", Tier::Host),
        ("CPU", Tier::Host),
        ("CPU_TIER1", Tier::Host),
        ("CPU_TIER2", Tier::Host),
        ("DISK", Tier::Disk),
        ("EXTERNAL", Tier::External),
        ("NVM", Tier::Other("NVM".to_owned())),
    ];
    for (medium, tier) in table {
        let place = only_store(stored_map([("medium", text(medium))])).place;
        assert_eq!((place.tier, place.medium.as_deref()), (tier, Some(medium)));
    }
    for event in [stored_map([("medium", V::Nil)]), stored_array([])] {
        let place = only_store(event).place;
        assert_eq!((place.tier, place.medium), (Tier::Device, None));
    }
}

#[test]
fn hashes_are_signed_and_the_first_eight_bytes_name_them() {
    let stored = only_store(stored_map([("parent_block_hash", int(-5))]));
    let hashes: Vec<_> = stored.blocks.iter().map(|block| block.hash.clone()).collect();
    assert_eq!(hashes, [hash(11), hash(-12)]);
    assert_eq!(stored.parent, Parent::Block(hash(-5)));
    assert_eq!(Projection::First8.apply(&hash(-12)), (-12_i64).cast_unsigned());
}

#[test]
fn dense_store_has_content_per_block() {
    let stored = only_store(stored_map([]));
    let contents: Vec<_> = stored.blocks.iter().map(|block| block.content).collect();
    assert_eq!(contents, [Some(content_hash(&[1, 2, 3, 4])), Some(content_hash(&[5, 6, 7, 8]))]);
    assert_eq!((stored.parent, stored.partial, stored.bigram), (Parent::Root, false, false));
}

#[test]
fn page_of_one_token_has_one_hash_a_token() {
    let one = [("block_hashes", ints(1..=8)), ("block_size", int(1))];
    let stored = only_store(stored_map(one));
    assert_eq!(stored.blocks.len(), 8);
    assert_eq!(stored.blocks[7].content, Some(content_hash(&[8])));
}

#[test]
fn pairs_are_tokens_that_overlap_by_one() {
    let stored = only_store(stored_map([("token_ids", pairs(1, 9))]));
    assert!(stored.bigram);
    assert_eq!(stored.tokens.0, (1..=9).collect::<Vec<u32>>());
    let contents: Vec<_> = stored.blocks.iter().map(|block| block.content).collect();
    let window = |tokens: &[u32]| Some(content_hash(tokens));
    assert_eq!(contents, [window(&[1, 2, 3, 4, 5]), window(&[5, 6, 7, 8, 9])]);
    assert!(!stored.partial);
}

#[test]
fn pairs_that_are_sparse_or_short_have_no_content() {
    let sparse = only_store(stored_map([("token_ids", pairs(1, 13))]));
    assert!(sparse.bigram && sparse.blocks.iter().all(|block| block.content.is_none()));
    let short = [("block_hashes", ints([5])), ("token_ids", pairs(1, 4))];
    let short = only_store(stored_map(short));
    assert!(short.partial && short.blocks[0].content.is_none());
}

#[test]
fn salt_is_a_key_or_inside_the_eighth_element() {
    let salt = || map([("cache_salt", text("s1")), ("other", ints([1]))]);
    let table = [
        (stored_array([text("GPU"), salt()]), Some("s1")),
        (stored_array([text("GPU"), map([("cache_salt", V::Nil)])]), None),
        (stored_array([text("GPU"), array([text("full"), text("swa")])]), None),
        (stored_array([text("GPU"), V::Nil]), None),
        (stored_map([("metadata", salt())]), Some("s1")),
        (stored_map([("cache_salt", text("s1"))]), Some("s1")),
        (stored_map([("cache_salt", V::Nil)]), None),
    ];
    for (event, salt) in table {
        assert_eq!(only_store(event.clone()).salt.as_deref(), salt, "{event:?}");
    }
}

#[test]
fn optional_fields_pass_through() {
    let fields = [("lora_id", int(3)), ("lora_name", text("ad")), ("session_id", text("s"))];
    let stored = only_store(stored_map(fields));
    assert_eq!((stored.lora_id, stored.lora.as_deref()), (Some(3), Some("ad")));
    assert_eq!(stored.session.as_deref(), Some("s"));
    let none = only_store(stored_map([("lora_name", V::Nil), ("session_id", V::Nil)]));
    assert_eq!((none.lora, none.session), (None, None));
}

#[test]
fn namespaced_hashes_name_the_blocks() {
    let stored = only_store(stored_map([
        ("namespaced_block_hashes", ints([21, -22])),
        ("parent_block_hash", int(10)),
        ("namespaced_parent_block_hash", int(20)),
    ]));
    let hashes: Vec<_> = stored.blocks.iter().map(|block| block.hash.clone()).collect();
    assert_eq!(
        (hashes.as_slice(), stored.parent),
        ([hash(21), hash(-22)].as_slice(), Parent::Block(hash(20)))
    );
    assert!(stored.blocks.iter().all(|block| block.content.is_some()));
    let removed = map([
        ("type", text("BlockRemoved")),
        ("block_hashes", ints([11])),
        ("namespaced_block_hashes", ints([21])),
        ("medium", text("GPU")),
    ]);
    let decoded = decode(&batch([removed]).pack());
    let [Event::Removed(removed)] = decoded.batch.events.as_slice() else { panic!("a removal") };
    assert_eq!(removed.hashes, [hash(21)]);
    for absent in [V::Nil, ints([])] {
        let plain = only_store(stored_map([("namespaced_block_hashes", absent)]));
        assert_eq!(plain.blocks[0].hash, hash(11));
    }
}

#[test]
fn clear_reaches_device_and_host() {
    let decoded = decode(&batch([cleared(), map([("type", text("AllBlocksCleared"))])]).pack());
    let scope = Scope::Tiers(vec![Tier::Device, Tier::Host]);
    let expected = Event::Cleared(Cleared { scope, cause: ClearCause::Engine });
    assert_eq!(decoded.batch.events, [expected.clone(), expected]);
}

#[test]
fn capabilities_promise_what_the_engine_does() {
    let bound = capabilities(true, true);
    assert_eq!((bound.replay, bound.continuity), (Replay::Journal, Continuity::Unproven));
    let plain = capabilities(false, false);
    assert_eq!((plain.replay, plain.continuity), (Replay::Absent, Continuity::Proven));
    assert_eq!((plain.removal, plain.drain), (Removal::PerCopy, Drain::Shared));
    assert_eq!(plain.clear_scope, Scope::Tiers(vec![Tier::Device, Tier::Host]));
    assert!(!plain.epoch_on_wire && plain.snapshot.is_none() && !plain.one_hash_per_block);
}
