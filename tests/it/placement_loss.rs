//! The placement view, case 3: events are lost by back-pressure, by the network, by a subscriber
//! that restarts.

use std::time::Duration;

use kvbridge::clock::Clock;
use serde_json::json;

use crate::{
    placement_world::{More, Placement, exact_again},
    proxy::Link,
};

/// The bridge is slower than its engine: it drops from its own queue, says so and asks for it.
#[tokio::test]
async fn placement_back_pressure_is_an_overflow_that_is_told_and_repaired() {
    let more = More { limits: "source_queue = 4\n", ..More::default() };
    let placement = Placement::start("pressure", "--blocks 96", more).await;
    placement.replay.set(Link::Cut);
    while placement.pair.fact("overflowed").await == 0 {
        placement.pair.burst(200).await;
    }
    placement.falls_back("none", "gap_open").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    exact_again("back-pressure", &placement.pair, &clock).await;
    placement.pair.end();
}

/// Batches that the publisher dropped: the gap stays open as long as the journal cannot be asked.
#[tokio::test]
async fn placement_lost_batches_are_a_gap_until_the_journal_has_brought_them() {
    let placement = Placement::start("lost", "--blocks 96", More::default()).await;
    let before = placement.pair.is_true().await;
    placement.replay.set(Link::Stalled);
    placement.pair.fault(json!({"fault": "drop", "count": 5})).await;
    placement.pair.burst(12).await;
    placement.falls_back("none", "gap_open").await;
    let clock = Clock::start();
    placement.replay.set(Link::Open);
    let after = exact_again("batches lost", &placement.pair, &clock).await;
    assert_eq!(after.epoch, before.epoch);
    placement.pair.end();
}

#[tokio::test]
async fn placement_a_network_that_cuts_ends_trust_at_once() {
    let placement = Placement::start("cut", "--blocks 96", More::default()).await;
    placement.live.set(Link::Cut);
    placement.replay.set(Link::Cut);
    placement.falls_back("none", "detached").await;
    placement.pair.burst(40).await;
    placement.falls_back("none", "detached").await;
    let clock = Clock::start();
    placement.live.set(Link::Open);
    placement.replay.set(Link::Open);
    exact_again("network cut", &placement.pair, &clock).await;
    placement.pair.end();
}

/// Nothing is closed and nothing comes: what is believed ends with the lease.
#[tokio::test]
async fn placement_a_network_that_stalls_is_believed_no_longer_than_a_lease() {
    let recovery = "idle_probe = \"200ms\"\naudit = \"200ms\"\nlease = \"1s\"\n";
    let more = More { recovery, ..More::default() };
    let placement = Placement::start("stall", "--blocks 96", more).await;
    placement.live.set(Link::Stalled);
    placement.replay.set(Link::Stalled);
    placement.falls_back("none", "unproven").await;
    placement.pair.burst(40).await;
    let clock = Clock::start();
    placement.live.set(Link::Open);
    placement.replay.set(Link::Open);
    exact_again("network stalled", &placement.pair, &clock).await;
    placement.pair.end();
}

#[tokio::test]
async fn placement_a_network_that_delays_loses_nothing() {
    let placement = Placement::start("delay", "--blocks 96", More::default()).await;
    let late = Link::Delayed(Duration::from_millis(40));
    placement.live.set(late);
    placement.replay.set(late);
    placement.pair.fault(json!({"fault": "drop", "count": 3})).await;
    let clock = Clock::start();
    placement.pair.burst(30).await;
    exact_again("network delays, batches lost", &placement.pair, &clock).await;
    assert!(placement.pair.fact("gap").await >= 1);
    placement.pair.end();
}

/// The subscriber is a new process; what was published meanwhile went to nobody.
#[tokio::test]
async fn placement_a_subscriber_that_restarts_is_told_what_it_missed() {
    let mut placement = Placement::keeping("subscriber", "--blocks 96").await;
    for _ in 0..3 {
        let before = placement.pair.is_true().await;
        placement.pair.stop_and_start(async |pair| pair.burst(25).await).await;
        let clock = Clock::start();
        let after = exact_again("subscriber restarts", &placement.pair, &clock).await;
        assert_eq!(after.epoch, before.epoch);
        assert!(after.next_seq > before.next_seq);
    }
    placement.pair.end();
}
