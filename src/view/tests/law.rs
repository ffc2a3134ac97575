//! fold(prefix) → snapshot → install → fold(suffix) == fold(all).

use std::collections::BTreeSet;

use kvbridge_schemas::{BlockHash, Parent, SnapshotRecord, Tier};
use proptest::{prelude::*, test_runner::Config};

use super::{
    Linked, Told, apply,
    world::{At, Form, Op, SETTINGS, Spot, Store, World, op},
};
use crate::{
    api::Removal,
    view::{InstallError, View, ViewSettings},
};

fn check(settings: ViewSettings, prefix: &[Op], suffix: &[Op]) {
    let world = World { seed: 1 };
    let mut all = View::new(settings);
    for op in prefix {
        apply(&mut all, world.event(op));
    }
    let records = all.snapshot();
    let mut installed = View::install(settings, records.clone()).unwrap();
    assert_eq!(sorted(installed.snapshot()), sorted(records.clone()));
    let backwards = View::install(settings, records.into_iter().rev()).unwrap();
    assert_eq!(backwards, installed);
    for view in [&installed, &backwards, &all] {
        let mut linked = Linked::default();
        linked.apply(&all.links().collect::<Vec<_>>());
        linked.assert_is(view);
        Told::of(view);
    }
    for op in suffix {
        assert_eq!(apply(&mut installed, world.event(op)), apply(&mut all, world.event(op)));
    }
    assert_eq!(sorted(installed.snapshot()), sorted(all.snapshot()));
    assert_eq!(installed, all);
}

/// Parents come first; beside that, a snapshot has no order.
fn sorted(mut records: Vec<SnapshotRecord>) -> Vec<SnapshotRecord> {
    let place = |record: &SnapshotRecord| {
        let group = record.group.as_ref().map(|group| group.index);
        (record.hash.clone(), record.block_size, record.tier.clone(), group)
    };
    records.sort_by_key(place);
    records
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn snapshot_and_install_change_nothing(
        prefix in prop::collection::vec(op(), 1..60),
        suffix in prop::collection::vec(op(), 1..40),
        orphans_max in prop_oneof![Just(1_000_usize), 0..4_usize],
        last_copy in any::<bool>(),
    ) {
        let removal = if last_copy { Removal::LastCopy } else { Removal::PerCopy };
        check(ViewSettings { orphans_max, removal, ..SETTINGS }, &prefix, &suffix);
    }

    #[test]
    fn parents_come_before_children(ops in prop::collection::vec(op(), 1..60)) {
        let world = World { seed: 1 };
        let mut view = View::new(SETTINGS);
        let wrong = |op: &&Op| matches!(op, Op::Store(store) if store.form == Form::WrongParent);
        for op in ops.iter().filter(|op| !wrong(op)) {
            apply(&mut view, world.event(op));
        }
        let records = view.snapshot();
        let held: BTreeSet<BlockHash> = records.iter().map(|record| record.hash.clone()).collect();
        let mut seen = BTreeSet::new();
        for record in records {
            if let Parent::Block(parent) = &record.parent {
                prop_assert!(seen.contains(parent) || !held.contains(parent));
            }
            seen.insert(record.hash);
        }
    }
}

#[test]
fn records_that_are_no_view_are_refused() {
    let world = World { seed: 1 };
    let mut view = View::new(SETTINGS);
    let at = At { namespace: 0, path: vec![0, 1], wide: true };
    let spot = Spot { tier: 0, group: 0, tells_kind: false };
    apply(
        &mut view,
        world.event(&Op::Store(Store { at, count: 2, size: 2, form: Form::Dense, spot })),
    );
    let records = view.snapshot();

    let mut empty = records.clone();
    empty[0].count = 0;
    assert_eq!(View::install(SETTINGS, empty), Err(InstallError::NoCopies));

    let mut twice = records.clone();
    let other = SnapshotRecord { parent: Parent::Root, tier: Tier::Host, ..records[1].clone() };
    twice.push(other);
    assert_eq!(View::install(SETTINGS, twice), Err(InstallError::TwoPlaces));
}
