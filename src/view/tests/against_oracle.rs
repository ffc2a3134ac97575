//! Arbitrary operations: after each, the view and the oracle say the same.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};

use super::{
    Linked, apply,
    oracle::Oracle,
    world::{Op, SETTINGS, World, op},
};
use crate::{
    api::Removal,
    view::{Delta, LinkParent, View, ViewSettings},
};

fn compare(settings: ViewSettings, ops: &[Op]) {
    let world = World { seed: 1 };
    let mut view = View::new(settings);
    let mut oracle = Oracle::new(settings.removal == Removal::LastCopy, settings.orphans_max);
    let mut linked = Linked::default();
    for op in ops {
        let event = world.event(op);
        let expected = oracle.apply(&event);
        let (deltas, findings) = apply(&mut view, event);
        assert_eq!(findings.into_iter().collect::<BTreeSet<_>>(), expected);
        linked.apply(&deltas);
        linked.assert_is(&view);
        assert_eq!(counts(&view), oracle.counts());
        assert_eq!(view.block_counts(), oracle.blocks());
        assert_eq!(view.device_copies(), u64::try_from(oracle.full_device_copies()).unwrap());
        assert_eq!(view.parked_count(), oracle.waiting());
        assert!(view.parked_count() <= settings.orphans_max);
        let links: BTreeSet<_> = view.links().map(flat).collect();
        assert_eq!(links, oracle.links());
    }
}

fn counts(view: &View) -> BTreeMap<(u64, kvbridge_schemas::Tier, Option<u32>), u32> {
    let records = view.snapshot().into_iter();
    records
        .map(|record| {
            let key = SETTINGS.projection.apply(&record.hash);
            ((key, record.tier, record.group.map(|group| group.index)), record.count)
        })
        .collect()
}

fn flat(delta: Delta) -> (u64, u32, Option<u64>, kvbridge_schemas::Tier) {
    match delta {
        Delta::Linked { node, parent, tier, .. } => {
            let parent = match parent {
                LinkParent::Root(_) => None,
                LinkParent::Block(parent) => {
                    assert_eq!(parent.block_size, node.block_size);
                    Some(parent.key)
                }
            };
            (node.key, node.block_size, parent, tier)
        }
        Delta::Unlinked { .. } | Delta::Strip { .. } | Delta::Cleared => {
            panic!("links() yields links only")
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn view_equals_oracle(ops in prop::collection::vec(op(), 1..80)) {
        compare(SETTINGS, &ops);
    }

    #[test]
    fn view_equals_oracle_where_a_removal_takes_all_copies(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        compare(ViewSettings { removal: Removal::LastCopy, ..SETTINGS }, &ops);
    }

    #[test]
    fn view_equals_oracle_where_few_may_wait(
        ops in prop::collection::vec(op(), 1..60),
        orphans_max in 0..4_usize,
    ) {
        compare(ViewSettings { orphans_max, ..SETTINGS }, &ops);
    }
}
