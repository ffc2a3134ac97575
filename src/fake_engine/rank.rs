//! SHELL. One data-parallel rank: an engine, its publisher, and what is done to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Faults, ServeError, ServeSettings, Server};
use kvbridge_schemas::Event;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Interval, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::{
    control::{Ask, Cut, Stats},
    drained::Buffer,
    encode::POISON,
    engine::{Engine, Finished, Request, Step},
    native::Sink,
    next::{Next, take_one},
    settings::FakeSettings,
    snapshots::Snapshots,
    traffic::Traffic,
};
use crate::{
    clock::{Clock, millis},
    recovery::Tick,
};

/// Ids from here on belong to requests that came by HTTP.
const ASKED_ID_FIRST: u64 = 1 << 32;

pub(super) struct Rank {
    settings: FakeSettings,
    rank: u32,
    clock: Clock,
    engine: Engine,
    /// None where events are taken and not published.
    server: Option<Server>,
    buffer: Option<Buffer>,
    /// None where everything is told.
    sink: Option<Sink>,
    snapshots: Option<Snapshots>,
    serve: ServeSettings,
    seq: u64,
    life: u64,
    next: Next,
    frozen: Option<f64>,
    started_ms: Vec<u64>,
    traffic: Traffic,
    made_up: u64,
    asked: u64,
    arrival_ms: Option<f64>,
    stalled_until: Option<Tick>,
    waiters: BTreeMap<u64, oneshot::Sender<Finished>>,
}

impl Rank {
    pub(super) async fn bind(
        settings: &FakeSettings,
        rank: u32,
        clock: Clock,
    ) -> Result<Rank, ServeError> {
        let mut serve = settings.serve(rank);
        let buffer = settings.buffer(rank);
        let mut snapshots = None;
        if let Some(endpoint) = settings.snapshot(rank) {
            let mut bound = Snapshots::bind(endpoint, &settings.topic, rank).await?;
            serve.topic = bound.new_life(0);
            snapshots = Some(bound);
        }
        let mut server = None;
        if buffer.is_none() {
            let bound = Server::bind(serve.clone()).await?;
            // A restart binds the ports that the first life was given.
            let (live, replay) = (bound.live().to_owned(), bound.replay().to_owned());
            serve = ServeSettings { live, replay, ..serve };
            server = Some(bound);
        }
        let seed = settings.seed ^ u64::from(rank) << 32;
        let mut traffic = Traffic::new(settings.traffic.clone(), seed);
        let first = (settings.rps > 0.0).then(|| 1000.0 * traffic.gap_s(settings.rps));
        let mut rank = Rank {
            engine: settings.engine(0),
            settings: settings.clone(),
            rank,
            clock,
            server,
            buffer,
            sink: settings.sink(),
            snapshots,
            serve,
            seq: 0,
            life: 0,
            next: Next::default(),
            frozen: None,
            started_ms: Vec::new(),
            traffic,
            made_up: 0,
            asked: 0,
            arrival_ms: first,
            stalled_until: None,
            waiters: BTreeMap::new(),
        };
        rank.started_now();
        rank.say_clears();
        Ok(rank)
    }

    pub(super) fn live(&self) -> &str {
        &self.serve.live
    }

    pub(super) fn replay(&self) -> &str {
        &self.serve.replay
    }

