//! Ports at which readers open streams: one for each line.

mod queue;
mod server;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use anyhow::Context as _;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{board::ReaderStanding, line::PublishedLine};
use crate::{
    config::{SinkConfig, SinkGuard, limits, stream_limits},
    http::{Access, tls_acceptor},
    recovery::Tick,
    sink_line::{Moment, Numbered, Origin, Past},
    telemetry::SinkStreamMetrics,
};
use queue::{Queue, Reading};
pub(super) use server::Opening;
use server::{Refusal, Server};

/// All ports of a sink, by rank.
pub(super) struct Streams {
    ports: BTreeMap<u32, StreamPort>,
    metrics: SinkStreamMetrics,
}

struct StreamPort {
    sink: String,
    model: Arc<str>,
    address: Option<SocketAddr>,
    guard: SinkGuard,
    bound: Option<Bound>,
    bind_at: Tick,
    said_taken: bool,
    readers: Vec<Reader>,
}

struct Bound {
    address: SocketAddr,
    asked: mpsc::Receiver<Opening>,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

/// One that has a stream open, while it has.
struct Reader {
    peer: SocketAddr,
    queue: Weak<Queue>,
    told_whole: bool,
}

impl Streams {
    pub(super) fn new(config: &SinkConfig) -> Streams {
        Streams { ports: BTreeMap::new(), metrics: SinkStreamMetrics::register(&config.name) }
    }

    /// Opens the port of a line.
    pub(super) async fn open(&mut self, config: &SinkConfig, line: &PublishedLine, now: Tick) {
        let port = line.spot.port;
        let opened = self.ports.entry(port).or_insert_with(|| StreamPort {
            sink: config.name.clone(),
            model: Arc::clone(&line.spot.model),
            address: address_for(config.listen, port),
            guard: config.guard.clone(),
            bound: None,
            bind_at: now,
            said_taken: false,
            readers: Vec::new(),
        });
        opened.due(now).await;
    }

    /// A reader that opens a stream. Cancel-safe.
    pub(super) fn poll_asked(&mut self, context: &mut Context<'_>) -> Poll<(u32, Opening)> {
        for (port, streams) in &mut self.ports {
            let asked = streams.bound.as_mut().map(|bound| bound.asked.poll_recv(context));
            if let Some(Poll::Ready(Some(asked))) = asked {
                return Poll::Ready((*port, asked));
            }
        }
        Poll::Pending
    }

    /// When a port is to be bound.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let unbound = self.ports.values().filter(|port| port.bound.is_none());
        unbound.map(|port| port.bind_at).min()
    }

    /// Binds what is due. Whether something changed.
    pub(super) async fn due(&mut self, now: Tick) -> bool {
        let mut changed = false;
        for port in self.ports.values_mut() {
            changed |= port.due(now).await;
        }
        changed
    }

    /// Tells a reader that opens a stream what it lacks, and all that happens from now on.
    pub(super) fn answer(
        &mut self,
        (port, asked): (u32, Opening),
        line: &mut PublishedLine,
        at: Moment,
    ) {
        let Some(streams) = self.ports.get_mut(&port) else { return };
        streams.readers.retain(|reader| reader.queue.strong_count() > 0);
        let Opening { last, peer, answer } = asked;
        let whole = last == 0;
        let past: Result<Past, Refusal> =
            if streams.readers.len() >= stream_limits::SINK_STREAMS_MAX {
                line.metrics.refused.increment(1);
                Err(Refusal::TooMany)
            } else if whole {
                line.metrics.answered(Origin::View);
                Ok(line.line.present_stream(at))
            } else if let Some(past) = line.line.since(last) {
                line.metrics.answered(Origin::Journal);
                Ok(Box::new(past.into_iter()))
            } else {
                line.metrics.expired.increment(1);
                Err(Refusal::Expired)
            };
        let (batches, bytes) =
            (stream_limits::SINK_STREAM_BATCHES, stream_limits::SINK_STREAM_BYTES);
        let queue = Queue::new(batches, bytes);
        let reader = Reader { peer, queue: Arc::downgrade(&queue), told_whole: whole };
        let is_read = past.is_ok();
        // One that is gone meanwhile has nobody who waits.
        if answer.send(past.map(|past| Reading::new(past, queue))).is_ok() && is_read {
            streams.readers.push(reader);
        }
        self.show();
    }

