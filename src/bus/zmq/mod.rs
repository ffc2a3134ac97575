//! ZeroMQ: a bus without a broker. A bridge publishes what it reads and answers for it itself.
//!
//! `publisher` writes messages to the [`Journal`] and then publishes them; `answers` gives replays
//! and snapshots to whoever asks, and says each second how every replica stands; `directory` and
//! `reader` are the other end; `wire` is what travels.
//!
//! One bridge writes a replica's log: twins need a broker, and that is the NATS bus.

mod answers;
mod asking;
mod breaks;
mod directory;
pub mod journal;
mod published;
mod publisher;
mod reader;
mod snapshots;
mod tickets;
pub mod wire;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use kvbridge_adapters_api::{Removal, Source};
use kvbridge_adapters_zmq::{Counters, Outlet, OutletAddress, ServeError};
use kvbridge_schemas::{Replica, ReplicaKey, codec, subject};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::error;

use self::{
    answers::{Answers, Desk},
    directory::{Directory, follow},
    journal::{Journal, JournalError, Message},
    published::Published,
    publisher::{Publisher, Queued},
    reader::LogSource,
};
use super::{
    Bus, BusState, Found, Full, Receipt, Standing, VouchWatch, Writer, made_up_name, spool::Spool,
};
use crate::{
    clock::Clock,
    config::{Endpoint, SpoolFull, ZmqConfig},
    pipeline::{Fleet, Signs, Tasks},
    shared_log::{LogTail, Outgoing},
    telemetry::{BusMetrics, BusRequestMetrics, SourceMetrics},
};

/// What the bus's metrics call the one stream that it has.
const STREAM: &str = "journal";

/// Sockets of this bridge, and of those that it reads.
pub struct ZmqBus {
    /// Absent where nothing is published.
    publishing: Option<Publishing>,
    connect: Vec<Endpoint>,
    directory: Arc<Directory>,
    /// What bridges say of the replicas that are read.
    vouches: VouchWatch,
    /// Time between two heartbeats.
    beat: Duration,
    /// What is counted of each of them.
    read: Mutex<BTreeMap<ReplicaKey, SourceMetrics>>,
}

/// The publishing side.
struct Publishing {
    bridge: Arc<str>,
    full: SpoolFull,
    spool: Spool<Queued>,
    journal: Arc<Journal>,
    published: Arc<Published>,
    standing: watch::Receiver<Standing>,
    metrics: Arc<BusMetrics>,
    address: OutletAddress,
}

