//! SHELL. Looks at every replica once a second and says what rings: one gauge, one log line.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kvbridge_schemas::{ReplicaKey, Trust};
use metrics::{Gauge, Label, gauge};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Alarm, Board, Change, RankSight, Ranks, Sight,
    asks::{Asks, Counts, OfReplica},
    growth::News,
    hits::{HitEvent, Hits},
    signal::{Signal, SignalCounts},
};
use crate::{
    bus::Name,
    clock::{Clock, millis},
    index::{Answer, Query, QueryError},
    pipeline::{Command, Fleet, ReplicaHandle, Signs},
    recovery::Tick,
    shared_log::lives::Silence,
    telemetry::{EngineHits, label, name},
};

/// Time between two looks; the unit of the traffic window too.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An alarm that rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Which.
    pub alarm: Alarm,
    /// Since when, unix ms.
    pub since_ms: u64,
    /// What changed before a hit rate fell.
    pub event: Option<HitEvent>,
}

type Ringing = BTreeMap<ReplicaKey, Vec<Raised>>;

/// What rings, and where requests of routers are counted. Cheap to clone.
#[derive(Clone)]
pub struct Alarms {
    ringing: watch::Receiver<Ringing>,
    asks: Arc<Asks>,
}

impl Alarms {
    /// What rings for one replica.
    pub fn of(&self, key: &ReplicaKey) -> Vec<Raised> {
        self.ringing.borrow().get(key).cloned().unwrap_or_default()
    }

    /// A prompt was asked for, and this came of it.
    pub fn asked(&self, now: Tick, query: &Query<'_>, answer: Result<&Answer, &QueryError>) {
        self.asks.asked(now, query, answer);
    }

    /// A request of a model, without its prompt.
    pub fn counted(&self, model: &str) {
        self.asks.counted(model);
    }

    /// A router named a replica of a model, or one that nobody knows.
    pub fn named(&self, model: &str, key: Option<&ReplicaKey>) {
        self.asks.named(model, key);
    }

    /// A router named these together; now and then they are counted.
    pub fn candidates<'a>(
        &self,
        now: Tick,
        model: &str,
        keys: impl Iterator<Item = Option<&'a ReplicaKey>>,
    ) {
        self.asks.candidates(now, model, keys);
    }
}

/// What is remembered of one replica.
struct Watched {
    board: Board,
    gauges: Vec<(Alarm, Gauge)>,
    signs: Arc<Signs>,
    undecodable: News,
    competing: News,
    log_reset: News,
    retention_passed: News,
    tail_loss: News,
    sink_missed: News,
    fan_out_missed: News,
    snapshot_failed: News,
    /// Since when another bridge speaks, so that this one does not.
    rival_at: Option<Tick>,
    signal: Signal,
    hits: Hits,
    engine_hits: EngineHits,
}

/// The task that looks.
pub struct Watch {
    fleet: Arc<Fleet>,
    clock: Clock,
    replicas: BTreeMap<ReplicaKey, Watched>,
    ringing: watch::Sender<Ringing>,
    asks: Arc<Asks>,
    ranks: Ranks,
    rank_missing_ms: u64,
    /// What the drivers of ranks were told last.
    told_missing: BTreeMap<ReplicaKey, bool>,
}

impl Watch {
    /// A watch over a fleet, and what others see of it. All gauges show 0 from the start.
    pub fn new(fleet: Arc<Fleet>, clock: Clock, rank_missing: Duration) -> (Watch, Alarms) {
        let (ringing, seen_by_others) = watch::channel(Ringing::new());
        let asks = Arc::<Asks>::default();
        let alarms = Alarms { ringing: seen_by_others, asks: Arc::clone(&asks) };
        let replicas = BTreeMap::new();
        let rank_missing_ms = millis(rank_missing);
        let (ranks, told_missing) = (Ranks::default(), BTreeMap::new());
        let mut watch =
            Watch { fleet, clock, replicas, ringing, asks, ranks, rank_missing_ms, told_missing };
        watch.follow();
        (watch, alarms)
    }

