//! One behaviour per test.

use kvbridge_schemas::{
    BlockHash, ClearCause, Cleared, Event, ExtraKey, Group, GroupKind, Moved, Parent, Place,
    Removed, Scope, Stored, StoredBlock, Tier, Tokens, content_hash,
};

use super::{apply, world::SETTINGS};
use crate::{
    recovery::Finding,
    view::{Delta, LinkParent, NodeId, View, ViewSettings, namespace},
};

pub(super) fn hash(key: u64) -> BlockHash {
    BlockHash::from_u64(key)
}

fn node(key: u64) -> NodeId {
    NodeId { key, block_size: 2 }
}

/// Blocks of two tokens each; the tokens of block k are [k, k].
pub(super) fn stored(parent: Parent, keys: &[u64]) -> Stored {
    let tokens = |key: u64| [u32::try_from(key).unwrap(); 2];
    let block =
        |key: &u64| StoredBlock { hash: hash(*key), content: Some(content_hash(&tokens(*key))) };
    Stored {
        parent,
        block_size: 2,
        tokens: Tokens(keys.iter().flat_map(|key| tokens(*key)).collect()),
        blocks: keys.iter().map(block).collect(),
        partial: false,
        bigram: false,
        place: Place::of(Tier::Device),
        lora: None,
        lora_id: None,
        salt: None,
        extra: Vec::new(),
        session: None,
    }
}

fn store(view: &mut View, parent: Parent, keys: &[u64]) -> Vec<Delta> {
    apply(view, Event::Stored(stored(parent, keys))).0
}

fn placeholder(key: u64, place: Place) -> Event {
    let blocks = vec![StoredBlock { hash: hash(key), content: None }];
    let bare = stored(Parent::Unknown, &[]);
    Event::Stored(Stored { block_size: 0, blocks, place, ..bare })
}

pub(super) fn removed(keys: &[u64], place: Place) -> Event {
    Event::Removed(Removed { hashes: keys.iter().map(|key| hash(*key)).collect(), place })
}

fn remove(view: &mut View, key: u64) -> Vec<Delta> {
    apply(view, removed(&[key], Place::of(Tier::Device))).0
}

fn group(index: u32, kind: Option<GroupKind>) -> Place {
    Place { group: Some(Group { index, kind, window: None }), ..Place::of(Tier::Device) }
}

/// Keys and tiers in the order in which they were linked.
fn linked(deltas: &[Delta]) -> Vec<(u64, Tier)> {
    let of = |delta: &Delta| match delta {
        Delta::Linked { node, tier, .. } => Some((node.key, tier.clone())),
        Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared => None,
    };
    deltas.iter().filter_map(of).collect()
}

fn device(keys: &[u64]) -> Vec<(u64, Tier)> {
    keys.iter().map(|key| (*key, Tier::Device)).collect()
}

#[test]
fn dense_store_chains_its_blocks() {
    let mut view = View::new(SETTINGS);
    let deltas = store(&mut view, Parent::Root, &[1, 2]);
    let root = LinkParent::Root(namespace(None, None));
    let expected = [(1, root), (2, LinkParent::Block(node(1)))].map(|(key, parent)| {
        let content = content_hash(&[u32::try_from(key).unwrap(); 2]);
        Delta::Linked { node: node(key), parent, content, bigram: false, tier: Tier::Device }
    });
    assert_eq!(deltas, expected);
}

#[test]
fn stored_twice_removed_once_stays() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1]);
    assert_eq!(store(&mut view, Parent::Root, &[1]), []);
    assert_eq!(view.device_copies(), 2);
    assert_eq!(remove(&mut view, 1), []);
    let gone = Delta::Unlinked { node: node(1), tier: Tier::Device };
    assert_eq!(remove(&mut view, 1), [gone]);
    assert_eq!(view, View::new(SETTINGS));
}