/// Why the bus did not start.
#[derive(Debug, thiserror::Error)]
pub enum ZmqStartError {
    /// No folder is configured.
    #[error("bus.journal is not set")]
    NoJournal,
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A socket cannot be bound.
    #[error(transparent)]
    Sockets(#[from] ServeError),
    /// The thread of the journal cannot be made.
    #[error("cannot start a bus thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl ZmqBus {
    /// A bus that publishes this process's replicas, if it has any, and reads those of the bridges
    /// that the configuration names.
    pub async fn start(
        config: &ZmqConfig,
        publishes: bool,
        fleet: &Arc<Fleet>,
        clock: Clock,
        tasks: &mut Tasks,
    ) -> Result<ZmqBus, ZmqStartError> {
        let publishing = match publishes {
            true => Some(Publishing::start(config, fleet, tasks).await?),
            false => None,
        };
        let (connect, directory) = (config.connect.clone(), Arc::default());
        let vouches = VouchWatch::new(clock, config.heartbeat.ttl);
        let beat = config.heartbeat.every;
        Ok(ZmqBus { publishing, connect, directory, vouches, beat, read: Mutex::default() })
    }

    fn read(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, SourceMetrics>> {
        // Single inserts and removals: nothing in them can panic half-way.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publishing {
    /// Opens the journal and binds the sockets. Whoever connects is answered from here on.
    async fn start(
        config: &ZmqConfig,
        fleet: &Arc<Fleet>,
        tasks: &mut Tasks,
    ) -> Result<Publishing, ZmqStartError> {
        let (dir, bytes_max) = (config.journal.clone(), config.journal_bytes_max);
        let dir = dir.ok_or(ZmqStartError::NoJournal)?;
        // After a crash the store reads its whole file once.
        let opening = tokio::task::spawn_blocking(move || Journal::open(&dir, bytes_max));
        let journal = Arc::new(opening.await.map_err(std::io::Error::other)??);
        let outlet = Outlet::bind(OutletAddress {
            live: format!("tcp://{}", config.listen),
            requests: format!("tcp://{}", config.requests),
        })
        .await?;
        let Outlet { address, messages, requests, answers, ended, stop: outlet_stop } = outlet;
        let bridge: Arc<str> = Arc::from(config.bridge.clone().unwrap_or_else(made_up_name));
        let published = Arc::new(Published::default());
        let metrics = Arc::new(BusMetrics::register(STREAM));
        let (spool, queue) = Spool::new(config.spool_bytes_max);
        let (standing_tx, standing) =
            watch::channel(Standing { state: BusState::Ready, detail: String::new() });
        metrics.state(BusState::Ready);
        let publisher = Publisher {
            queue,
            journal: Arc::clone(&journal),
            messages: messages.clone(),
            published: Arc::clone(&published),
            fleet: Arc::clone(fleet),
            standing: standing_tx,
            metrics: Arc::clone(&metrics),
        };
        let published_all = publisher.spawn(tasks.stop_token())?;
        let desk = Desk {
            fleet: Arc::clone(fleet),
            journal: Arc::clone(&journal),
            published: Arc::clone(&published),
            bridge: Arc::clone(&bridge),
            live_port: port_of(&address.live),
            beat: config.heartbeat.every,
            metrics: BusRequestMetrics::register(),
        };
        let answering = Answers::new(desk, requests, answers, messages);
        tasks.spawn("bus answers", answering.run(tasks.stop_token()));
        let stop = tasks.stop_token();
        tasks.spawn("bus sockets", async move {
            watch_over(ended, published_all).await;
            if !stop.is_cancelled() {
                error!("a thread of the bus failed");
            }
            // The sockets go last; what they had no time to send is in the journal.
            drop(outlet_stop);
        });
        let full = config.spool_full;
        Ok(Publishing { bridge, full, spool, journal, published, standing, metrics, address })
    }
}

/// Until one of the threads ends.
async fn watch_over(sockets: oneshot::Receiver<()>, publisher: oneshot::Receiver<()>) {
    // Both senders are only ever dropped.
    tokio::select! {
        _ = sockets => (),
        _ = publisher => (),
    }
}

fn port_of(endpoint: &str) -> u16 {
    endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
}

impl Bus for ZmqBus {
    fn kind(&self) -> &'static str {
        "zmq"
    }

    fn standing(&self) -> Standing {
        let ready = || Standing { state: BusState::Ready, detail: String::new() };
        self.publishing
            .as_ref()
            .map_or_else(ready, |publishing| publishing.standing.borrow().clone())
    }

    fn place(&self) -> Option<String> {
        let own = self.publishing.as_ref().map(|publishing| {
            format!("{}, requests {}", publishing.address.live, publishing.address.requests)
        });
        let read = self.connect.iter().map(|endpoint| format!("reads {endpoint}"));
        let places: Vec<String> = own.into_iter().chain(read).collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    fn keeps(&self) -> Option<(Arc<str>, SpoolFull)> {
        let publishing = self.publishing.as_ref()?;
        Some((Arc::clone(&publishing.bridge), publishing.full))
    }

    fn tail(&self, key: &ReplicaKey) -> Option<LogTail> {
        let publishing = self.publishing.as_ref()?;
        let tail = publishing.journal.tail(key).unwrap_or_else(|error| {
            // The log then begins anew, with a reset: readers drop to a lower bound.
            error!(replica = %key, %error, "the end of a log cannot be read");
            None
        });
        let (tail, engine) = tail?;
        publishing.published.moved(key, engine, tail.cursor);
        Some(tail)
    }

    fn writer(&self, key: &ReplicaKey) -> Option<Box<dyn Writer>> {
        let subject = Bytes::from(subject::hint(key));
        let spool = self.publishing.as_ref()?.spool.clone();
        Some(Box::new(JournalWriter { key: key.clone(), subject, spool, refused: 0 }))
    }

    fn follow(&self, found: mpsc::Sender<Found>, _clock: Clock, tasks: &mut Tasks) {
        for (bridge, endpoint) in self.connect.iter().cloned().enumerate() {
            let (directory, stop) = (Arc::clone(&self.directory), tasks.stop_token());
            let name = format!("list of {endpoint}");
            tasks.spawn(name, follow(directory, (bridge, endpoint), found.clone(), stop));
        }
        let expiring = self.vouches.clone().keep_expiring(tasks.stop_token());
        tasks.spawn("bus heartbeats", expiring);
    }

    fn source(
        &self,
        replica: &Replica,
        removal: Removal,
        signs: &Arc<Signs>,
    ) -> Option<Box<dyn Source>> {
        let key = replica.key();
        let place = self.directory.place(&key)?;
        let counters = Arc::new(Counters::default());
        let said = (self.vouches.clone(), self.beat);
        let told = (Arc::clone(&counters), Arc::clone(signs));
        let source = LogSource::open(replica.clone(), &place, removal, said, told);
        let sockets = SourceMetrics::register(&key, counters);
        self.read().insert(key, sockets);
        Some(Box::new(source))
    }

    fn forget(&self, replica: &Replica) {
        self.read().remove(&replica.key());
    }

    fn find_anew(&self, replica: &Replica) {
        self.directory.forget(&replica.key());
    }

    fn refresh_metrics(&self) {
        if let Some(publishing) = &self.publishing {
            publishing.metrics.spool(publishing.spool.used_bytes());
        }
        self.read().values().for_each(SourceMetrics::refresh);
    }
}

/// The end of one replica's driver.
struct JournalWriter {
    key: ReplicaKey,
    subject: Bytes,
    spool: Spool<Queued>,
    /// Share of the message that found no room.
    refused: u32,
}

#[async_trait]
impl Writer for JournalWriter {
    /// Also without a reader: one that comes later asks for what it missed.
    fn wanted(&self) -> bool {
        true
    }

    fn publish(&mut self, message: &Outgoing) -> Result<Receipt, Full> {
        if self.spool.is_full() {
            return Err(Full);
        }
        let envelope = &message.envelope;
        let payload: Bytes = codec::encode_msgpack(&**envelope).into();
        let share = self.spool.reserve(payload.len()).map_err(|missing| {
            self.refused = missing;
            Full
        })?;
        let (stored, receipt) = Receipt::new();
        self.spool.send(Queued {
            message: Message {
                key: self.key.clone(),
                epoch: envelope.epoch,
                seq: envelope.seq,
                span: envelope.span,
                payload,
            },
            subject: Bytes::clone(&self.subject),
            engine: envelope.engine.kind.clone(),
            receipt: Some(stored),
            at_ms: Clock::unix_ms(),
            _share: share,
        })?;
        Ok(receipt)
    }

    async fn room(&mut self) {
        self.spool.room(self.refused).await;
    }
}
