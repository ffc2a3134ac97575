//! The task that follows what drivers tell.

use std::sync::Arc;

use kvbridge_schemas::TierTrust;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::FanOut;
use crate::{
    clock::Clock,
    pipeline::{Command, Fed, Feed, Fleet, Heard},
    recovery::Tick,
    sink_line::Told,
    telemetry::FanQueueMetrics,
};

/// Between two requests for a view, while its driver has no place for one.
const ASK_EVERY_MS: u64 = 50;

/// Between two looks for consumers that ask no more: requests make new ones beside this task.
const LOOK_EVERY_MS: u64 = 1000;

pub(super) struct FanTask {
    fan_out: Arc<FanOut>,
    fleet: Arc<Fleet>,
    clock: Clock,
    feed: Feed,
    metrics: FanQueueMetrics,
    ask_at: Option<Tick>,
}

impl FanTask {
    pub(super) fn new(
        fan_out: Arc<FanOut>,
        fleet: Arc<Fleet>,
        clock: Clock,
        queue: usize,
    ) -> FanTask {
        let feed = fleet.feeds().subscribe(queue);
        FanTask { fan_out, fleet, clock, feed, metrics: FanQueueMetrics::register(), ask_at: None }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let deadline = self.next_deadline();
            let (clock, feed) = (self.clock, &mut self.feed);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                heard = feed.next() => match heard {
                    Heard::Fed(fed) => self.take(&fed),
                    Heard::Missed(count) => self.missed(count),
                },
                () = clock.sleep_until(Some(deadline)) => self.due(),
            }
        }
    }

    fn next_deadline(&self) -> Tick {
        let look_at = self.clock.now().plus(LOOK_EVERY_MS);
        let fans = self.fan_out.fans();
        let due = fans.values().filter_map(|seat| seat.fan.next_deadline());
        due.chain(self.ask_at).min().map_or(look_at, |due| due.min(look_at))
    }

    fn take(&mut self, fed: &Fed) {
        let now = self.clock.now();
        let mut fans = self.fan_out.fans();
        let Some(told) = fed.news.told() else {
            if let Some(seat) = fans.get_mut(&fed.key) {
                seat.fan.end();
            }
            return;
        };
        let seat = self.fan_out.seat(&mut fans, &fed.key, &fed.replica, now);
        seat.wants_whole &= !told.whole;
        if seat.wants_whole {
            // Changes of something that is not known. A withdrawal counts all the same.
            if told.trust == TierTrust::default() {
                seat.fan.told(now, Told { whole: false, changes: &[], ..told });
            }
            self.ask_at.get_or_insert(now);
        } else {
            seat.fan.told(now, told);
        }
        seat.count();
    }

    /// What is known may be old: nothing is told until drivers tell it all.
    fn missed(&mut self, missed: u64) {
        let now = self.clock.now();
        self.metrics.missed.increment(missed);
        info!(missed, "the fan-out fell behind, all is told again");
        let mut fans = self.fan_out.fans();
        // Of a replica that is new only that may have been missed.
        for (key, handle) in self.fleet.replicas() {
            handle.signs.fan_out_has_missed();
            self.fan_out.seat(&mut fans, &key, &handle.replica, now);
        }
        for (key, seat) in &mut *fans {
            seat.wants_whole = true;
            if self.fleet.has(key) {
                let told = Told { whole: false, changes: &[], trust: TierTrust::default() };
                seat.fan.told(now, told);
            } else {
                seat.fan.end();
            }
        }
        self.ask_at = Some(now);
    }

    fn due(&mut self) {
        let now = self.clock.now();
        let mut fans = self.fan_out.fans();
        for seat in fans.values_mut() {
            seat.fan.due(now);
            seat.count();
        }
        fans.retain(|_, seat| !seat.fan.is_over());
        if self.ask_at.is_none_or(|ask_at| ask_at > now) {
            return;
        }
        let waiting = fans.iter().filter(|(_, seat)| seat.wants_whole);
        let asked = waiting.map(|(key, _)| {
            self.fleet.get(key).is_some_and(|handle| handle.ask(Command::Tell).is_ok())
        });
        // Also one that was asked: its answer may be missed.
        let count = asked.count();
        self.ask_at = (count > 0).then(|| now.plus(ASK_EVERY_MS));
    }
}
