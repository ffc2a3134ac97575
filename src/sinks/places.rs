//! Where a sink's lines are published: ports that readers connect to, readers that are connected
//! to, and whose line is where.

use std::{collections::BTreeMap, future::poll_fn, sync::Arc, task::Poll};

use kvbridge_adapters_zmq::{Addressed, DialEvent, OutletAddress};
use kvbridge_schemas::ReplicaKey;
use metrics::Counter;

#[cfg(feature = "sink-smg")]
use super::streams::{Opening, Streams};
use super::{
    LineStanding,
    answers::{Asked, Part, live, request_of},
    line::PublishedLine,
    port::{Port, PortSaid},
    reader::Reader,
};
use crate::{
    config::{SinkConfig, for_rank},
    recovery::Tick,
    sink_line::{Moment, Numbered, Payload},
};

/// All sockets of a sink.
pub(super) struct Places {
    preset: &'static str,
    form: crate::sink_line::ReplayForm,
    /// By rank, or one for all.
    ports: BTreeMap<u32, Port>,
    readers: Vec<Reader>,
    /// Where readers open streams.
    #[cfg(feature = "sink-smg")]
    streams: Streams,
}

/// Something that a socket says.
pub(super) enum Said {
    /// A request at a port.
    Asked(u32, Addressed),
    /// Answers of a port can go on.
    Ready(u32),
    /// A reader came or went, by its place.
    Reader(usize, DialEvent),
    /// A reader opens a stream at a port.
    #[cfg(feature = "sink-smg")]
    Opens(u32, Opening),
}

impl Places {
    pub(super) fn new(config: &SinkConfig) -> Places {
        let readers = config.connect.iter().map(|at| Reader::new(&config.name, at)).collect();
        Places {
            preset: config.preset.as_str(),
            form: config.preset.profile().replay,
            ports: BTreeMap::new(),
            readers,
            #[cfg(feature = "sink-smg")]
            streams: Streams::new(config),
        }
    }

    /// Opens the port of a line, unless it is open or none is needed.
    pub(super) async fn open(&mut self, config: &SinkConfig, line: &PublishedLine, now: Tick) {
        if !config.connect.is_empty() {
            return;
        }
        #[cfg(feature = "sink-smg")]
        if config.is_streamed() {
            return self.streams.open(config, line, now).await;
        }
        let address = OutletAddress {
            live: for_rank(config.listen, line.spot.port),
            requests: for_rank(config.replay, line.spot.port),
        };
        let port = self.ports.entry(line.spot.port);
        port.or_insert_with(|| Port::new(&config.name, address, now)).due(now).await;
    }

    /// The next thing that a socket says. Cancel-safe.
    pub(super) async fn next(&mut self) -> Said {
        poll_fn(|context| {
            for (port, sockets) in &mut self.ports {
                match sockets.poll(context) {
                    Poll::Ready(PortSaid::Asked(asked)) => {
                        return Poll::Ready(Said::Asked(*port, asked));
                    }
                    Poll::Ready(PortSaid::Ready) => return Poll::Ready(Said::Ready(*port)),
                    Poll::Pending => (),
                }
            }
            for (at, reader) in self.readers.iter_mut().enumerate() {
                if let Poll::Ready(event) = reader.poll_event(context) {
                    return Poll::Ready(Said::Reader(at, event));
                }
            }
            #[cfg(feature = "sink-smg")]
            if let Poll::Ready((port, asked)) = self.streams.poll_asked(context) {
                return Poll::Ready(Said::Opens(port, asked));
            }
            Poll::Pending
        })
        .await
    }

