//! The task of one sink.

use std::{collections::BTreeMap, future::poll_fn, sync::Arc, task::Poll};

use kvbridge_adapters_zmq::Addressed;
use kvbridge_schemas::{Replica, ReplicaKey, TierTrust};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{SinkBoard, line::PublishedLine};
use crate::{
    clock::Clock,
    config::SinkConfig,
    pipeline::{Command, Fed, Feed, Fleet},
    recovery::Tick,
    sink_line::{Moment, Told},
    telemetry::SinkMetrics,
};

/// Between two requests for a view, while its driver has no place for one.
const ASK_EVERY_MS: u64 = 50;

/// Tells one router of the ranks of one instance.
pub(super) struct SinkTask {
    config: SinkConfig,
    fleet: Arc<Fleet>,
    clock: Clock,
    feed: Feed,
    board: Arc<SinkBoard>,
    metrics: SinkMetrics,
    /// By rank: the port is the rank's.
    lines: BTreeMap<u32, PublishedLine>,
    /// Whose replicas are told.
    instance: Option<String>,
    refused: Option<ReplicaKey>,
    ask_at: Option<Tick>,
}

enum Happened {
    Stopped,
    Fed(Option<Fed>),
    Asked(u32, Addressed),
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
            config,
            fleet,
            clock,
            board,
            lines: BTreeMap::new(),
            refused: None,
            ask_at: None,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let deadlines = self.lines.values().map(PublishedLine::next_deadline);
            let deadline = deadlines.chain(self.ask_at).min();
            let (clock, lines) = (self.clock, &mut self.lines);
            let happened = tokio::select! {
                biased;
                () = stop.cancelled() => Happened::Stopped,
                (rank, request) = requests(lines) => Happened::Asked(rank, request),
                fed = self.feed.next() => Happened::Fed(fed),
                () = clock.sleep_until(deadline) => Happened::Due,
            };
            match happened {
                Happened::Stopped | Happened::Fed(None) => return self.end().await,
                Happened::Asked(rank, request) => {
                    let at = self.moment();
                    if let Some(line) = self.lines.get_mut(&rank) {
                        line.answer(at, request);
                    }
                }
                Happened::Fed(Some(fed)) => self.take(fed).await,
                Happened::Due => self.due().await,
            }
            self.metrics.show(self.feed.waiting());
        }
    }

    fn moment(&self) -> Moment {
        Moment { now: self.clock.now(), unix_ms: Clock::unix_ms() }
    }

    async fn take(&mut self, fed: Fed) {
        let missed = self.feed.take_missed();
        if missed > 0 {
            self.missed(missed).await;
        }
        let rank = fed.replica.rank;
        let Some(told) = fed.news.told() else { return self.gone(&fed).await };
        let at = self.moment();
        if !self.lines.contains_key(&rank) && !self.begin(&fed.replica, at).await {
            return;
        }
        let Some(line) = self.lines.get_mut(&rank).filter(|line| line.key == fed.key) else {
            return self.refuse(&fed.key);
        };
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
        line.publish(out).await;
        self.show(rank);
    }

    /// Begins a line, if the replica is one that is told here.
    async fn begin(&mut self, replica: &Replica, at: Moment) -> bool {
        if !self.config.takes(replica) {
            return false;
        }
        let instance = self.instance.get_or_insert_with(|| replica.instance.clone());
        if *instance != replica.instance {
            self.refuse(&replica.key());
            return false;
        }
        let mut line = PublishedLine::new(&self.config, replica, at);
        line.due(at).await;
        self.lines.insert(replica.rank, line);
        true
    }

    /// A second replica for the same port.
    fn refuse(&mut self, key: &ReplicaKey) {
        self.metrics.refused.increment(1);
        if self.refused.as_ref() != Some(key) {
            warn!(sink = %self.config.name, replica = %key, "a sink tells the ranks of one instance and one model: name them in it");
            self.refused = Some(key.clone());
        }
    }

    /// What lines know may be old: they pause until their drivers tell them all.
    async fn missed(&mut self, missed: u64) {
        self.metrics.missed.increment(missed);
        info!(sink = %self.config.name, missed, "a sink fell behind, all is told again");
        let at = self.moment();
        for line in self.lines.values_mut() {
            line.wants_whole = true;
            if let Some(handle) = self.fleet.get(&line.key) {
                handle.signs.sink_has_missed();
            }
            let mut out = Vec::new();
            let told = Told { whole: false, changes: &[], trust: TierTrust::default() };
            line.line.told(at, told, &mut out);
            line.publish(out).await;
        }
        self.ask_at = Some(at.now);
        let gone = self.lines.values().filter(|line| !self.fleet.has(&line.key));
        let gone: Vec<u32> = gone.filter_map(|line| self.rank_of(&line.key)).collect();
        for rank in gone {
            self.close(rank).await;
        }
    }

    fn rank_of(&self, key: &ReplicaKey) -> Option<u32> {
        self.lines.iter().find(|(_, line)| line.key == *key).map(|(rank, _)| *rank)
    }

    async fn gone(&mut self, fed: &Fed) {
        if let Some(rank) = self.rank_of(&fed.key) {
            self.close(rank).await;
        }
    }

    async fn close(&mut self, rank: u32) {
        let at = self.moment();
        let Some(line) = self.lines.remove(&rank) else { return };
        self.board.remove(&self.config.name, &line.key);
        line.end(at).await;
        if self.lines.is_empty() {
            // Another instance may come.
            self.instance.clone_from(&self.config.instance);
        }
    }

    async fn due(&mut self) {
        let at = self.moment();
        if self.ask_at.is_some_and(|ask_at| ask_at <= at.now) {
            self.ask(at);
        }
        let ranks: Vec<u32> = self.lines.keys().copied().collect();
        for rank in ranks {
            if let Some(line) = self.lines.get_mut(&rank).filter(|l| l.next_deadline() <= at.now) {
                line.due(at).await;
                self.show(rank);
            }
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

    fn show(&mut self, rank: u32) {
        let Some(line) = self.lines.get(&rank) else { return };
        let standing = line.standing();
        line.metrics.show(&standing);
        self.board.set(&self.config.name, &line.key, standing);
    }

    async fn end(mut self) {
        let ranks: Vec<u32> = self.lines.keys().copied().collect();
        for rank in ranks {
            self.close(rank).await;
        }
    }
}

/// The next request of any line. Cancel-safe.
async fn requests(lines: &mut BTreeMap<u32, PublishedLine>) -> (u32, Addressed) {
    poll_fn(|context| {
        for (rank, line) in lines.iter_mut() {
            if let Poll::Ready(request) = line.poll_request(context) {
                return Poll::Ready((*rank, request));
            }
        }
        Poll::Pending
    })
    .await
}