#[test]
fn integer_and_bytes_are_one_block_and_the_longer_form_is_kept() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1]);
    let mut wide = stored(Parent::Root, &[1]);
    wide.blocks[0].hash = BlockHash::from_bytes(&[9, 9, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    let long = wide.blocks[0].hash.clone();
    apply(&mut view, Event::Stored(wide));
    store(&mut view, Parent::Root, &[1]);
    let records = view.snapshot();
    assert_eq!((records.len(), &records[0].hash, records[0].count), (1, &long, 3));
}

#[test]
fn placeholder_of_a_known_block_is_linked_in_its_tier() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1]);
    let (deltas, _) = apply(&mut view, placeholder(1, Place::of(Tier::Host)));
    assert_eq!(linked(&deltas), [(1, Tier::Host)]);
}

#[test]
fn placeholder_of_an_unknown_block_is_linked_once_a_store_tells_its_place() {
    let mut view = View::new(SETTINGS);
    assert_eq!(apply(&mut view, placeholder(1, Place::of(Tier::Host))).0, []);
    assert!(view.lacks_content());
    let deltas = store(&mut view, Parent::Root, &[1]);
    assert_eq!(linked(&deltas), [(1, Tier::Device), (1, Tier::Host)]);
    assert!(!view.lacks_content());
}

#[test]
fn orphans_are_linked_with_all_that_waits_for_them_when_the_parent_arrives() {
    let mut view = View::new(SETTINGS);
    assert_eq!(store(&mut view, Parent::Block(hash(2)), &[3, 4]), []);
    assert_eq!(store(&mut view, Parent::Block(hash(1)), &[2]), []);
    assert_eq!((view.parked_count(), view.block_counts()[&Tier::Device]), (3, 3));
    let deltas = store(&mut view, Parent::Root, &[1]);
    assert_eq!(linked(&deltas), device(&[1, 2, 3, 4]));
    assert_eq!(view.parked_count(), 0);
}

#[test]
fn parked_blocks_are_removed_and_cleared_like_others() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Block(hash(1)), &[2, 3]);
    assert_eq!(remove(&mut view, 2), []);
    assert_eq!(view.parked_count(), 1, "3 still waits for 2");
    remove(&mut view, 3);
    assert_eq!(view, View::new(SETTINGS));
    store(&mut view, Parent::Block(hash(1)), &[2, 3]);
    let all = Cleared { scope: Scope::All, cause: ClearCause::Repair };
    apply(&mut view, Event::Cleared(all));
    assert_eq!(view, View::new(SETTINGS));
}

#[test]
fn child_keeps_its_link_when_the_parent_goes_first() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1, 2]);
    assert_eq!(remove(&mut view, 1), [Delta::Unlinked { node: node(1), tier: Tier::Device }]);
    assert_eq!(linked(&view.links().collect::<Vec<_>>()), device(&[2]));
    assert_eq!(linked(&store(&mut view, Parent::Root, &[1])), device(&[1]));
}

#[test]
fn orphans_beyond_the_bound_are_resident_and_found_out() {
    let mut view = View::new(ViewSettings { orphans_max: 1, ..SETTINGS });
    store(&mut view, Parent::Block(hash(1)), &[2]);
    let orphan = Event::Stored(stored(Parent::Block(hash(8)), &[9]));
    assert_eq!(apply(&mut view, orphan), (vec![], vec![Finding::ParkingOverflow]));
    assert_eq!((view.parked_count(), view.block_counts()[&Tier::Device]), (1, 2));
    assert_eq!(linked(&store(&mut view, Parent::Root, &[8])), device(&[8]));
    // Its place was not kept; a store that names it again, with its parent here, brings it back.
    assert_eq!(linked(&store(&mut view, Parent::Block(hash(8)), &[9])), device(&[9]));
}

