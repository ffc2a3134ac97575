//! What bridges say of every replica, for whoever follows their logs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kvbridge_adapters_api::Upstream;
use kvbridge_schemas::{Cursor, Envelope, Event, ReplicaKey, Status};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, millis},
    shared_log::Vouches,
};

/// Between two looks at what has run out: a fraction of the time to live.
pub(super) const EXPIRE_EVERY: Duration = Duration::from_millis(200);

/// Shared by the task that hears heartbeats and the readers of logs.
#[derive(Clone)]
pub struct VouchWatch {
    clock: Clock,
    /// How long a heartbeat counts.
    ttl_ms: u64,
    replicas: Arc<Mutex<BTreeMap<ReplicaKey, Watched>>>,
}

struct Watched {
    vouches: Vouches,
    best: watch::Sender<Upstream>,
}

impl VouchWatch {
    /// Nobody is followed.
    pub fn new(clock: Clock, ttl: Duration) -> VouchWatch {
        let ttl_ms = millis(ttl);
        VouchWatch { clock, ttl_ms, replicas: Arc::default() }
    }

    /// Follows what is said of a replica. A reader passes it on as
    /// [`SourceEvent::Upstream`](kvbridge_adapters_api::SourceEvent::Upstream), first of all and
    /// whenever it changes.
    pub fn follow(&self, key: &ReplicaKey) -> watch::Receiver<Upstream> {
        let mut replicas = self.replicas();
        let watched = replicas.entry(key.clone()).or_insert_with(|| Watched {
            vouches: Vouches::new(self.ttl_ms),
            best: watch::channel(Upstream::Silent).0,
        });
        watched.best.subscribe()
    }

    /// Whoever calls follows it no more; the last one's word is forgotten with it.
    pub fn forget(&self, key: &ReplicaKey) {
        let mut replicas = self.replicas();
        if replicas.get(key).is_some_and(|watched| watched.best.receiver_count() <= 1) {
            replicas.remove(key);
        }
    }

    /// A heartbeat came. Of a replica that nobody follows it says nothing.
    pub fn heard(&self, status: &Status) {
        let now_ms = self.clock.now().0;
        if let Some(watched) = self.replicas().get_mut(&status.replica.key()) {
            watched.vouches.heard(now_ms, status);
            watched.tell(now_ms);
        }
    }

    /// A reader came to this envelope of the log; whether it said what a bridge believes, so that
    /// there is nothing to fold.
    pub fn said(&self, envelope: &Envelope) -> bool {
        let Some(Event::Trust(said)) = envelope.events.first() else { return false };
        let at = Cursor { epoch: envelope.epoch, next_seq: envelope.seq };
        let now_ms = self.clock.now().0;
        if let Some(watched) = self.replicas().get_mut(&envelope.replica.key()) {
            watched.vouches.said(now_ms, &said.bridge, at, said.trust);
            watched.tell(now_ms);
        }
        true
    }

    /// Takes back what has run out. To be called several times within the time to live.
    pub fn expire(&self) {
        let now_ms = self.clock.now().0;
        for watched in self.replicas().values_mut() {
            watched.tell(now_ms);
        }
    }

    /// Takes back what has run out until stopped, where nobody else does.
    pub(super) async fn keep_expiring(self, stop: CancellationToken) {
        let mut looks = tokio::time::interval(EXPIRE_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = looks.tick() => self.expire(),
            }
        }
    }

    /// Whoever spoke of a replica so far may have ended: what comes next may be somebody else's
    /// word, and the old one must not outlive it.
    pub(super) fn cut_off(&self, key: &ReplicaKey) {
        let now_ms = self.clock.now().0;
        if let Some(watched) = self.replicas().get_mut(key) {
            watched.vouches = Vouches::new(self.ttl_ms);
            watched.tell(now_ms);
        }
    }

    fn replicas(&self) -> MutexGuard<'_, BTreeMap<ReplicaKey, Watched>> {
        // Single changes: nothing in them can panic half-way.
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn tell(&mut self, now_ms: u64) {
        let best = self.vouches.best(now_ms);
        self.best.send_if_modified(|told| std::mem::replace(told, best) != best);
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{Epoch, Replica, Seq, Trust};

    use super::*;
    use crate::config::limits::BUS_STATUS_TTL;

    /// One with its clock behind may follow one with its clock ahead.
    #[test]
    fn a_word_does_not_outlive_the_connection_that_brought_it() {
        let vouches = VouchWatch::new(Clock::start(), BUS_STATUS_TTL);
        let replica = Replica { model: "m".into(), instance: "i".into(), rank: 0 };
        let status = |trust, at| Status {
            replica: replica.clone(),
            epoch: Epoch(1),
            next_seq: Seq(5),
            view_seq: None,
            bus_seq: None,
            trust,
            reason: "r".to_owned(),
            bridge: "b".to_owned(),
            at,
        };
        let said = |trust| {
            let cursor = Cursor { epoch: Epoch(1), next_seq: Seq(5) };
            Upstream::Vouched { cursor, trust, view: Seq(5) }
        };
        let upstream = vouches.follow(&replica.key());
        vouches.heard(&status(Trust::Exact, 100));
        assert_eq!(*upstream.borrow(), said(Trust::Exact));
        vouches.cut_off(&replica.key());
        assert_eq!(*upstream.borrow(), Upstream::Silent);
        vouches.heard(&status(Trust::LowerBound, 7));
        assert_eq!(*upstream.borrow(), said(Trust::LowerBound));
    }
}
