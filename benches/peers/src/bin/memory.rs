//! Bytes that each index asks its allocator for, per block that a worker holds.
//!
//! usage: memory [BLOCKS] [MOONCAKE FILE]

use std::alloc::System;

use bench_peers::{
    for_each_peer,
    peer::{Peer, events},
    workload::{Kind, Op, Phase, Trace, mooncake, synthetic},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Few enough that the events in flight do not show.
const CHUNK: usize = 500;

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

fn measure<P: Peer>(trace: &Trace) {
    let before = live();
    let peer = P::new(trace.workers);
    let mut lane = peer.lane(trace.workers);
    let (mut held, mut cells) = (0_usize, Vec::new());
    for phase in [Phase::Load, Phase::Churn, Phase::Evict] {
        let ops: Vec<&Op> = trace.of(phase).filter(|op| op.kind != Kind::Query).collect();
        for chunk in ops.chunks(CHUNK) {
            peer.apply(&mut lane, events::<P>(chunk.iter().copied()));
            for op in chunk {
                match op.kind {
                    Kind::Stored => held += op.keys.len(),
                    Kind::Removed => held -= op.keys.len(),
                    Kind::Query => (),
                }
            }
        }
        drop(ops);
        let bytes = live().wrapping_sub(before) as f64;
        cells.push(format!("{:.1}", bytes / held as f64));
    }
    println!("| {} | {} |", P::NAME, cells.join(" | "));
}

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let blocks = words.next().map_or(Ok(2_000_000), |word| word.parse())?;
    let mut traces = vec![("synthetic", synthetic(64, blocks))];
    if let Some(path) = words.next() {
        traces.push(("mooncake", mooncake(path.as_ref(), 16, 65_536)?));
    }
    for (name, trace) in &traces {
        println!("\n| {name}, bytes per held block | loaded | churned | half evicted |");
        println!("|---|---|---|---|");
        for_each_peer!(measure(trace));
    }
    Ok(())
}