#[test]
fn where_stores_are_left_out_an_unknown_parent_shows_it_and_an_unknown_removal_does_not() {
    let mut view = View::new(ViewSettings { leaves_out: true, ..SETTINGS });
    store(&mut view, Parent::Root, &[1]);
    let below = |parent, keys: &[u64]| Event::Stored(stored(Parent::Block(hash(parent)), keys));
    assert_eq!(apply(&mut view, below(1, &[2])).1, []);
    assert_eq!(apply(&mut view, below(7, &[8, 9])), (vec![], vec![Finding::StoreMissing]));
    // Its parent waits itself, but is there.
    assert_eq!(apply(&mut view, below(9, &[10])), (vec![], vec![]));
    assert_eq!(view.parked_count(), 3);
    assert_eq!(apply(&mut view, removed(&[7], Place::of(Tier::Device))), (vec![], vec![]));
    // What comes at last brings everything below it along.
    assert_eq!(linked(&store(&mut view, Parent::Root, &[7])), device(&[7, 8, 9, 10]));
}

#[test]
fn removal_of_what_is_not_there_is_found_once_per_call() {
    let mut view = View::new(SETTINGS);
    let unknown = removed(&[1, 2, 3], Place::of(Tier::Device));
    assert_eq!(apply(&mut view, unknown), (vec![], vec![Finding::CountBelowZero]));
    assert_eq!(apply(&mut view, removed(&[1], Place::of(Tier::Disk))), (vec![], vec![]));
    let host = || removed(&[1], Place::of(Tier::Host));
    assert_eq!(apply(&mut view, host()).1, [Finding::HostCountBelowZero]);
}

#[test]
fn host_is_a_hint_once_a_source_without_removals_stores_there() {
    let medium = |medium: &str| Place { medium: Some(medium.into()), ..Place::of(Tier::Host) };
    let mut view = View::new(SETTINGS);
    apply(&mut view, placeholder(1, medium("CPU")));
    assert!(!view.host_is_hint());
    apply(&mut view, placeholder(1, medium("cpu")));
    assert!(view.host_is_hint());
    assert_eq!(apply(&mut view, removed(&[7], Place::of(Tier::Host))).1, []);
}

#[test]
fn removal_finds_its_group_by_index() {
    let mut view = View::new(SETTINGS);
    for (index, kind) in [(0, GroupKind::FullAttention), (1, GroupKind::SlidingWindow)] {
        let place = group(index, Some(kind));
        apply(&mut view, Event::Stored(Stored { place, ..stored(Parent::Root, &[1]) }));
    }
    assert_eq!(apply(&mut view, removed(&[1], group(1, None))), (vec![], vec![]));
    let gone = Delta::Unlinked { node: node(1), tier: Tier::Device };
    assert_eq!(apply(&mut view, removed(&[1], group(0, None))), (vec![gone], vec![]));
    assert_eq!(view.block_counts().len(), 0);
}

#[test]
fn blocks_leave_the_prefix_when_their_group_turns_out_to_hold_windows() {
    let mut view = View::new(SETTINGS);
    let in_group = |kind| Stored { place: group(1, kind), ..stored(Parent::Root, &[1]) };
    assert_eq!(linked(&apply(&mut view, Event::Stored(in_group(None))).0), device(&[1]));
    let (deltas, _) = apply(&mut view, Event::Stored(in_group(Some(GroupKind::SlidingWindow))));
    assert_eq!(deltas, [Delta::Unlinked { node: node(1), tier: Tier::Device }]);
    assert_eq!(view.block_counts()[&Tier::Device], 1);
}

#[test]
fn partial_blocks_are_resident_and_never_linked() {
    let mut view = View::new(SETTINGS);
    let partial = Stored { partial: true, ..stored(Parent::Root, &[1]) };
    assert_eq!(apply(&mut view, Event::Stored(partial)).0, []);
    assert_eq!((view.block_counts()[&Tier::Device], view.device_copies()), (1, 0));
}

