//! The task of one sink.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kvbridge_schemas::{Replica, ReplicaKey, TierTrust};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    SinkBoard,
    line::{PublishedLine, Spot},
    places::{Places, Said},
};
use crate::{
    clock::Clock,
    config::{SinkConfig, limits},
    pipeline::{Command, Fed, Feed, Fleet, Heard},
    recovery::Tick,
    sink_line::{Moment, Numbered, Told},
    telemetry::SinkMetrics,
};

/// Between two requests for a view, while its driver has no place for one; and between two tries to
/// tell a reader that had no room.
const ASK_EVERY_MS: u64 = 50;

/// Tells one router: of the ranks of one instance, or of all replicas where each has a topic.
pub(super) struct SinkTask {
    config: SinkConfig,
    fleet: Arc<Fleet>,
    clock: Clock,
    feed: Feed,
    board: Arc<SinkBoard>,
    metrics: SinkMetrics,
    lines: BTreeMap<ReplicaKey, PublishedLine>,
    places: Places,
    /// Whose replicas are told, where ports are the ranks'.
    instance: Option<String>,
    /// Those that the log has named, as long as they are there.
    refused: BTreeSet<ReplicaKey>,
    ask_at: Option<Tick>,
    /// A reader lacks something, and has no room for it yet.
    catch_up_at: Option<Tick>,
    readers_changed: bool,
}

enum Happened {
    Stopped,
    Told(Heard),
    Said(Said),
    Due,
}

impl SinkTask {
    pub(super) fn new(
        config: SinkConfig,
        fleet: Arc<Fleet>,
        clock: Clock,
        board: Arc<SinkBoard>,
    ) -> SinkTask {
        let queue = usize::try_from(config.queue_messages).unwrap_or(usize::MAX);
        SinkTask {
            feed: fleet.feeds().subscribe(queue),
            metrics: SinkMetrics::register(&config.name),
            instance: config.instance.clone(),
            places: Places::new(&config),
            config,
            fleet,
            clock,
            board,
            lines: BTreeMap::new(),
            refused: BTreeSet::new(),
            ask_at: None,
            catch_up_at: None,
            readers_changed: false,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let lines = self.lines.values().map(|line| line.line.next_deadline());
            let others = [self.ask_at, self.catch_up_at, self.places.next_deadline()];
            let deadline = lines.chain(others.into_iter().flatten()).min();
            let (clock, places) = (self.clock, &mut self.places);
            // Not biased: sockets that say much, or a driver that does, must not starve the others.
            let happened = tokio::select! {
                () = stop.cancelled() => Happened::Stopped,
                said = places.next() => Happened::Said(said),
                heard = self.feed.next() => Happened::Told(heard),
                () = clock.sleep_until(deadline) => Happened::Due,
            };
            let at = self.moment();
            match happened {
                Happened::Stopped => return self.end().await,
                Happened::Said(Said::Asked(port, request)) => {
                    self.places.ask(port, &request, self.lines.values());
                }
                Happened::Said(Said::Ready(port)) => self.places.go_on(port, &self.lines, at),
                Happened::Said(Said::Reader(reader, event)) => {
                    self.places.take(reader, event);
                    // Not at once: a reader that comes and goes would have everything made anew for
                    // each word.
                    self.readers_changed = true;
                    self.catch_up_at.get_or_insert(at.now.plus(ASK_EVERY_MS));
                }
                #[cfg(feature = "sink-smg")]
                Happened::Said(Said::Opens(port, asked)) => {
                    // A port is there while its line is. Without one nobody is answered.
                    let mut lines = self.lines.values_mut();
                    if let Some(line) = lines.find(|line| line.spot.port == port) {
                        self.places.opens(port, asked, line, at);
                    }
                    self.show_all();
                }
                Happened::Told(Heard::Fed(fed)) => self.take(fed).await,
                Happened::Told(Heard::Missed(count)) => self.missed(count).await,
                Happened::Due => self.due(at).await,
            }
            self.metrics.show(self.feed.waiting());
        }
    }

    fn moment(&self) -> Moment {
        Moment { now: self.clock.now(), unix_ms: Clock::unix_ms() }
    }

    async fn take(&mut self, fed: Fed) {
        let Some(told) = fed.news.told() else { return self.close(&fed.key).await };
        let at = self.moment();
        if !self.lines.contains_key(&fed.key) && !self.begin(&fed.replica, at).await {
            return;
        }
        let Some(line) = self.lines.get_mut(&fed.key) else { return };
        let mut out = Vec::new();
        if told.whole {
            line.wants_whole = false;
        }
        if line.wants_whole {
            // Changes of something that is not known. A withdrawal counts all the same.
            if told.trust == TierTrust::default() {
                line.line.told(at, Told { whole: false, changes: &[], ..told }, &mut out);
            }
            self.ask_at.get_or_insert(at.now);
        } else {
            line.line.told(at, told, &mut out);
        }
        self.publish(&fed.key, out, at).await;
    }

    /// Publishes what a line says, and shows how it stands.
    async fn publish(&mut self, key: &ReplicaKey, batches: Vec<Numbered>, at: Moment) {
        let Some(line) = self.lines.get(key) else { return };
        self.places.publish(line, batches, at).await;
        if self.places.any_lacks(line) {
            self.catch_up_at.get_or_insert(at.now.plus(ASK_EVERY_MS));
        }
        self.show(key);
    }