    /// Takes notice of replicas that came or went with the configuration.
    fn follow(&mut self) -> BTreeMap<ReplicaKey, ReplicaHandle> {
        let fleet: BTreeMap<_, _> = self.fleet.replicas().collect();
        for (key, handle) in &fleet {
            // A source that was opened anew notes its signs elsewhere.
            let mut hits = Hits::default();
            if self.replicas.get(key).is_some_and(|it| !Arc::ptr_eq(&it.signs, &handle.signs)) {
                let before = self.forget(key);
                hits = before.map(|it| it.reopened(self.clock.now())).unwrap_or_default();
            }
            if !self.replicas.contains_key(key) {
                self.replicas.insert(key.clone(), Watched::new(key, handle, hits));
            }
        }
        let gone: Vec<_> =
            self.replicas.keys().filter(|it| !fleet.contains_key(it)).cloned().collect();
        gone.iter().for_each(|key| drop(self.forget(key)));
        let read: BTreeSet<(&str, &ReplicaKey)> =
            fleet.iter().map(|(key, handle)| (handle.replica.model.as_str(), key)).collect();
        self.asks.keep(&read);
        fleet
    }

    fn forget(&mut self, key: &ReplicaKey) -> Option<Hits> {
        let watched = self.replicas.remove(key)?;
        // A driver that was opened anew was told nothing.
        self.told_missing.remove(key);
        watched.gauges.iter().for_each(|(_, gauge)| gauge.set(0.0));
        self.ringing.send_modify(|ringing| drop(ringing.remove(key)));
        Some(watched.hits)
    }

    /// Looks until stopped.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => self.look(self.clock.now(), Clock::unix_ms()),
            }
        }
    }

    /// One look at everything.
    pub(super) fn look(&mut self, now: Tick, unix_ms: u64) {
        let fleet = self.follow();
        self.compare_ranks(now, &fleet);
        for (key, handle) in &fleet {
            let Some(watched) = self.replicas.get_mut(key) else { continue };
            let counts = self.asks.counts(&handle.replica.model, key);
            let sight = watched.sight(handle, (now, unix_ms), counts);
            for change in watched.board.look(now, &sight) {
                let event = watched.event(change, now);
                watched.tell(key, change, event);
                self.ringing.send_modify(|ringing| note(ringing, key, change, (unix_ms, event)));
            }
        }
    }

    /// Tells drivers which ranks never spoke while others do: each sees its own rank alone.
    fn compare_ranks(&mut self, now: Tick, fleet: &BTreeMap<ReplicaKey, ReplicaHandle>) {
        let sight = |handle: &ReplicaHandle| {
            let next_seq = handle.status.borrow().cursor.next_seq;
            handle.signs.received_at() > Tick(0) || next_seq.0 > 0
        };
        let sights: Vec<_> = fleet
            .values()
            .map(|it| RankSight { replica: &it.replica, has_delivered: sight(it) })
            .collect();
        let missing = self.ranks.look(now, self.rank_missing_ms, &sights);
        self.told_missing.retain(|key, _| fleet.contains_key(key));
        for (key, missing) in missing {
            let told = self.told_missing.get(&key).copied().unwrap_or(false);
            let Some(handle) = fleet.get(&key).filter(|_| told != missing) else { continue };
            // A driver that has too much to do hears of it at the next look.
            if handle.ask(Command::RankMissing(missing)).is_ok() {
                self.told_missing.insert(key, missing);
            }
        }
    }
}

impl Watched {
    fn new(key: &ReplicaKey, handle: &ReplicaHandle, hits: Hits) -> Watched {
        let gauge_of = |alarm: Alarm| {
            let labels = vec![
                Label::new(label::REPLICA, key.to_string()),
                Label::new(label::ALARM, alarm.as_str()),
            ];
            let gauge = gauge!(name::ALARM, labels);
            gauge.set(0.0);
            (alarm, gauge)
        };
        Watched {
            board: Board::default(),
            gauges: Alarm::ALL.map(gauge_of).into(),
            signs: Arc::clone(&handle.signs),
            undecodable: News::default(),
            competing: News::default(),
            log_reset: News::default(),
            retention_passed: News::default(),
            tail_loss: News::default(),
            sink_missed: News::default(),
            fan_out_missed: News::default(),
            snapshot_failed: News::default(),
            rival_at: None,
            signal: Signal::default(),
            hits,
            engine_hits: EngineHits::register(key),
        }
    }

