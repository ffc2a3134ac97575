//! What events mean: tiers, parents, content, groups, adapters, salts.

use kvbridge_adapters_api::{Continuity, Drain, Removal, Replay};
use kvbridge_adapters_vllm::capabilities;
use kvbridge_schemas::{
    ClearCause, Cleared, Event, ExtraKey, Group, GroupKind, Parent, Scope, Tier, content_hash,
};

use crate::{
    decode, only_store,
    pack::{
        V, array, batch, cleared, int, ints, map, removed_array, stored_array, stored_map, text,
    },
};

#[test]
fn media_name_tiers_in_any_case() {
    let table = [
        ("GPU", Tier::Device),
        ("gpu", Tier::Device),
        ("CPU", Tier::Host),
        ("cpu", Tier::Host),
        ("FS", Tier::Disk),
        ("DISK", Tier::Disk),
        ("STORAGE", Tier::Disk),
        ("Storage", Tier::Disk),
        ("OBJ", Tier::External),
        ("EXTERNAL", Tier::External),
        ("cuda:0", Tier::Other("cuda:0".to_owned())),
    ];
    for (medium, tier) in table {
        let place = only_store(stored_map([("medium", text(medium))])).place;
        assert_eq!((place.tier, place.medium.as_deref()), (tier, Some(medium)));
    }
    for event in [stored_map([("medium", V::Nil)]), stored_array()] {
        let place = only_store(event).place;
        assert_eq!((place.tier, place.medium), (Tier::Device, None));
    }
}

#[test]
fn dense_store_has_content_per_block() {
    let stored = only_store(stored_map([]));
    let contents: Vec<_> = stored.blocks.iter().map(|block| block.content).collect();
    assert_eq!(contents, [Some(content_hash(&[1, 2, 3, 4])), Some(content_hash(&[5, 6, 7, 8]))]);
    assert_eq!((stored.parent, stored.partial, stored.bigram), (Parent::Root, false, false));
}

#[test]
fn sparse_store_keeps_hashes_without_content() {
    let stored = only_store(stored_map([("token_ids", ints(1..=12))]));
    assert_eq!(stored.blocks.len(), 2);
    assert!(stored.blocks.iter().all(|block| block.content.is_none()));
    assert_eq!((stored.tokens.0.len(), stored.partial), (12, false));
    let none = only_store(stored_map([("block_hashes", ints([]))]));
    assert_eq!((none.blocks.len(), none.tokens.0.len(), none.parent), (0, 8, Parent::Root));
}

#[test]
fn placeholder_does_not_tell_its_parent() {
    // 0.20 on sends size 0, before that the offloaded block's.
    for size in [0, 16] {
        let one = [("token_ids", ints([])), ("block_size", int(size)), ("block_hashes", ints([5]))];
        let stored = only_store(stored_map(one.clone()));
        assert_eq!((stored.parent, stored.partial), (Parent::Unknown, false));
        assert_eq!(stored.blocks.len(), 1);
        assert_eq!(stored.blocks[0].content, None);
        let [tokens, size, hashes] = one;
        let known = only_store(stored_map([tokens, size, hashes, ("parent_block_hash", int(4))]));
        assert!(matches!(known.parent, Parent::Block(_)));
    }
}

#[test]
fn block_shorter_than_its_own_size_is_partial() {
    let short = [("block_hashes", ints([5])), ("token_ids", ints(1..=3))];
    let stored = only_store(stored_map(short));
    assert!(stored.partial);
    assert_eq!(stored.blocks[0].content, None);
    // A hybrid model's tail says its own size: dense.
    let tail = only_store(stored_map([("block_hashes", ints([5])), ("token_ids", ints(1..=4))]));
    assert!(!tail.partial);
    assert!(tail.blocks[0].content.is_some());
}

#[test]
fn group_is_told_by_its_index() {
    let group = |index, kind, window| Some(Group { index, kind, window });
    let window = [
        ("group_idx", int(0)),
        ("kv_cache_spec_kind", text("sliding_window")),
        ("kv_cache_spec_sliding_window", int(128)),
    ];
    let stored = only_store(stored_map(window));
    assert_eq!(stored.place.group, group(0, Some(GroupKind::SlidingWindow), Some(128)));
    let bare = only_store(stored_map([("group_idx", int(3))]));
    assert_eq!(bare.place.group, group(3, None, None));
    let none = only_store(stored_map([("kv_cache_spec_kind", text("mamba"))]));
    assert_eq!(none.place.group, None);
}

#[test]
fn optional_fields_pass_through() {
    let fields = [
        ("lora_id", int(3)),
        ("lora_name", text("ad")),
        ("locality", text("REMOTE")),
        ("ownership", text("kvcr")),
        ("session_id", text("s")),
        ("lookahead_token_ids", array([ints([5, 9]), ints([])])),
    ];
    let stored = only_store(stored_map(fields));
    assert_eq!((stored.lora_id, stored.lora.as_deref()), (Some(3), Some("ad")));
    assert_eq!(stored.place.locality.as_deref(), Some("REMOTE"));
    assert_eq!(stored.place.ownership.as_deref(), Some("kvcr"));
    assert_eq!(stored.session.as_deref(), Some("s"));
}