    /// When a port is to be bound.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let ports = self.ports.values().filter_map(Port::next_deadline);
        #[cfg(feature = "sink-smg")]
        let ports = ports.chain(self.streams.next_deadline());
        ports.min()
    }

    /// Binds what is due. Whether something changed.
    pub(super) async fn due(&mut self, now: Tick) -> bool {
        let mut changed = false;
        for port in self.ports.values_mut() {
            changed |= port.due(now).await;
        }
        #[cfg(feature = "sink-smg")]
        {
            changed |= self.streams.due(now).await;
        }
        changed
    }

    /// A reader opens a stream of that line.
    #[cfg(feature = "sink-smg")]
    pub(super) fn opens(
        &mut self,
        port: u32,
        asked: Opening,
        line: &mut PublishedLine,
        at: Moment,
    ) {
        self.streams.answer((port, asked), line, at);
    }

    /// Publishes what a line says.
    pub(super) async fn publish(
        &mut self,
        line: &PublishedLine,
        batches: Vec<Numbered>,
        at: Moment,
    ) {
        line.metrics.batches.increment(u64::try_from(batches.len()).unwrap_or(u64::MAX));
        if batches.is_empty() {
            return;
        }
        if !self.readers.is_empty() {
            let news: Vec<Payload> =
                batches.iter().map(|batch| Arc::clone(&batch.payload)).collect();
            for reader in &mut self.readers {
                reader.publish(line, &news, at);
            }
        }
        if let Some(port) = self.ports.get_mut(&line.spot.port) {
            let topic = line.topic_frame();
            for batch in &batches {
                port.publish(live(&topic, batch)).await;
            }
        }
        #[cfg(feature = "sink-smg")]
        self.streams.publish(line, &batches);
    }

    /// A reader came or went.
    pub(super) fn take(&mut self, at: usize, event: DialEvent) {
        if let Some(reader) = self.readers.get_mut(at) {
            reader.take(event);
        }
    }

    /// Tells readers of lines that are over. Whether all had room.
    pub(super) fn pay(&mut self) -> bool {
        let without_room = self.readers.iter_mut().map(Reader::pay).filter(|paid| !paid);
        without_room.count() == 0
    }

    /// Tells readers what they lack of a line.
    pub(super) fn catch_up(&mut self, line: &PublishedLine, at: Moment) {
        self.readers.iter_mut().for_each(|reader| reader.catch_up(line, at));
    }

    /// Whether a reader lacks something of a line.
    pub(super) fn any_lacks(&self, line: &PublishedLine) -> bool {
        self.readers.iter().any(|reader| reader.lacks(line))
    }

    /// Takes a request for the lines of that port: for those whose topics begin as it says, else
    /// for all.
    pub(super) fn ask<'a>(
        &mut self,
        port: u32,
        request: &Addressed,
        lines: impl Iterator<Item = &'a PublishedLine>,
    ) {
        let lines: Vec<&PublishedLine> = lines.filter(|line| line.spot.port == port).collect();
        let Some(sockets) = self.ports.get_mut(&port) else { return };
        let Some((start, topic)) = request_of(&request.frames) else {
            return count_first(&lines, |line| &line.metrics.malformed, 1);
        };
        let is_wanted = |line: &&&PublishedLine| {
            topic.as_ref().is_none_or(|topic| line.spot.topic.as_bytes().starts_with(topic))
        };
        let wanted = lines.iter().filter(is_wanted).map(|line| line.key.clone()).collect();
        if !sockets.ask(Asked { peer: request.peer.clone(), start, lines: wanted }) {
            count_first(&lines, |line| &line.metrics.refused, 1);
        }
    }

    /// Goes on with the answers of a port, a line of each: so that no answer holds more than one
    /// line at a time, and other work comes between them. Each is under its own topic, and the end
    /// marker comes also when there is none.
    pub(super) fn go_on(
        &mut self,
        port: u32,
        lines: &BTreeMap<ReplicaKey, PublishedLine>,
        at: Moment,
    ) {
        let Some(sockets) = self.ports.get_mut(&port) else { return };
        for mut answer in sockets.take_ready() {
            let asked = &mut answer.asked;
            let mut left = std::iter::from_fn(|| asked.lines.pop_front());
            // One that has gone meanwhile has told that everything is.
            let line = left.find_map(|key| lines.get(&key));
            let part = line.map(|line| {
                let (origin, batches) = line.line.replay(at, asked.start);
                line.metrics.answered(origin);
                Part { topic: line.topic_frame(), batches }
            });
            sockets.answer(answer, part, self.form);
        }
        let stalled = sockets.take_stalled();
        if stalled > 0 {
            let lines: Vec<&PublishedLine> =
                lines.values().filter(|line| line.spot.port == port).collect();
            count_first(&lines, |line| &line.metrics.stalled, stalled);
        }
    }

    pub(super) fn standing(&self, line: &PublishedLine) -> LineStanding {
        let address = self.ports.get(&line.spot.port).and_then(Port::bound);
        let live = address.map(|address| address.live.clone());
        let readers: Vec<_> = self.readers.iter().map(Reader::standing).collect();
        #[cfg(feature = "sink-smg")]
        let (live, readers) = (
            live.or_else(|| self.streams.bound(line.spot.port)),
            [readers, self.streams.standing(line.spot.port)].concat(),
        );
        LineStanding {
            preset: self.preset,
            live,
            replay: address.map(|address| address.requests.clone()),
            topic: line.spot.topic.clone(),
            next_seq: line.line.next_seq(),
            is_shown: line.line.is_shown(),
            shown_count: line.line.shown_count(),
            hidden_count: line.line.hidden_count(),
            readers,
        }
    }

    /// A line is over, and its last word was published: the port that was its own is free again.
    pub(super) async fn close(&mut self, line: &PublishedLine, last_word: &Payload, shares: bool) {
        self.readers.iter_mut().for_each(|reader| reader.ends(&line.spot.topic, last_word));
        #[cfg(feature = "sink-smg")]
        self.streams.close(line.spot.port).await;
        if !shares && let Some(port) = self.ports.remove(&line.spot.port) {
            port.end().await;
        }
    }

    /// Says what is left and closes everything.
    pub(super) async fn end(self) {
        for (_, port) in self.ports {
            port.end().await;
        }
        #[cfg(feature = "sink-smg")]
        self.streams.end().await;
        futures::future::join_all(self.readers.into_iter().map(Reader::end)).await;
    }
}

/// Of which line a request is that is none, nobody can say: it counts for the first.
fn count_first(lines: &[&PublishedLine], of: fn(&PublishedLine) -> &Counter, count: u64) {
    if let Some(line) = lines.first() {
        of(line).increment(count);
    }
}
