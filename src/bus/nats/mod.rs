//! JetStream: one stream for each model or hash shard, one thread and connection for each stream.
//!
//! `streams` says what must be there and finds what differs; `connect` turns a configuration into a
//! connection and an error into a word; `spool` is the bounded queue between drivers and publisher;
//! `publisher` sends in a window, in order, again after every failure; `desk` names lives and says
//! how they stand, with `buckets`, `record` and `tail` to read and write what bridges share.
//! `session` is the connection of everything else: `reader` follows streams and answers requests,
//! `heartbeats` hears who speaks, `snapshots` are views on the server. `browse` looks once, for
//! people.

pub mod browse;
mod buckets;
mod connect;
mod desk;
mod heartbeats;
mod lease;
pub mod permissions;
mod publisher;
mod reader;
mod record;
mod session;
mod snapshots;
mod spool;
mod stored;
pub mod streams;
mod tail;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use kvbridge_adapters_api::{Removal, Source};
use kvbridge_schemas::{Cursor, Replica, ReplicaKey, subject};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use connect::{ConnectFailure, connect};
pub use heartbeats::hear;
pub use reader::Unreadable;
pub use snapshots::{Reading, records_of};
pub use streams::{Difference, Plan, StreamReport};

use self::{
    desk::Lives,
    lease::NatsLease,
    publisher::Publisher,
    reader::{LogPast, Reader},
    session::Sessions,
    snapshots::Keep,
    spool::{Queued, SpoolWriter},
};
use super::{
    Bus, BusState, Found, Lease, LogLife, Past, Standing, Writer, made_up_name, spool::Spool,
};
use crate::{
    clock::Clock,
    config::{NatsConfig, SpoolFull},
    pipeline::{Fleet, Signs, Tasks},
    telemetry::{BusMetrics, BusSnapshotMetrics},
};

/// JetStream as a bus.
pub struct NatsBus {
    config: NatsConfig,
    plan: Plan,
    bridge: Arc<str>,
    /// Those of the replicas so far. None is ever taken away: what waits in it must still be sent.
    streams: Mutex<BTreeMap<String, OneStream>>,
    /// The connection of everything but publishing, and how it stands.
    session: OnceLock<(Sessions, watch::Receiver<Standing>)>,
    /// The reading side, in a process that reads.
    reader: OnceLock<Arc<Reader>>,
    /// What reads the logs that this process writes, when it must.
    past: OnceLock<Arc<Reader>>,
    /// What follows the logs that another bridge writes for now.
    followed: OnceLock<Arc<Reader>>,
}

struct OneStream {
    spool: Spool<Queued>,
    lives: Lives,
    standing: watch::Receiver<Standing>,
    metrics: Arc<BusMetrics>,
}

