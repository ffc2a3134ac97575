//! What other indexes of KV events get wrong, case by case.

use super::{Feed, PATH, matched, prompt, query};
use crate::index::Index;

#[test]
fn hole_cuts_the_prefix_and_heals_with_one_block() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    feed.store(&PATH, 0);
    feed.remove(&PATH[..6]);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 5)]);
    feed.store(&PATH[..6], 5);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10)]);
}

#[test]
fn replicas_with_different_hashes_for_one_content_are_told_apart() {
    let index = Index::new();
    let (mut a, mut b) = (Feed::new(&index, "a", 1), Feed::new(&index, "b", 2));
    a.store(&PATH, 0);
    b.store(&PATH, 0);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10), ("b", 10)]);
    for len in (7..=10).rev() {
        b.remove(&PATH[..len]);
    }
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10), ("b", 6)]);
    a.remove(&PATH[..1]);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("b", 6), ("a", 0)]);
}

#[test]
fn block_stored_twice_and_removed_once_is_held() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    feed.store(&PATH, 0);
    feed.store(&PATH, 0);
    feed.remove(&PATH[..3]);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10)]);
    feed.remove(&PATH[..3]);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 2)]);
}

#[test]
fn store_whose_parent_arrives_later_counts_from_then_on() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    feed.store(&PATH, 5);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 0)]);
    feed.store(&PATH[..5], 0);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10)]);
}

#[test]
fn clear_of_one_replica_leaves_the_others() {
    let index = Index::new();
    let (mut a, mut b) = (Feed::new(&index, "a", 1), Feed::new(&index, "b", 1));
    a.store(&PATH, 0);
    b.store(&PATH, 0);
    a.run(&crate::view::tests::world::Op::Clear);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("b", 10), ("a", 0)]);
}

#[test]
fn store_of_several_blocks_chains_them() {
    let index = Index::new();
    let mut feed = Feed::new(&index, "a", 1);
    feed.store(&PATH[..2], 0);
    feed.store(&PATH, 2);
    assert_eq!(matched(&index.query(&query(&prompt())).unwrap()), [("a", 10)]);
}
