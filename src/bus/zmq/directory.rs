//! Which replicas the bridges have that are read, and where.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kvbridge_adapters_api::Attempt;
use kvbridge_adapters_zmq::{Counters, ExchangeClient, ExchangeSettings, Heard};
use kvbridge_schemas::{EngineKind, ReplicaKey};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    asking::{ListOf, Listed},
    reader::Place,
};
use crate::{
    bus::Found,
    config::{
        Endpoint,
        limits::{BUS_REPLICAS_MAX, ZMQ_LIST_EVERY},
    },
    telemetry::bus_read_refused,
};

/// Lists in a row that must not name a replica before it is forgotten: a bridge that restarts names
/// its replicas one by one.
const ABSENT_MAX: u32 = 15;

/// Lists in a row that a bridge must fail to give before another one may take its replicas over:
/// the reader of a bridge that only restarts keeps its view. Until then nobody reads them.
const UNREACHED_MAX: u32 = 15;

#[derive(Debug)]
struct Entry {
    /// The bridge that publishes it, by its place in the configuration.
    bridge: usize,
    place: Place,
    absent: u32,
    /// Lists in a row that its bridge did not give.
    unreached: u32,
}

impl Entry {
    fn new(bridge: usize, place: &Place) -> Entry {
        Entry { bridge, place: place.clone(), absent: 0, unreached: 0 }
    }
}

/// All replicas that were found.
#[derive(Debug, Default)]
pub(super) struct Directory(Mutex<BTreeMap<ReplicaKey, Entry>>);