    pub(super) fn snapshot(&self) -> Option<&str> {
        self.snapshots.as_ref().map(Snapshots::endpoint)
    }

    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>, stop: CancellationToken) {
        let mut pace = pace(&self.settings);
        loop {
            let stalled = self.stalled_until;
            let arrival = self.arrival_ms.map(|ms| Tick(whole_ms(ms)));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                ask = asks.recv() => match ask {
                    Some(ask) => self.answer(ask).await,
                    None => break,
                },
                asked = Snapshots::asked(&mut self.snapshots), if stalled.is_none() => {
                    self.answer_snapshot(asked).await;
                }
                () = self.clock.sleep_until(stalled), if stalled.is_some() => self.resume(),
                () = self.clock.sleep_until(arrival), if arrival.is_some() => self.arrive(),
                _ = pace.tick(), if stalled.is_none() && !self.engine.is_idle() => self.step(),
            }
        }
        if let Some(server) = self.server.take() {
            server.close().await;
        }
    }

    // === steps ===

    fn arrive(&mut self) {
        let request = self.traffic.request(self.made_up);
        self.made_up += 1;
        self.engine.add(request);
        let gap_ms = 1000.0 * self.traffic.gap_s(self.settings.rps);
        self.arrival_ms = self.arrival_ms.map(|ms| ms + gap_ms);
    }

    fn step(&mut self) {
        let Step { events, finished } = self.engine.step();
        self.publish(&events);
        for finished in finished {
            match self.waiters.remove(&finished.id) {
                Some(waiter) => tell(waiter, finished),
                None => self.traffic.finished(finished.id, &finished.output),
            }
        }
    }

    /// Publishes a batch, if there is anything to say, as the faults want it.
    fn publish(&mut self, events: &[Event]) {
        let left_out = !events.is_empty() && take_one(&mut self.next.left_out);
        let said = self.sink.as_mut().map(|sink| sink.say(events, left_out));
        let events = said.as_deref().unwrap_or(events);
        if self.settings.told.is_mute || (events.is_empty() && self.next.strays.is_empty()) {
            return;
        }
        let seq = self.seq;
        self.seq += 1;
        let strays = std::mem::take(&mut self.next.strays);
        let dropped = take_one(&mut self.next.dropped);
        let hole = take_one(&mut self.next.holes);
        let burnt = take_one(&mut self.next.burnt);
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.hear(events);
        }
        if let Some(buffer) = &mut self.buffer {
            buffer.push(events, &strays, dropped || burnt);
            self.seq = buffer.next_id();
            return;
        }
        if burnt {
            return;
        }
        let payload = if take_one(&mut self.next.poisoned) {
            Bytes::from_static(POISON)
        } else {
            let ts = self.frozen.unwrap_or_else(now_s);
            let Some(writer) = self.settings.writer() else { return };
            writer.batch(ts, events, &strays, Some(self.rank)).into()
        };
        let faults = &mut self.serve.faults;
        if dropped {
            faults.withheld.insert(seq);
        }
        if hole {
            faults.unjournaled.insert(seq);
        }
        let Some(server) = &self.server else { return };
        if dropped || hole {
            server.set_faults(faults.clone());
        }
        if let Err(error) = server.publish(seq, payload) {
            error!(rank = self.rank, seq, %error, "batch not published");
        }
    }

    /// An empty batch that marks a cut; says its seq.
    fn mark(&mut self, mark: &str) -> Option<u64> {
        let (server, writer) = (self.server.as_ref()?, self.settings.writer()?);
        let ts = self.frozen.unwrap_or_else(now_s);
        let payload = writer.batch(ts, &[], &[], Some(self.rank));
        server.publish_marked(self.seq, mark, payload.into()).ok()?;
        self.seq += 1;
        Some(self.seq - 1)
    }

    // === what is asked ===

    async fn answer_snapshot(&mut self, asked: Option<Addressed>) {
        // Without a request the socket is gone, and with it whoever would read an answer.
        let (Some(asked), Some(mut snapshots)) = (asked, self.snapshots.take()) else { return };
        snapshots.answer(asked, |mark| self.mark(mark)).await;
        self.snapshots = Some(snapshots);
    }

    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Complete(request, done) => {
                let id = ASKED_ID_FIRST + self.asked;
                self.asked += 1;
                self.engine.add(Request { id, ..request });
                self.waiters.insert(id, done);
            }
            Ask::Reset { put_back_running, done } => {
                // An engine whose events can be taken has no word for it, and no such path.
                let has_word = self.buffer.is_none() && self.sink.is_none();
                let emptied = has_word && self.engine.reset(put_back_running);
                self.say_clears();
                tell(done, emptied);
            }
            Ask::Truth(done) => tell(done, self.cut()),
            Ask::Requests(done) => tell(done, self.made_up + self.asked),
            Ask::Drain(done) => {
                tell(done, self.buffer.as_mut().map(Buffer::take).unwrap_or_default())
            }
            Ask::Stats(done) => tell(done, self.stats()),
            Ask::Fault(fault, done) => {
                debug!(rank = self.rank, ?fault, "fault");
                let result = self.fault(fault).await;
                tell(done, result.map_err(|error| error.to_string()));
            }
        }
    }

    fn cut(&self) -> Cut {
        Cut {
            next_seq: self.seq,
            life: self.life,
            pending: self.engine.has_events(),
            resident: self.engine.truth(),
        }
    }

    fn stats(&self) -> Stats {
        let (running, waiting) = self.engine.load();
        Stats {
            counts: self.engine.counts,
            running,
            waiting,
            used_blocks: self.engine.cache().used_count(),
            started_ms: self.started_ms.clone(),
        }
    }

    /// What an engine says without a step: that it is empty, at its start and when it was flushed.
    fn say_clears(&mut self) {
        if self.settings.engine.clears_at_once() {
            let events = self.engine.flush();
            self.publish(&events);
        }
    }

    /// Requests of one token each, one a step: every step has something to say.
    fn burst(&mut self, count: u64) {
        for _ in 0..count {
            let request = self.traffic.request(self.made_up);
            self.made_up += 1;
            self.engine.add(Request { output_tokens: 1, ..request });
            self.step();
        }
    }

    fn new_life(&mut self) {
        self.life += 1;
        self.engine = self.settings.engine(self.life);
        self.seq = 0;
        self.buffer = self.settings.buffer(self.rank);
        self.sink = self.settings.sink();
        if let Some(snapshots) = &mut self.snapshots {
            self.serve.topic = snapshots.new_life(self.life);
        }
        self.next = Next::default();
        self.serve.faults = Faults::default();
        self.frozen = None;
        self.stalled_until = None;
        // Callers of the old life see their request fail.
        self.waiters.clear();
        self.started_now();
    }

    fn started_now(&mut self) {
        let count = usize::try_from(self.settings.tp).unwrap_or(1);
        self.started_ms = vec![Clock::unix_ms(); count];
    }

    fn set_faults(&self) {
        if let Some(server) = &self.server {
            server.set_faults(self.serve.faults.clone());
        }
    }

    fn stall(&self, stalled: bool) {
        if let Some(server) = &self.server {
            server.stall(stalled);
        }
    }

    fn resume(&mut self) {
        self.stalled_until = None;
        self.stall(false);
    }
}

#[path = "rank_faults.rs"]
mod faults;

fn pace(settings: &FakeSettings) -> Interval {
    let mut pace = interval(settings.step);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// Answers; the caller may have gone.
fn tell<T>(caller: oneshot::Sender<T>, answer: T) {
    if caller.send(answer).is_err() {
        debug!("the caller is gone");
    }
}

fn now_s() -> f64 {
    std::time::Duration::from_millis(Clock::unix_ms()).as_secs_f64()
}

/// Milliseconds without their fraction.
fn whole_ms(ms: f64) -> u64 {
    let span = std::time::Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default();
    millis(span)
}