    fn sight(
        &mut self,
        handle: &ReplicaHandle,
        time: (Tick, u64),
        (of_model, of_replica): (Counts, OfReplica),
    ) -> Sight {
        let (now, unix_ms) = time;
        let since = |at: Tick| now.0.saturating_sub(at.0);
        let (snapshots_failed, snapshot_failures) = handle.signs.snapshot_failure_counts();
        self.rival_at = has_rival(handle).then(|| self.rival_at.unwrap_or(now));
        let status = handle.status.borrow();
        self.engine_hits.set(handle.signs.engine_tokens());
        let standing = (status.cursor.epoch.0, status.trust.device.as_str());
        let (signal, request_count) = self.signal.look(
            now,
            &SignalCounts {
                blocks: status.blocks.values().sum(),
                of_model,
                of_replica,
                served: handle.signs.request_count(),
                told: handle.signs.told_request_count(),
                facts: handle.signs.fact_counts(),
                skew_ms: handle.signs.take_skew(),
                drain: handle.signs.drain_counts(),
            },
        );
        handle.signs.set_drain_sight(signal.drain);
        Sight {
            signal,
            is_settled: status.trust.device > Trust::None,
            hits: self.hits.look(now, handle.signs.hit_counts(), standing),
            reason: status.reason,
            reason_ms: unix_ms.saturating_sub(status.since_ms),
            silent_ms: since(handle.signs.received_at()),
            request_count,
            undecodable_ms: self.undecodable.ago(handle.signs.undecodable_count(), now),
            competing_ms: self.competing.ago(handle.signs.competing_count(), now),
            device_copies: status.device_copies,
            pool_blocks: handle.signs.pool_blocks(),
            replay_unusable: handle.signs.replay_unusable(),
            rival_ms: self.rival_at.map(since),
            log_reset_ms: self.log_reset.ago(handle.signs.log_reset_count(), now),
            retention_passed_ms: self
                .retention_passed
                .ago(handle.signs.retention_passed_count(), now),
            tail_loss_ms: self.tail_loss.ago(handle.signs.tail_loss_count(), now),
            sink_missed_ms: self.sink_missed.ago(handle.signs.sink_missed_count(), now),
            fan_out_missed_ms: self.fan_out_missed.ago(handle.signs.fan_out_missed_count(), now),
            snapshot_failures,
            snapshot_failed_ms: self.snapshot_failed.ago(snapshots_failed, now),
            hashes_wrong: status.hashes.map_or(0, |hashes| hashes.wrong),
        }
    }

    /// What changed before a hit rate fell, of the alarm that says so.
    fn event(&self, change: Change, now: Tick) -> Option<HitEvent> {
        let rang = change == Change::Raised(Alarm::HitRateBelowBaseline);
        self.hits.event(now).filter(|_| rang)
    }

    fn tell(&self, key: &ReplicaKey, change: Change, event: Option<HitEvent>) {
        let (Change::Raised(alarm) | Change::Cleared(alarm)) = change;
        let raised = matches!(change, Change::Raised(_));
        let about = alarm.about();
        if raised {
            warn!(
                replica = %key, alarm = about.name, severity = about.severity.as_str(),
                meaning = about.meaning, first_look = about.first_look,
                event = event.map(HitEvent::as_str), cause = self.signs.cause_of(alarm),
                "alarm raised"
            );
        } else {
            info!(replica = %key, alarm = about.name, "alarm cleared");
        }
        if let Some((_, gauge)) = self.gauges.iter().find(|(of, _)| *of == alarm) {
            gauge.set(if raised { 1.0 } else { 0.0 });
        }
    }
}

/// Whether another bridge speaks for the replica by other settings, or for a later life.
fn has_rival(handle: &ReplicaHandle) -> bool {
    let name = handle.life.as_ref().map(|life| life.name());
    matches!(name, Some(Name::Silent(Silence::Closed | Silence::SettingsDiffer)))
}

fn note(
    ringing: &mut Ringing,
    key: &ReplicaKey,
    change: Change,
    (since_ms, event): (u64, Option<HitEvent>),
) {
    let of = ringing.entry(key.clone()).or_default();
    match change {
        Change::Raised(alarm) => of.push(Raised { alarm, since_ms, event }),
        Change::Cleared(alarm) => of.retain(|raised| raised.alarm != alarm),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