#[test]
fn moved_block_is_never_unlinked_in_between() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1, 2]);
    let moved = Moved { hash: hash(1), from: Tier::Device, to: Tier::Host };
    let (deltas, findings) = apply(&mut view, Event::Moved(moved));
    assert_eq!(linked(&deltas), [(1, Tier::Host)]);
    assert_eq!(deltas[1], Delta::Unlinked { node: node(1), tier: Tier::Device });
    assert_eq!((deltas.len(), findings), (2, vec![]));
}

#[test]
fn clear_of_one_tier_drops_all_of_them() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1]);
    apply(&mut view, placeholder(1, Place::of(Tier::Host)));
    let cleared = || {
        let scope = Scope::Tiers(vec![Tier::Device]);
        Event::Cleared(Cleared { scope, cause: ClearCause::Engine })
    };
    assert_eq!(apply(&mut view, cleared()).0, [Delta::Cleared]);
    assert_eq!(view, View::new(SETTINGS));
    assert_eq!(apply(&mut view, cleared()).0, [], "nothing changed");
}

#[test]
fn only_extra_keys_beyond_adapter_and_salt_change_the_content() {
    let text = |text: &str| ExtraKey::Text(text.to_owned());
    let image = ExtraKey::Item { id: "i".into(), offset: -1 };
    let content = |lora: Option<&str>, salt: Option<&str>, keys: Vec<ExtraKey>| {
        let mut view = View::new(SETTINGS);
        let (lora, salt) = (lora.map(str::to_owned), salt.map(str::to_owned));
        let told = Stored { lora, salt, extra: vec![keys], ..stored(Parent::Root, &[1]) };
        match apply(&mut view, Event::Stored(told)).0.as_slice() {
            [Delta::Linked { content, .. }] => *content,
            other => panic!("expected one link, got {other:?}"),
        }
    };
    let plain = content(None, None, vec![]);
    assert_eq!(content(Some("a"), Some("s"), vec![text("a"), text("s")]), plain);
    assert_eq!(content(Some("a"), Some("a"), vec![text("a"), text("a")]), plain);
    let unexplained = content(Some("a"), None, vec![text("a"), text("a")]);
    assert_ne!(unexplained, plain, "the adapter explains one text");
    assert_ne!(content(None, None, vec![image.clone()]), plain);
    assert_ne!(content(None, None, vec![image]), unexplained);
    assert_ne!(content(None, None, vec![ExtraKey::Bytes(vec![1])]), plain);
}

#[test]
fn adapter_and_salt_name_the_root() {
    let roots = [(None, None), (Some("a"), None), (None, Some("a")), (Some("a"), Some("b"))];
    for (i, one) in roots.iter().enumerate() {
        for other in &roots[i + 1..] {
            assert_ne!(namespace(one.0, one.1), namespace(other.0, other.1));
        }
    }
    assert_eq!(namespace(Some(""), Some("")), namespace(None, None));
}

#[test]
fn word_of_a_tier_without_removals_replaces_no_link() {
    let mut view = View::new(SETTINGS);
    store(&mut view, Parent::Root, &[1, 2]);
    let place = Place { medium: Some("cpu".into()), ..Place::of(Tier::Host) };
    let wrong = |place| Event::Stored(Stored { place, ..stored(Parent::Root, &[2]) });
    let (deltas, _) = apply(&mut view, wrong(place));
    let at_its_place = |delta: &Delta| match delta {
        Delta::Linked { parent, .. } => *parent == LinkParent::Block(node(1)),
        Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared => false,
    };
    assert!(deltas.len() == 1 && deltas.iter().all(at_its_place), "{deltas:?}");
    let (deltas, _) = apply(&mut view, wrong(Place::of(Tier::Device)));
    assert_eq!(deltas.len(), 4, "unlinked and linked anew in both tiers");
}

#[test]
fn debug_form_shows_no_salt() {
    let mut view = View::new(SETTINGS);
    let told = Stored { salt: Some("pepper".into()), ..stored(Parent::Root, &[1]) };
    apply(&mut view, Event::Stored(told));
    assert!(!format!("{view:?}").contains("pepper"));
}