/// Why the bus did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a bus thread: {0}")]
pub struct BusStartError(#[from] std::io::Error);

impl NatsBus {
    /// A bus without streams.
    pub fn new(config: &NatsConfig) -> NatsBus {
        let bridge = config.bridge.clone().unwrap_or_else(made_up_name);
        NatsBus {
            config: config.clone(),
            plan: Plan::new(&config.streams),
            bridge: Arc::from(bridge),
            streams: Mutex::default(),
            session: OnceLock::new(),
            reader: OnceLock::new(),
            past: OnceLock::new(),
            followed: OnceLock::new(),
        }
    }

    /// Starts a publisher for each stream that the replicas need. It connects by itself, for ever.
    pub fn start<'a>(
        config: &NatsConfig,
        replicas: impl Iterator<Item = &'a Replica>,
        tasks: &mut Tasks,
    ) -> Result<NatsBus, BusStartError> {
        let bus = NatsBus::new(config);
        for replica in replicas {
            bus.prepare(replica, tasks)?;
        }
        Ok(bus)
    }

    fn open(&self, name: &str, tasks: &mut Tasks) -> Result<OneStream, BusStartError> {
        let metrics = Arc::new(BusMetrics::register(name));
        let (spool, queue) = Spool::new(self.config.spool_bytes_max);
        let (standing_tx, standing) =
            watch::channel(Standing { state: BusState::Connecting, detail: String::new() });
        let lives = Lives::default();
        let publisher = Publisher {
            bridge: self.bridge(),
            lives: lives.clone(),
            config: self.config.clone(),
            wanted: self.plan.wanted(name),
            queue,
            standing: standing_tx,
            metrics: Arc::clone(&metrics),
        };
        let (ended_tx, ended) = oneshot::channel();
        spawn(name, publisher, tasks.stop_token(), ended_tx)?;
        let task = name.to_owned();
        tasks.spawn(format!("bus {name}"), async move {
            if ended.await.is_err() {
                error!(stream = %task, "bus thread failed");
            }
        });
        Ok(OneStream { spool, lives, standing, metrics })
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, OneStream>> {
        // Single inserts: nothing in them can panic half-way.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of everything but publishing, made when it is first needed.
    fn session(&self, tasks: &mut Tasks) -> Sessions {
        let (sessions, _) = self.session.get_or_init(|| {
            let (sessions_tx, sessions) = watch::channel(None);
            let connecting = Standing { state: BusState::Connecting, detail: String::new() };
            let (standing_tx, standing) = watch::channel(connecting);
            let (config, stop) = (self.config.clone(), tasks.stop_token());
            tasks.spawn("bus session", session::keep(config, sessions_tx, standing_tx, stop));
            (sessions, standing)
        });
        sessions.clone()
    }

    /// Starts what reads logs and hears bridges.
    fn read(&self, reader: Arc<Reader>, tasks: &mut Tasks) {
        let (streams, vouches) = (self.config.streams.clone(), reader.vouches.clone());
        let sessions = reader.sessions.clone();
        let heard = heartbeats::keep(sessions, streams, vouches, tasks.stop_token());
        tasks.spawn("bus heartbeats", heard);
        tasks.spawn("bus reader", reader::run(reader, tasks.stop_token()));
    }

    /// This bridge's name in the ids of resets.
    pub fn bridge(&self) -> Arc<str> {
        Arc::clone(&self.bridge)
    }

    /// How each stream stands.
    pub fn standings(&self) -> Vec<(String, Standing)> {
        let streams = self.streams();
        let of = streams.iter().map(|(name, it)| (name.clone(), it.standing.borrow().clone()));
        let read = self.reader.get().and_then(|_| self.session.get());
        let read = read.map(|(_, standing)| ("reader".to_owned(), standing.borrow().clone()));
        of.chain(read).collect()
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

impl Bus for NatsBus {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn standing(&self) -> Standing {
        let worst = self.standings().into_iter().max_by_key(|(_, standing)| standing.state);
        worst.map_or(Standing { state: BusState::Ready, detail: String::new() }, |(_, s)| s)
    }

    fn place(&self) -> Option<String> {
        Some(self.config.urls.join(", "))
    }

    fn prepare(&self, replica: &Replica, tasks: &mut Tasks) -> Result<(), BusStartError> {
        let name = self.plan.name_of(replica);
        if let Entry::Vacant(vacant) = self.streams().entry(name) {
            let stream = self.open(vacant.key(), tasks)?;
            vacant.insert(stream);
        }
        Ok(())
    }

    fn keeps(&self) -> Option<(Arc<str>, SpoolFull)> {
        Some((self.bridge(), self.config.spool_full))
    }

    fn writer(&self, key: &ReplicaKey) -> Option<Box<dyn Writer>> {
        let replica = ReplicaKey::parse(key.as_str()).ok()?;
        let (spool, life) = {
            let streams = self.streams();
            let stream = streams.get(&self.plan.name_of(&replica))?;
            (stream.spool.clone(), stream.lives.of(&replica))
        };
        let subject = self.plan.subject_of(&replica);
        Some(Box::new(SpoolWriter::new(spool, subject, self.bridge(), life)))
    }

    fn life(&self, replica: &Replica, content: String, at: Cursor) -> Option<Arc<LogLife>> {
        let life = Arc::new(LogLife::new(replica.clone(), content, at));
        self.streams().get(&self.plan.name_of(replica))?.lives.add(Arc::clone(&life));
        Some(life)
    }

    fn past(&self, replica: &Replica, clock: Clock, tasks: &mut Tasks) -> Option<Box<dyn Past>> {
        let sessions = self.session(tasks);
        let reader = self.past.get_or_init(|| {
            // It follows nothing, so it finds nothing.
            let (found, _) = mpsc::channel(1);
            Arc::new(Reader::new(&self.config, sessions, clock, found))
        });
        Some(Box::new(LogPast::new(Arc::clone(reader), replica)))
    }

    fn forget(&self, replica: &Replica) {
        if let Some(stream) = self.streams().get(&self.plan.name_of(replica)) {
            stream.lives.forget(replica);
        }
    }

    fn follow(&self, found: mpsc::Sender<Found>, clock: Clock, tasks: &mut Tasks) {
        let sessions = self.session(tasks);
        let reader = Arc::new(Reader::new(&self.config, sessions, clock, found));
        if self.reader.set(Arc::clone(&reader)).is_ok() {
            self.read(reader, tasks);
        }
    }

    fn lease(&self, engine: &str) -> Option<Box<dyn Lease>> {
        Some(Box::new(NatsLease::new(&self.config, engine, &self.bridge)))
    }

    fn follower(
        &self,
        replica: &Replica,
        removal: Removal,
        signs: &Arc<Signs>,
        (clock, tasks): (Clock, &mut Tasks),
    ) -> Option<Box<dyn Source>> {
        if let Some(reader) = self.reader.get() {
            return Some(reader.source(replica, removal, Arc::clone(signs)));
        }
        let sessions = self.session(tasks);
        let reader = self.followed.get_or_init(|| {
            // Which replicas there are else is nobody's question here.
            let (found, _) = mpsc::channel(1);
            let reader = Arc::new(Reader::new(&self.config, sessions, clock, found));
            self.read(Arc::clone(&reader), tasks);
            reader
        });
        Some(reader.source(replica, removal, Arc::clone(signs)))
    }

    fn is_flushed(&self) -> bool {
        self.streams().values().all(|stream| stream.spool.used_bytes() == 0)
    }

    fn source(
        &self,
        replica: &Replica,
        removal: Removal,
        signs: &Arc<Signs>,
    ) -> Option<Box<dyn Source>> {
        Some(self.reader.get()?.source(replica, removal, Arc::clone(signs)))
    }

    fn find_anew(&self, replica: &Replica) {
        if let Some(reader) = self.reader.get() {
            reader.known().remove(&subject::hint(&replica.key()));
        }
    }

    fn keep_snapshots(&self, fleet: &Arc<Fleet>, clock: Clock, tasks: &mut Tasks) {
        let keep = Keep {
            config: self.config.clone(),
            plan: self.plan.clone(),
            bridge: self.bridge(),
            sessions: self.session(tasks),
            fleet: Arc::clone(fleet),
            clock,
            metrics: BusSnapshotMetrics::register(),
        };
        let stop = tasks.stop_token();
        tasks.spawn("bus snapshots", snapshots::keep(keep, stop));
    }

    fn refresh_metrics(&self) {
        for stream in self.streams().values() {
            stream.metrics.spool(stream.spool.used_bytes());
        }
    }
}