    /// Publishes what a line says. A reader that has no room for it is cut off.
    pub(super) fn publish(&mut self, line: &PublishedLine, batches: &[Numbered]) {
        let Some(port) = self.ports.get_mut(&line.spot.port) else { return };
        let cut = &self.metrics.cut;
        port.readers.retain(|reader| {
            let Some(queue) = reader.queue.upgrade() else { return false };
            let fits = batches.iter().all(|batch| queue.push(batch));
            if !fits {
                cut.increment(1);
                info!(peer = %reader.peer, "a reader of a sink was too slow, it begins anew");
            }
            fits
        });
        self.show();
    }

    /// Where a line's port is bound.
    pub(super) fn bound(&self, port: u32) -> Option<String> {
        let port = self.ports.get(&port)?;
        let scheme = if port.guard.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{}", port.bound.as_ref()?.address))
    }

    /// Who reads at a port.
    pub(super) fn standing(&self, port: u32) -> Vec<ReaderStanding> {
        let readers = self.ports.get(&port).map(|port| &port.readers).into_iter().flatten();
        let standing = readers.map(|reader| ReaderStanding {
            endpoint: reader.peer.to_string(),
            is_listening: reader.queue.strong_count() > 0,
            told_whole_count: u64::from(reader.told_whole),
        });
        standing.collect()
    }

    /// A line is over, and its last word was published.
    pub(super) async fn close(&mut self, port: u32) {
        if let Some(port) = self.ports.remove(&port) {
            port.end().await;
        }
        self.show();
    }

    /// Says what is left and closes everything.
    pub(super) async fn end(self) {
        futures::future::join_all(self.ports.into_values().map(StreamPort::end)).await;
    }

    fn show(&self) {
        let readers = self.ports.values().flat_map(|port| &port.readers);
        let queues = readers.filter_map(|reader| reader.queue.upgrade());
        let waiting: Vec<usize> = queues.map(|queue| queue.waiting()).collect();
        self.metrics.show(waiting.len(), waiting.into_iter().max().unwrap_or(0));
    }
}

impl StreamPort {
    /// Binds, if that is due. Whether something changed.
    async fn due(&mut self, now: Tick) -> bool {
        if self.bound.is_some() || self.bind_at > now {
            return false;
        }
        match self.bind().await {
            Ok(bound) => {
                info!(sink = %self.sink, listen = %bound.address, "a router can read here");
                (self.bound, self.said_taken) = (Some(bound), false);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.said_taken, true) {
                    warn!(sink = %self.sink, error = %format!("{error:#}"), "a sink cannot be bound, tried again");
                }
                self.bind_at = now.plus(crate::clock::millis(limits::SINK_BIND_RETRY));
            }
        }
        true
    }

    async fn bind(&self) -> anyhow::Result<Bound> {
        let access = match &self.guard.tokens_file {
            Some(path) => Access::read(path)?,
            None => Access::Open,
        };
        let tls = self.guard.tls.as_ref().map(|tls| tls_acceptor("sinks.tls", tls, b"h2"));
        let address = self.address.context("the rank's port is past the last one")?;
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (asked_sender, asked) = mpsc::channel(stream_limits::SINK_STREAMS_MAX);
        let stop = CancellationToken::new();
        let server = Server {
            model: Arc::clone(&self.model),
            access,
            tls: tls.transpose()?,
            asked: asked_sender,
            stop: stop.clone(),
        };
        let server = tokio::spawn(server.serve(listener));
        Ok(Bound { address, asked, stop, server })
    }

    /// Lets readers read what waits for them, for a while, and frees the port.
    async fn end(self) {
        for queue in self.readers.iter().filter_map(|reader| reader.queue.upgrade()) {
            queue.end();
        }
        let Some(Bound { asked, stop, mut server, .. }) = self.bound else { return };
        drop(asked);
        stop.cancel();
        if tokio::time::timeout(stream_limits::SINK_STREAM_END, &mut server).await.is_err() {
            server.abort();
        }
    }
}

/// Port 0 stays 0: each rank takes a free one.
fn address_for(mut address: SocketAddr, rank: u32) -> Option<SocketAddr> {
    if let port @ 1.. = address.port() {
        address.set_port(port.checked_add(u16::try_from(rank).ok()?)?);
    }
    Some(address)
}
