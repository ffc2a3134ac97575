//! Readers among writers: every answer is one of the published versions.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use kvbridge_schemas::{Cursor, Epoch, Replica, Seq, Tier, TierTrust, Trust};

use super::{IndexWrite, IndexWriters};
use crate::{
    index::{Index, Prompt, Published, Query, ReplicaSlot},
    view::{Delta, LinkParent, NodeId, namespace},
};

const BLOCKS: u64 = 40;
const VERSIONS: u64 = 3_000;
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn node(key: u64) -> NodeId {
    NodeId { key, block_size: 16 }
}

fn linked(key: u64) -> Delta {
    let parent = match key {
        0 => LinkParent::Root(namespace(None, None)),
        _ => LinkParent::Block(node(key - 1)),
    };
    Delta::Linked { node: node(key), parent, content: key, bigram: false, tier: Tier::Device }
}

/// Version n holds the first `length(n)` blocks: each step stores or removes many of them at once.
fn length(version: u64) -> u64 {
    version * 13 % (BLOCKS + 1)
}

fn published(version: u64) -> Published {
    Published {
        cursor: Cursor { epoch: Epoch(1), next_seq: Seq(version) },
        trust: TierTrust::all(Trust::Exact),
        at_ms: version,
        ..Published::nothing()
    }
}

fn write(slot: ReplicaSlot, version: u64) -> IndexWrite {
    let published = published(version);
    if version.is_multiple_of(50) {
        let links = (0..length(version)).map(linked).collect();
        return IndexWrite::Replace { slot, links, published };
    }
    let (before, after) = (length(version - 1), length(version));
    // The root goes first and comes last, so that half a batch would show.
    let mut deltas: Vec<Delta> = (before..after).rev().map(linked).collect();
    let gone = |key| Delta::Unlinked { node: node(key), tier: Tier::Device };
    deltas.extend((after..before).map(gone));
    IndexWrite::Apply { slot, deltas, published }
}

#[test]
fn answers_under_writes_are_published_versions() {
    let index = Arc::new(Index::new());
    let replica =
        |instance: &str| Replica { model: "m".into(), instance: instance.into(), rank: 0 };
    let slots = ["a", "b", "c"].map(|instance| index.register(replica(instance)));
    let writers = IndexWriters::start(&index, THREADS).unwrap();
    let done = AtomicBool::new(false);
    let hashes: Vec<u64> = (0..BLOCKS).collect();
    let prompt = Prompt::Content { hashes: &hashes, block_size: 16 };
    let (lora, salt, accept) = (None, None, Trust::Exact);
    let question = Query { model: "m", prompt, lora, salt, accept, hints: false };
    let check = |seen: &mut [u64; 3]| {
        let answer = index.query(&question).unwrap();
        for found in answer.replicas.iter().filter(|found| found.trust.device == Trust::Exact) {
            let version = found.as_of.cursor.next_seq.0;
            assert!(found.usable);
            assert_eq!(found.matched_blocks, length(version));
            assert_eq!(found.as_of.at_ms, version);
            let at = ["a", "b", "c"].iter().position(|name| *name == found.replica.instance);
            let last = &mut seen[at.unwrap()];
            assert!(*last <= version, "an older version came back");
            *last = version;
        }
        answer.replicas.len()
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = [0; 3];
                while !done.load(Ordering::Relaxed) {
                    check(&mut seen);
                }
            });
        }
        for version in 0..VERSIONS {
            slots.iter().for_each(|slot| writers.send(write(*slot, version)));
        }
        drop(writers); // waits until everything is applied
        done.store(true, Ordering::Relaxed);
    });
    let mut seen = [0; 3];
    check(&mut seen);
    assert_eq!(seen, [VERSIONS - 1; 3]);
}

#[test]
fn full_queue_gives_the_write_back_and_drop_ends_a_replica() {
    let index = Arc::new(Index::new());
    let slot = index.register(Replica { model: "m".into(), instance: "a".into(), rank: 0 });
    let writers = IndexWriters::start(&index, THREADS).unwrap();
    let given_back = (0..1_000_000).find_map(|version| {
        let links = (0..200).map(linked).collect();
        let published = published(version);
        writers.try_send(IndexWrite::Replace { slot, links, published }).err()
    });
    assert!(given_back.is_some(), "the queue has a bound");
    assert!(writers.queued_count() > 0);
    writers.send(IndexWrite::Drop { slot });
    drop(writers);
    assert_eq!(index.generation(slot), crate::index::Generation::default());
    let (lora, salt, accept, hints) = (None, None, Trust::Exact, false);
    let question = Query { model: "m", prompt: Prompt::Tokens(&[]), lora, salt, accept, hints };
    assert!(index.query(&question).is_err());
}
