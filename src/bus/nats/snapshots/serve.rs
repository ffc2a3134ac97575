//! Requests for fresh views: those of a few replicas at a time, and whoever else asks is told to
//! come again.

use std::collections::{BTreeMap, BTreeSet};

use futures::{
    StreamExt,
    stream::{FuturesUnordered, SelectAll},
};
use kvbridge_schemas::{ReplicaKey, subject};
use tokio::time::MissedTickBehavior;

use super::keep::{LOOK_EVERY, Round};
use crate::{
    config::limits::{
        BUS_SNAPSHOT_ASKERS, BUS_SNAPSHOT_IN_TIME_MS, BUS_SNAPSHOTS_AT_ONCE, BUS_SNAPSHOTS_SLOW,
    },
    pipeline::ReplicaHandle,
    recovery::Tick,
    shared_log::parse_wish,
};

/// The name under which bridges share requests: each is answered once.
const QUEUE_GROUP: &str = "kvbridge";

impl Round<'_> {
    /// Answers for ever.
    pub(super) async fn serve(&self) {
        let mut asked = BTreeSet::new();
        let mut requests = SelectAll::new();
        let mut served = Served::default();
        let mut answers = FuturesUnordered::new();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(request) = requests.next() => {
                    let request: async_nats::Message = request;
                    let replica = subject::parse_snapshot(&request.subject).ok();
                    let found =
                        replica.and_then(|it| self.keep.fleet.replica(it.key().as_str()));
                    match found.filter(|(_, handle)| handle.is_bridged) {
                        None => self.reply(&request, "refused").await,
                        Some((key, _)) if !served.begin(&key, self.keep.clock.now()) => {
                            self.keep.metrics.busy.increment(1);
                            self.reply(&request, "busy").await;
                        }
                        Some((key, handle)) => answers.push(self.answer(request, key, handle)),
                    }
                }
                Some(key) = answers.next(), if !answers.is_empty() => served.end(&key),
                _ = looks.tick() => {
                    for key in self.keep.keys().filter(|key| !asked.contains(key)).collect::<Vec<_>>() {
                        let (subject, group) = (subject::snapshot(&key), QUEUE_GROUP.to_owned());
                        let subscribed = self.session.client.queue_subscribe(subject, group).await;
                        if let Ok(subscribed) = subscribed {
                            asked.insert(key);
                            requests.push(subscribed);
                        }
                    }
                }
            }
        }
    }

    /// With where a view is, or with a word why there is none.
    async fn answer(
        &self,
        request: async_nats::Message,
        key: ReplicaKey,
        handle: ReplicaHandle,
    ) -> ReplicaKey {
        self.keep.metrics.asked.increment(1);
        let pointer = self.fresh((&key, &handle), parse_wish(&request.payload)).await;
        let text = pointer.map_or_else(|| "refused".to_owned(), |pointer| pointer.to_string());
        self.reply(&request, &text).await;
        key
    }

    async fn reply(&self, request: &async_nats::Message, text: &str) {
        let Some(reply) = request.reply.clone() else { return };
        // Whoever asked has a deadline of its own.
        drop(self.session.client.publish(reply, text.to_owned().into()).await);
    }
}

/// The replicas whose views are asked for now.
#[derive(Debug, Default)]
struct Served {
    /// How many ask, and since when it is stored for them.
    replicas: BTreeMap<ReplicaKey, (usize, Tick)>,
}

impl Served {
    /// Whether one more is answered. All that ask for one replica wait for one view; one that takes
    /// longer than anybody waits holds nobody else up, unless there are several.
    fn begin(&mut self, key: &ReplicaKey, now: Tick) -> bool {
        let askers: usize = self.replicas.values().map(|(count, _)| count).sum();
        if askers >= BUS_SNAPSHOT_ASKERS {
            return false;
        }
        if let Some((count, _)) = self.replicas.get_mut(key) {
            *count += 1;
            return true;
        }
        let since = self.replicas.values().map(|(_, since)| *since);
        let in_time = since.filter(|since| now < since.plus(BUS_SNAPSHOT_IN_TIME_MS)).count();
        let slow = self.replicas.len() - in_time;
        let room = in_time < BUS_SNAPSHOTS_AT_ONCE && slow <= BUS_SNAPSHOTS_SLOW;
        if room {
            self.replicas.insert(key.clone(), (1, now));
        }
        room
    }

    /// One is answered.
    fn end(&mut self, key: &ReplicaKey) {
        if let Some((count, _)) = self.replicas.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.replicas.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::Replica;

    use super::*;

    fn key(rank: u32) -> ReplicaKey {
        Replica { model: "m".into(), instance: "i".into(), rank }.key()
    }

    #[test]
    fn two_replicas_at_a_time_and_a_slow_one_holds_nobody_up() {
        let (mut served, start) = (Served::default(), Tick(7));
        assert!(served.begin(&key(0), start) && served.begin(&key(1), start));
        assert!(!served.begin(&key(2), start), "both places are taken");
        assert!(served.begin(&key(0), start), "who asks for the same waits with it");
        served.end(&key(0));
        assert!(!served.begin(&key(2), start), "one still waits");
        served.end(&key(0));
        assert!(served.begin(&key(2), start));
        // Both are slow now: two others have their places, and no more than that.
        let later = start.plus(BUS_SNAPSHOT_IN_TIME_MS);
        assert!(served.begin(&key(3), later) && served.begin(&key(4), later));
        assert!(!served.begin(&key(5), later));
        let latest = later.plus(BUS_SNAPSHOT_IN_TIME_MS);
        assert!(!served.begin(&key(5), latest), "four that are slow are too many");
        served.end(&key(1));
        served.end(&key(2));
        assert!(served.begin(&key(5), latest));
    }

    #[test]
    fn those_who_wait_are_counted() {
        let mut served = Served::default();
        assert!((0..BUS_SNAPSHOT_ASKERS).all(|_| served.begin(&key(0), Tick(0))));
        assert!(!served.begin(&key(0), Tick(0)));
        served.end(&key(0));
        assert!(served.begin(&key(0), Tick(0)));
    }
}
