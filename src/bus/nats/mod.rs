//! JetStream: one stream for each model or hash shard, one thread and connection for each stream.
//!
//! `streams` says what must be there and finds what differs; `connect` turns a configuration into a
//! connection and an error into a word; `spool` is the bounded queue between drivers and publisher;
//! `publisher` sends in a window, in order, again after every failure.

mod connect;
mod publisher;
mod spool;
pub mod streams;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
};

use kvbridge_schemas::{Replica, ReplicaKey};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use connect::{ConnectFailure, connect};
pub use streams::{Difference, Plan, StreamReport};

use self::{
    publisher::Publisher,
    spool::{Spool, SpoolWriter},
};
use super::{Bus, BusState, Standing, Writer};
use crate::{clock::Clock, config::NatsConfig, pipeline::Tasks, telemetry::BusMetrics};

/// JetStream as a bus.
pub struct NatsBus {
    plan: Plan,
    bridge: Arc<str>,
    streams: BTreeMap<String, OneStream>,
}

struct OneStream {
    spool: Spool,
    standing: watch::Receiver<Standing>,
    metrics: Arc<BusMetrics>,
}

/// Why the bus did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a bus thread: {0}")]
pub struct BusStartError(#[from] std::io::Error);

impl NatsBus {
    /// Starts a publisher for each stream that the replicas need. It connects by itself, for ever.
    pub fn start<'a>(
        config: &NatsConfig,
        replicas: impl Iterator<Item = &'a Replica>,
        tasks: &mut Tasks,
    ) -> Result<NatsBus, BusStartError> {
        let plan = Plan::new(&config.streams);
        let bridge: Arc<str> = Arc::from(config.bridge.clone().unwrap_or_else(made_up_name));
        let mut streams = BTreeMap::new();
        for name in plan.names(replicas) {
            let metrics = Arc::new(BusMetrics::register(&name));
            let (spool, queue) = Spool::new(config.spool_bytes_max);
            let (standing_tx, standing) =
                watch::channel(Standing { state: BusState::Connecting, detail: String::new() });
            let publisher = Publisher {
                config: config.clone(),
                wanted: plan.wanted(&name),
                queue,
                standing: standing_tx,
                metrics: Arc::clone(&metrics),
            };
            let (ended_tx, ended) = oneshot::channel();
            let stop = tasks.stop_token();
            spawn(&name, publisher, stop, ended_tx)?;
            let task = name.clone();
            tasks.spawn(format!("bus {name}"), async move {
                if ended.await.is_err() {
                    error!(stream = %task, "bus thread failed");
                }
            });
            streams.insert(name, OneStream { spool, standing, metrics });
        }
        Ok(NatsBus { plan, bridge, streams })
    }

    /// This bridge's name in the ids of resets.
    pub fn bridge(&self) -> Arc<str> {
        Arc::clone(&self.bridge)
    }

    /// How each stream stands.
    pub fn standings(&self) -> impl Iterator<Item = (&str, Standing)> {
        self.streams.iter().map(|(name, stream)| (name.as_str(), stream.standing.borrow().clone()))
    }
}

fn spawn(
    name: &str,
    publisher: Publisher,
    stop: CancellationToken,
    ended: oneshot::Sender<()>,
) -> std::io::Result<()> {
    std::thread::Builder::new().name(format!("bus {name}")).spawn(move || {
        publisher.run(&stop);
        // Whoever waits may have given up.
        ended.send(()).ok();
    })?;
    Ok(())
}

/// Differs between bridges that run at a time, and between runs of one.
fn made_up_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{count}", Clock::unix_ms(), std::process::id())
}

impl Bus for NatsBus {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn standing(&self) -> Standing {
        let worst = self.standings().max_by_key(|(_, standing)| standing.state);
        worst.map_or(Standing { state: BusState::Ready, detail: String::new() }, |(_, s)| s)
    }

    fn writer(&self, key: &ReplicaKey) -> Option<Box<dyn Writer>> {
        let replica = ReplicaKey::parse(key.as_str()).ok()?;
        let stream = self.streams.get(&self.plan.name_of(&replica))?;
        let subject = self.plan.subject_of(&replica);
        let bridge = Arc::clone(&self.bridge);
        Some(Box::new(SpoolWriter::new(stream.spool.clone(), subject, bridge)))
    }

    fn refresh_metrics(&self) {
        for stream in self.streams.values() {
            stream.metrics.spool(stream.spool.used_bytes());
        }
    }
}
