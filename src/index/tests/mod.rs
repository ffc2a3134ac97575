//! Tests of the index: against the view's oracle, the failures of other indexes, and the contract.

mod against_oracle;
mod contract;
mod peers;
mod rows;
mod shared_tree;
mod speculation;
mod strips;

use kvbridge_schemas::{Cursor, Epoch, Event, Replica, Seq, TierTrust, Trust};

use super::{Answer, Generation, Index, Prompt, Published, Query, ReplicaSlot};
use crate::view::{
    View,
    tests::world::{At, Form, Op, SETTINGS, Spot, Store, World, tokens},
};

fn replica(instance: &str) -> Replica {
    Replica { model: "m".into(), instance: instance.into(), rank: 0 }
}

fn published(trust: Trust, next_seq: u64) -> Published {
    Published {
        cursor: Cursor { epoch: Epoch(1), next_seq: Seq(next_seq) },
        trust: TierTrust::all(trust),
        reason: "contiguous",
        at_ms: 1_000 + next_seq,
        generation: Generation::default(),
        ..Published::nothing()
    }
}

fn query(tokens: &[u32]) -> Query<'_> {
    Query {
        model: "m",
        prompt: Prompt::Tokens(tokens),
        lora: None,
        salt: None,
        accept: Trust::Exact,
        hints: false,
    }
}

/// Matched blocks per replica, in the answer's order.
fn matched(answer: &Answer) -> Vec<(&str, u64)> {
    let of = answer.replicas.iter();
    of.map(|found| (found.replica.instance.as_str(), found.matched_blocks)).collect()
}

/// A view that feeds an index, as the pipeline does.
struct Feed<'a> {
    index: &'a Index,
    slot: ReplicaSlot,
    view: View,
    world: World,
    next_seq: u64,
}

impl<'a> Feed<'a> {
    fn new(index: &'a Index, instance: &str, seed: u64) -> Feed<'a> {
        let slot = index.register(replica(instance));
        Feed { index, slot, view: View::new(SETTINGS), world: World { seed }, next_seq: 0 }
    }

    fn apply(&mut self, event: Event) {
        let mut deltas = Vec::new();
        self.view.apply(&[event], &mut deltas, &mut Vec::new());
        self.next_seq += 1;
        self.index.apply(self.slot, &deltas, self.says());
    }

    fn says(&self) -> Published {
        let host_is_hint = self.view.host_is_hint();
        Published { host_is_hint, ..published(Trust::Exact, self.next_seq) }
    }

    fn run(&mut self, op: &Op) {
        self.apply(self.world.event(op));
    }

    /// Stores the blocks of `path` from number `first` on, in the device tier.
    fn store(&mut self, path: &[u8], first: usize) {
        let (at, count) = (at(path), path.len() - first);
        self.run(&Op::Store(Store { at, count, size: 2, form: Form::Dense, spot: spot() }));
    }

    /// Removes the block that ends with `path`.
    fn remove(&mut self, path: &[u8]) {
        self.run(&Op::Remove { at: at(path), spot: spot() });
    }
}

fn at(path: &[u8]) -> At {
    At { namespace: 0, path: path.to_vec(), wide: false }
}

fn spot() -> Spot {
    Spot { tier: 0, group: 0, tells_kind: false }
}

/// Ten blocks, one symbol each.
const PATH: [u8; 10] = [0, 1, 0, 0, 1, 1, 0, 1, 0, 1];

fn prompt() -> Vec<u32> {
    tokens(&PATH)
}
