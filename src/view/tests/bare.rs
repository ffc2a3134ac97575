//! Blocks of a snapshot that knows hashes and parents, and no content.

use kvbridge_schemas::{Event, Parent, Place, SnapshotRecord, Tier};

use super::{
    apply,
    scenarios::{hash, removed, stored},
    world::SETTINGS,
};
use crate::{
    recovery::Finding,
    view::{InstallError, View},
};

fn record(key: u64, parent: Parent) -> SnapshotRecord {
    SnapshotRecord {
        hash: hash(key),
        parent,
        content: None,
        block_size: 0,
        tier: Tier::Device,
        group: None,
        count: 1,
        lora: None,
        salt: None,
        extra: None,
        partial: false,
        bigram: false,
        parked: false,
        hint: false,
    }
}

fn installed() -> View {
    let records = [record(1, Parent::Root), record(2, Parent::Block(hash(1)))];
    View::install(SETTINGS, records).unwrap()
}

fn remove(view: &mut View, key: u64) -> Vec<Finding> {
    apply(view, removed(&[key], Place::of(Tier::Device))).1
}

fn store(view: &mut View, parent: Parent, keys: &[u64]) -> Vec<Finding> {
    apply(view, Event::Stored(stored(parent, keys))).1
}

/// A live store links its own blocks and says nothing of the older ones.
// spec: recovery 5.13
#[test]
fn content_lacks_as_long_as_one_such_block_is_held() {
    let mut view = installed();
    assert!(view.lacks_content());
    assert_eq!(store(&mut view, Parent::Block(hash(2)), &[3]), []);
    assert!(view.lacks_content());
    assert_eq!(remove(&mut view, 2), []);
    assert!(view.lacks_content());
    assert_eq!(remove(&mut view, 1), []);
    assert!(!view.lacks_content());
    // Stored again it comes with its tokens.
    assert_eq!(store(&mut view, Parent::Root, &[1, 2]), []);
    assert!(!view.lacks_content());
}

#[test]
fn a_clear_takes_them_all() {
    let mut view = installed();
    let scope = kvbridge_schemas::Scope::All;
    let cause = kvbridge_schemas::ClearCause::Engine;
    apply(&mut view, Event::Cleared(kvbridge_schemas::Cleared { scope, cause }));
    assert!(!view.lacks_content());
}

/// It was counted once because the snapshot counts nothing, so it may have been there twice.
#[test]
fn second_copy_is_told_and_brings_the_content() {
    let mut view = installed();
    assert_eq!(store(&mut view, Parent::Root, &[1, 2]), [Finding::SecondCopy]);
    assert!(!view.lacks_content());
    assert_eq!(store(&mut view, Parent::Root, &[1, 2]), [], "counted from here on");
    let counts: Vec<u32> = view.snapshot().iter().map(|record| record.count).collect();
    assert_eq!(counts, [3, 3]);
}

#[test]
fn snapshot_and_install_change_nothing() {
    let mut view = installed();
    store(&mut view, Parent::Block(hash(2)), &[3]);
    let records = view.snapshot();
    let again = View::install(SETTINGS, records.clone()).unwrap();
    assert!(again == view && again.lacks_content());
    let backwards = View::install(SETTINGS, records.into_iter().rev()).unwrap();
    assert!(backwards == view);
}

#[test]
fn one_block_with_two_parents_is_refused() {
    let records = [record(2, Parent::Root), record(2, Parent::Block(hash(1)))];
    assert_eq!(View::install(SETTINGS, records), Err(InstallError::TwoPlaces));
}