    /// Begins a line, if the replica is one that is told here.
    async fn begin(&mut self, replica: &Replica, at: Moment) -> bool {
        if !self.config.takes(replica) {
            return false;
        }
        // A refused replica comes with every step: nothing is made for it.
        let spot = Spot::of(&self.config, replica);
        let taken = if self.config.shares_sockets() {
            // A reader could not tell two replicas of one topic apart.
            self.lines.values().any(|other| other.spot.topic == spot.topic)
        } else {
            let instance = self.instance.get_or_insert_with(|| replica.instance.clone());
            let port_taken = self.lines.values().any(|other| other.spot.port == spot.port);
            *instance != replica.instance || port_taken
        };
        if taken {
            self.refuse(&replica.key());
            return false;
        }
        let line = PublishedLine::new(&self.config, replica, spot, at);
        self.places.open(&self.config, &line, at.now).await;
        self.lines.insert(line.key.clone(), line);
        true
    }

    /// A second replica for the same port or topic.
    fn refuse(&mut self, key: &ReplicaKey) {
        self.metrics.refused.increment(1);
        if self.refused.len() < limits::SINK_REFUSED_NAMED && self.refused.insert(key.clone()) {
            let remedy = if self.config.shares_sockets() {
                "a sink tells one replica under each topic: tell them apart in it"
            } else {
                "a sink tells the ranks of one instance and one model: name them in it"
            };
            warn!(sink = %self.config.name, replica = %key, "{remedy}");
        }
    }

    /// Tells readers what they lack.
    fn catch_up(&mut self, at: Moment) {
        let mut lacking = !self.places.pay();
        for line in self.lines.values() {
            self.places.catch_up(line, at);
            lacking |= self.places.any_lacks(line);
        }
        self.catch_up_at = lacking.then(|| at.now.plus(ASK_EVERY_MS));
    }

    /// What lines know may be old: they pause until their drivers tell them all.
    async fn missed(&mut self, missed: u64) {
        self.metrics.missed.increment(missed);
        info!(sink = %self.config.name, missed, "a sink fell behind, all is told again");
        let at = self.moment();
        let keys: Vec<ReplicaKey> = self.lines.keys().cloned().collect();
        for key in &keys {
            let Some(line) = self.lines.get_mut(key) else { continue };
            line.wants_whole = true;
            if let Some(handle) = self.fleet.get(key) {
                handle.signs.sink_has_missed();
            }
            let mut out = Vec::new();
            let told = Told { whole: false, changes: &[], trust: TierTrust::default() };
            line.line.told(at, told, &mut out);
            self.publish(key, out, at).await;
        }
        self.ask_at = Some(at.now);
        for key in keys.iter().filter(|key| !self.fleet.has(key)).collect::<Vec<_>>() {
            self.close(key).await;
        }
        // Of a replica that is new only that may have been missed.
        for (key, handle) in self.fleet.replicas() {
            if !self.lines.contains_key(&key) {
                self.begin(&handle.replica, at).await;
            }
        }
    }

    async fn close(&mut self, key: &ReplicaKey) {
        self.refused.remove(key);
        let at = self.moment();
        let Some(mut line) = self.lines.remove(key) else { return };
        self.board.remove(&self.config.name, key);
        let mut out = Vec::new();
        line.line.end(at, &mut out);
        let last_word = out.last().map(|batch| Arc::clone(&batch.payload));
        self.places.publish(&line, out, at).await;
        if let Some(last_word) = last_word {
            self.places.close(&line, &last_word, self.config.shares_sockets()).await;
        }
        self.catch_up_at.get_or_insert(at.now.plus(ASK_EVERY_MS));
        if self.lines.is_empty() {
            // Another instance may come.
            self.instance.clone_from(&self.config.instance);
        }
    }

    async fn due(&mut self, at: Moment) {
        if self.ask_at.is_some_and(|ask_at| ask_at <= at.now) {
            self.ask(at);
        }
        if self.catch_up_at.is_some_and(|catch_up_at| catch_up_at <= at.now) {
            self.catch_up(at);
            if std::mem::take(&mut self.readers_changed) {
                self.show_all();
            }
        }
        if self.places.due(at.now).await {
            self.show_all();
        }
        let due = self.lines.iter().filter(|(_, line)| line.line.next_deadline() <= at.now);
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let mut out = Vec::new();
            line.line.due(at, &mut out);
            self.publish(&key, out, at).await;
        }
    }

    /// Asks the drivers of lines that do not know what is held.
    fn ask(&mut self, at: Moment) {
        let waiting = self.lines.values().filter(|line| line.wants_whole);
        let asked = waiting.map(|line| {
            self.fleet.get(&line.key).is_some_and(|handle| handle.ask(Command::Tell).is_ok())
        });
        // Also one that was asked: its answer may be missed.
        let count = asked.count();
        self.ask_at = (count > 0).then(|| at.now.plus(ASK_EVERY_MS));
    }

    fn show(&self, key: &ReplicaKey) {
        let Some(line) = self.lines.get(key) else { return };
        let standing = self.places.standing(line);
        line.metrics.show(&standing);
        self.board.set(&self.config.name, key, standing);
    }

    fn show_all(&self) {
        self.lines.keys().for_each(|key| self.show(key));
    }

    async fn end(mut self) {
        for key in self.lines.keys().cloned().collect::<Vec<_>>() {
            self.close(&key).await;
        }
        self.places.end().await;
    }
}