impl Directory {
    /// Where a replica is read.
    pub(super) fn place(&self, key: &ReplicaKey) -> Option<Place> {
        self.lock().get(key).map(|entry| entry.place.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, Entry>> {
        // Single inserts and removals: nothing in them can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next list that names it tells of it as new.
    pub(super) fn forget(&self, key: &ReplicaKey) {
        self.lock().remove(key);
    }

    /// A bridge does not say what it has. Its replicas stay: it may come back with all of them.
    fn unreached(&self, bridge: usize) {
        for entry in self.lock().values_mut().filter(|entry| entry.bridge == bridge) {
            entry.unreached = entry.unreached.saturating_add(1);
        }
    }

    /// Takes what a bridge has, and says what that changes.
    fn listed(&self, bridge: usize, endpoint: &Endpoint, listed: Listed) -> Vec<Found> {
        let place = Place {
            live: Endpoint { host: endpoint.host.clone(), port: listed.live_port }.to_string(),
            requests: endpoint.to_string(),
        };
        let mut found = Vec::new();
        let mut known = self.lock();
        for entry in known.values_mut().filter(|entry| entry.bridge == bridge) {
            entry.absent = entry.absent.saturating_add(1);
            entry.unreached = 0;
        }
        for (key, engine) in listed.replicas {
            let Ok(replica) = ReplicaKey::parse(key.as_str()) else { continue };
            let full = known.len() >= BUS_REPLICAS_MAX;
            match known.get_mut(&key) {
                Some(entry) if entry.bridge != bridge && entry.unreached < UNREACHED_MAX => {
                    // The logs of two bridges differ in lives and numbers: one reader cannot follow
                    // both.
                    bus_read_refused("twin");
                    debug!(replica = %key, bridge = %endpoint, "published by another bridge too");
                }
                Some(entry) if entry.bridge != bridge || entry.place != place => {
                    *entry = Entry::new(bridge, &place);
                    found.push(Found::Vanished { replica: replica.clone() });
                    found.push(appeared(replica, &engine));
                }
                Some(entry) => entry.absent = 0,
                None if full => bus_read_refused("replica"),
                None => {
                    known.insert(key, Entry::new(bridge, &place));
                    found.push(appeared(replica, &engine));
                }
            }
        }
        known.retain(|key, entry| {
            let gone = entry.bridge == bridge && entry.absent >= ABSENT_MAX;
            if gone && let Ok(replica) = ReplicaKey::parse(key.as_str()) {
                found.push(Found::Vanished { replica });
            }
            !gone
        });
        found
    }
}

fn appeared(replica: kvbridge_schemas::Replica, engine: &str) -> Found {
    Found::Appeared { replica, engine: Some(EngineKind::from_name(engine)) }
}

/// Asks one bridge again and again which replicas it has.
pub(super) async fn follow(
    directory: Arc<Directory>,
    (bridge, endpoint): (usize, Endpoint),
    found: mpsc::Sender<Found>,
    stop: CancellationToken,
) {
    let counters = Arc::new(Counters::default());
    let mut asks = ExchangeClient::new(ExchangeSettings::new(endpoint.to_string()), counters);
    let mut reached = true;
    loop {
        let listed = tokio::select! {
            () = stop.cancelled() => return,
            listed = list(&mut asks) => listed,
        };
        if listed.is_some() != reached {
            reached = listed.is_some();
            if reached {
                info!(%endpoint, "bridge answers again");
            } else {
                warn!(%endpoint, "bridge does not say which replicas it has");
            }
        }
        let changes = match listed {
            Some(listed) => directory.listed(bridge, &endpoint, listed),
            None => {
                directory.unreached(bridge);
                Vec::new()
            }
        };
        for change in changes {
            tokio::select! {
                () = stop.cancelled() => return,
                sent = found.send(change) => if sent.is_err() { return },
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause(reached)) => (),
        }
    }
}

fn pause(reached: bool) -> Duration {
    if reached { ZMQ_LIST_EVERY } else { ZMQ_LIST_EVERY / 4 }
}

async fn list(asks: &mut ExchangeClient<Listed>) -> Option<Listed> {
    asks.start(Attempt(0), ListOf);
    let mut listed = None;
    loop {
        match asks.next().await.1 {
            Heard::Part(part) => listed = Some(part),
            Heard::Done => return listed,
            Heard::Failed(reason) => {
                debug!(%reason, "list of replicas");
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::Replica;

    use super::*;

    fn replica(instance: &str) -> Replica {
        Replica { model: "m".into(), instance: instance.into(), rank: 0 }
    }

    fn list_of(live_port: u16, instances: &[&str]) -> Listed {
        let replicas = instances.iter().map(|it| (replica(it).key(), "vllm".to_owned()));
        Listed { live_port, replicas: replicas.collect() }
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint { host: "h".into(), port }
    }

    fn came(instance: &str) -> Found {
        appeared(replica(instance), "vllm")
    }

    fn went(instance: &str) -> Found {
        Found::Vanished { replica: replica(instance) }
    }

    #[test]
    fn replicas_come_move_and_go() {
        let directory = Directory::default();
        let a = endpoint(1);
        assert_eq!(directory.listed(0, &a, list_of(9, &["x", "y"])), [came("x"), came("y")]);
        assert_eq!(directory.place(&replica("x").key()).unwrap().live, "tcp://h:9");
        assert_eq!(directory.listed(0, &a, list_of(9, &["x", "y"])), []);
        assert_eq!(directory.listed(0, &a, list_of(8, &["x"])), [went("x"), came("x")]);
        for _ in 0..ABSENT_MAX - 2 {
            assert_eq!(directory.listed(0, &a, list_of(8, &["x"])), []);
        }
        assert_eq!(directory.listed(0, &a, list_of(8, &["x"])), [went("y")]);
    }

    #[test]
    fn a_second_bridge_of_one_replica_is_not_read() {
        let directory = Directory::default();
        assert_eq!(directory.listed(0, &endpoint(1), list_of(9, &["x"])), [came("x")]);
        assert_eq!(directory.listed(1, &endpoint(2), list_of(9, &["x", "y"])), [came("y")]);
        assert_eq!(directory.place(&replica("x").key()).unwrap().requests, "tcp://h:1");
    }

    #[test]
    fn a_replica_whose_source_here_is_removed_is_told_of_again() {
        let directory = Directory::default();
        assert_eq!(
            directory.listed(0, &endpoint(1), list_of(9, &["x", "y"])),
            [came("x"), came("y")]
        );
        directory.forget(&replica("x").key());
        assert_eq!(directory.listed(0, &endpoint(1), list_of(9, &["x", "y"])), [came("x")]);
    }

    #[test]
    fn a_replica_moves_off_a_bridge_that_is_gone() {
        let directory = Directory::default();
        let (a, b) = (endpoint(1), endpoint(2));
        assert_eq!(directory.listed(0, &a, list_of(9, &["x"])), [came("x")]);
        // A bridge that only restarts keeps it.
        (1..UNREACHED_MAX).for_each(|_| directory.unreached(0));
        assert_eq!(directory.listed(1, &b, list_of(9, &["x"])), []);
        assert_eq!(directory.listed(0, &a, list_of(9, &["x"])), []);
        (0..UNREACHED_MAX).for_each(|_| directory.unreached(0));
        assert_eq!(directory.listed(1, &b, list_of(9, &["x"])), [went("x"), came("x")]);
        assert_eq!(directory.place(&replica("x").key()).unwrap().requests, "tcp://h:2");
        assert_eq!(directory.listed(0, &a, list_of(9, &["x"])), []);
        assert_eq!(directory.place(&replica("x").key()).unwrap().requests, "tcp://h:2");
    }
}