#[test]
fn clear_reaches_the_device_alone() {
    let decoded = decode(&batch([cleared(), map([("type", text("AllBlocksCleared"))])]).pack());
    let scope = Scope::Tiers(vec![Tier::Device]);
    let expected = Event::Cleared(Cleared { scope, cause: ClearCause::Engine });
    assert_eq!(decoded.batch.events, [expected.clone(), expected]);
}

#[test]
fn header_names_the_first_block_size() {
    let placeholder =
        stored_map([("block_size", int(0)), ("token_ids", ints([])), ("medium", text("CPU"))]);
    let decoded = decode(&batch([removed_array(1), placeholder, stored_map([])]).pack());
    assert_eq!(decoded.batch.hash.block_size, 4);
    assert_eq!(decode(&batch([cleared()]).pack()).batch.hash.block_size, 0);
}

// === extra keys and the salt among them

/// (extra keys, salt) of a store of two blocks with these entries and this adapter.
fn salt_of(first: V, second: V, lora: Option<&str>) -> Option<String> {
    let lora = lora.map_or(V::Nil, text);
    let stored =
        only_store(stored_map([("extra_keys", array([first, second])), ("lora_name", lora)]));
    assert_eq!(stored.extra.len(), 2);
    stored.salt
}

fn item() -> V {
    array([text("img"), int(-14)])
}

#[test]
fn salt_is_told_apart_only_when_unambiguous() {
    let salt = Some("s1".to_owned());
    let t = text;
    assert_eq!(salt_of(array([t("s1")]), V::Nil, None), salt);
    assert_eq!(salt_of(array([t("ad"), t("s1")]), array([t("ad")]), Some("ad")), salt);
    assert_eq!(salt_of(array([item(), t("s1")]), array([item()]), None), salt);
    // A salt may be the adapter's name.
    assert_eq!(salt_of(array([t("s1"), t("s1")]), array([t("s1")]), Some("s1")), salt);
    // Only the adapter.
    assert_eq!(salt_of(array([t("ad")]), array([t("ad")]), Some("ad")), None);
    // The adapter is not where it must be.
    assert_eq!(salt_of(array([t("s1")]), array([t("ad")]), Some("ad")), None);
    // Two texts, or one in a later block: media ids of an old release.
    assert_eq!(salt_of(array([t("m"), t("s1")]), V::Nil, None), None);
    assert_eq!(salt_of(array([t("m")]), array([t("m")]), None), None);
    assert_eq!(salt_of(V::Nil, array([t("m")]), None), None);
    assert_eq!(salt_of(V::Nil, V::Nil, None), None);
}

#[test]
fn salt_belongs_to_the_first_block_of_a_sequence() {
    let extra = array([array([text("s1")]), V::Nil]);
    let inner = stored_map([("extra_keys", extra.clone()), ("parent_block_hash", int(9))]);
    assert_eq!(only_store(inner).salt, None);
    assert_eq!(only_store(stored_map([("extra_keys", extra)])).salt.as_deref(), Some("s1"));
}

#[test]
fn bare_text_of_a_layout_with_bare_media_is_no_salt() {
    let store = |extra: V, more: Vec<V>| {
        let V::Array(mut event) = stored_array() else { panic!("an array") };
        event.extend([text("GPU"), V::Nil, array([extra, V::Nil])]);
        event.extend(more);
        only_store(V::Array(event)).salt
    };
    // Nine elements: 0.17 to 0.19.1. A media item as an array tells that it is 0.19.
    assert_eq!(store(array([text("s1")]), vec![]), None);
    assert_eq!(store(array([item(), text("s1")]), vec![]).as_deref(), Some("s1"));
    // Ten: 0.20.
    assert_eq!(store(array([text("s1")]), vec![int(0)]).as_deref(), Some("s1"));
}

#[test]
fn extra_keys_keep_their_shapes() {
    let first = array([text("ad"), item(), V::Bytes(vec![1, 2])]);
    let stored = only_store(stored_map([("extra_keys", array([first, V::Nil]))]));
    let item = ExtraKey::Item { id: "img".to_owned(), offset: -14 };
    let first = vec![ExtraKey::Text("ad".to_owned()), item, ExtraKey::Bytes(vec![1, 2])];
    assert_eq!(stored.extra, [first, vec![]]);
    assert!(only_store(stored_map([("extra_keys", V::Nil)])).extra.is_empty());
}

#[test]
fn capabilities_promise_what_the_engine_does() {
    let bound = capabilities(true, true);
    assert_eq!((bound.replay, bound.continuity), (Replay::Journal, Continuity::Unproven));
    let plain = capabilities(false, false);
    assert_eq!((plain.replay, plain.continuity), (Replay::Absent, Continuity::Proven));
    assert_eq!((plain.removal, plain.drain), (Removal::PerCopy, Drain::Shared));
    assert_eq!(plain.clear_scope, Scope::Tiers(vec![Tier::Device]));
    assert!(!plain.epoch_on_wire && plain.snapshot.is_none());
}
