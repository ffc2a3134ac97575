//! SHELL. Consumers that ask for a replica's events as they would ask an engine that is drained:
//! one task follows what drivers tell, requests take what each consumer has not been told.
//!
//! What a consumer is told is decided in [`sink_line`](crate::sink_line).

mod task;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kvbridge_schemas::{Replica, ReplicaKey};

use crate::{
    clock::Clock,
    config::{KvEventsConfig, limits},
    pipeline::{Fleet, Tasks},
    recovery::Tick,
    sink_line::{Fan, FanAnswer, FanRefusal, FanSettings},
    telemetry::FanMetrics,
};

/// Replicas by key, each with its consumers.
pub struct FanOut {
    settings: FanSettings,
    fans: Mutex<BTreeMap<ReplicaKey, Seat>>,
}

/// One replica.
struct Seat {
    replica: Arc<Replica>,
    fan: Fan,
    metrics: FanMetrics,
    /// What it knows may be old: only a whole view counts.
    wants_whole: bool,
}

impl Seat {
    /// Shows what was counted.
    fn count(&mut self) {
        self.metrics.show(self.fan.take_counts(), self.fan.consumer_count());
    }
}

impl FanOut {
    fn new(config: &KvEventsConfig) -> FanOut {
        let settings = FanSettings {
            tokens: config.tokens,
            grace_ms: crate::clock::millis(config.grace),
            steps_max: usize::try_from(config.step_count_max).unwrap_or(usize::MAX),
            consumers_max: usize::try_from(config.consumer_count_max).unwrap_or(usize::MAX),
            idle_ms: crate::clock::millis(config.idle),
            answer_blocks_max: limits::KV_EVENTS_ANSWER_BLOCKS,
        };
        FanOut { settings, fans: Mutex::default() }
    }

    /// Whether blocks are told with their tokens.
    pub fn has_tokens(&self) -> bool {
        self.settings.tokens
    }

    /// The replicas of that key: one, or all ranks of an instance whose key it is without a rank.
    pub fn members(&self, key: &str) -> Vec<(ReplicaKey, Arc<Replica>)> {
        let is_rank = |known: &str| {
            let rank = known.strip_prefix(key).and_then(|rest| rest.strip_prefix('.'));
            rank.is_some_and(|rank| rank.parse::<u32>().is_ok())
        };
        let fans = self.fans();
        let members = fans.iter().filter(|(known, _)| {
            let known = known.as_str();
            known == key || is_rank(known)
        });
        members.map(|(known, seat)| (known.clone(), Arc::clone(&seat.replica))).collect()
    }

    /// What a consumer has not been told of a replica. It is told once.
    pub fn take(
        &self,
        now: Tick,
        key: &ReplicaKey,
        consumer: &str,
    ) -> Result<FanAnswer, FanRefusal> {
        let mut fans = self.fans();
        let seat = fans.get_mut(key).ok_or(FanRefusal::Gone)?;
        let answer = seat.fan.take_events(now, consumer);
        seat.count();
        match &answer {
            Ok(answer) => seat.metrics.told(answer.events.len()),
            Err(_) => seat.metrics.refused.increment(1),
        }
        answer
    }

    /// The place of a replica, made if it has none.
    fn seat<'a>(
        &self,
        fans: &'a mut BTreeMap<ReplicaKey, Seat>,
        key: &ReplicaKey,
        replica: &Arc<Replica>,
        now: Tick,
    ) -> &'a mut Seat {
        fans.entry(key.clone()).or_insert_with(|| Seat {
            replica: Arc::clone(replica),
            fan: Fan::new(self.settings.clone(), now),
            metrics: FanMetrics::register(key),
            wants_whole: true,
        })
    }

    // A panic in it leaves one replica's steps half told; the others are what they were.
    fn fans(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, Seat>> {
        self.fans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the task. What drivers that are started later tell reaches it from the first step on.
pub fn start(
    config: Option<&KvEventsConfig>,
    fleet: &Arc<Fleet>,
    clock: Clock,
    tasks: &mut Tasks,
) -> Option<Arc<FanOut>> {
    let config = config?;
    let fan_out = Arc::new(FanOut::new(config));
    let queue = usize::try_from(config.queue_messages).unwrap_or(usize::MAX);
    let task = task::FanTask::new(Arc::clone(&fan_out), Arc::clone(fleet), clock, queue);
    tasks.spawn("fan-out", task.run(tasks.stop_token()));
    Some(fan_out)
}
