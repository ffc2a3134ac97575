//! One engine that is drained, and several bridges: whoever has the lease asks it, the others
//! follow the log, and one of them goes on when the holder is gone.
//!
//! Two tasks an engine: one renews, whatever the other waits for; the other brings the view along.
//! What changes replicas is done by whoever owns all tasks, when it is told of a [`Shift`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kvbridge_schemas::{Cursor, Replica};
use metrics::{Gauge, gauge};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Command, Fleet, ReplicaHandle, ViewCut};
use crate::{
    bus::{Lease, SharedBus},
    clock::{Clock, millis},
    config::{
        SourceConfig,
        limits::{
            BUS_FLUSH_DEADLINE, BUS_LEASE_CATCH_UP, BUS_LEASE_MARGIN, BUS_LEASE_RENEW,
            BUS_STATUS_TTL,
        },
    },
    recovery::Tick,
    shared_log::{LeaseTerms, Tenure},
    telemetry::{label, name},
};

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Looks in a row at which no replica of an engine is read here: then it was taken out of the
/// configuration. At one it may be opened anew.
const MISSING_MAX: u32 = 4;

/// Shifts that wait: two for each engine at most, because one is awaited before the next is told.
const SHIFTS: usize = 64;

/// What follows from a lease that came or went.
pub enum Shift {
    /// These are read from their engine now, each from its view on, if it has one.
    Hold(Vec<(SourceConfig, Option<Box<ViewCut>>)>, oneshot::Sender<()>),
    /// These are read from the log.
    Follow(Vec<SourceConfig>, oneshot::Sender<()>),
}

/// One engine that bridges take turns at.
struct Turn {
    /// Until when this process may ask it.
    until: Arc<AtomicU64>,
    /// Its replicas are read from it, and not from the log: as the last shift left them. The lease
    /// may be ahead of that.
    is_drained: bool,
}

/// The engines that bridges take turns at.
pub struct Leases {
    by_url: Mutex<BTreeMap<String, Turn>>,
    shifts: mpsc::Sender<Shift>,
    told: Mutex<Option<mpsc::Receiver<Shift>>>,
}

impl Default for Leases {
    fn default() -> Leases {
        let (shifts, told) = mpsc::channel(SHIFTS);
        Leases { by_url: Mutex::default(), shifts, told: Mutex::new(Some(told)) }
    }
}

impl Leases {
    /// What is to be done, for the one who does it.
    pub fn shifts(&self) -> Option<mpsc::Receiver<Shift>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Until when this process may ask the engine there; `None` = nobody else may.
    pub fn until(&self, url: &str) -> Option<Arc<AtomicU64>> {
        self.by_url().get(url).map(|turn| Arc::clone(&turn.until))
    }

    /// Whether the replicas of the engine there are read from it now; `None` = nobody else may ask
    /// it.
    pub(super) fn is_drained(&self, url: &str) -> Option<bool> {
        self.by_url().get(url).map(|turn| turn.is_drained)
    }

    /// From now on they are, or are not.
    pub(super) fn set_drained(&self, url: &str, is_drained: bool) {
        if let Some(turn) = self.by_url().get_mut(url) {
            turn.is_drained = is_drained;
        }
    }

    fn by_url(&self) -> MutexGuard<'_, BTreeMap<String, Turn>> {
        // Single inserts and removals: nothing in them can panic half-way.
        self.by_url.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks of one engine, if it has none yet. `sources` are all its ranks.
    pub(super) fn take_turns(
        self: &Arc<Self>,
        url: &str,
        sources: Vec<SourceConfig>,
        (bus, fleet, clock): (&SharedBus, &Arc<Fleet>, Clock),
    ) -> Option<(Renewal, Turns)> {
        let name = sources.first()?.replica.key();
        let (renew, look) = (bus.lease(name.as_str())?, bus.lease(name.as_str())?);
        let until = Arc::new(AtomicU64::new(0));
        let mut by_url = self.by_url();
        if by_url.contains_key(url) {
            return None;
        }
        by_url.insert(url.to_owned(), Turn { until: Arc::clone(&until), is_drained: false });
        let (holds_tx, holds) = watch::channel(false);
        let (stands_tx, stands) = watch::channel(());
        let renewal = Renewal {
            url: url.to_owned(),
            lease: renew,
            until: Arc::clone(&until),
            clock,
            gauges: sources.iter().map(held).collect(),
            holds: holds_tx,
            stands,
        };
        let turns = Turns {
            url: url.to_owned(),
            lease: look,
            sources,
            fleet: Arc::clone(fleet),
            bus: Arc::clone(bus),
            shifts: self.shifts.clone(),
            holds,
            leases: Arc::clone(self),
            _stands: stands_tx,
        };
        Some((renewal, turns))
    }
}

/// Keeps a lease, or tries to get it.
pub(super) struct Renewal {
    url: String,
    lease: Box<dyn Lease>,
    until: Arc<AtomicU64>,
    clock: Clock,
    gauges: Vec<Gauge>,
    holds: watch::Sender<bool>,
    /// Ends when nothing is left to be written under the lease.
    stands: watch::Receiver<()>,
}

impl Renewal {
    /// Until there is nothing more to be written under it.
    pub(super) async fn run(mut self, ended: CancellationToken) {
        let terms =
            LeaseTerms { kept_ms: millis(BUS_STATUS_TTL), margin_ms: millis(BUS_LEASE_MARGIN) };
        let mut tenure = Tenure::default();
        loop {
            let asked_at = self.clock.now();
            let grant = self.lease.ask(tenure.revision()).await;
            tenure.answered(asked_at, grant, terms);
            self.until.store(tenure.until().0, Ordering::Release);
            let holds = self.clock.now() < tenure.until();
            self.show(holds);
            tokio::select! {
                // Nothing is sent: it only ends.
                _ = self.stands.changed() => break,
                () = tokio::time::sleep(BUS_LEASE_RENEW) => (),
            }
        }
        self.until.store(0, Ordering::Release);
        self.show(false);
        if let Some(revision) = tenure.revision() {
            self.lease.release(revision).await;
        }
        ended.cancel();
    }

    fn show(&self, holds: bool) {
        if self.holds.send_replace(holds) != holds {
            info!(url = %self.url, holds, "lease on the engine");
        }
        self.gauges.iter().for_each(|gauge| gauge.set(if holds { 1.0 } else { 0.0 }));
    }
}

/// Brings the replicas of an engine to where the lease is.
pub(super) struct Turns {
    url: String,
    lease: Box<dyn Lease>,
    sources: Vec<SourceConfig>,
    fleet: Arc<Fleet>,
    bus: SharedBus,
    shifts: mpsc::Sender<Shift>,
    holds: watch::Receiver<bool>,
    leases: Arc<Leases>,
    /// The lease is renewed as long as this is here.
    _stands: watch::Sender<()>,
}

impl Turns {
    /// Until stopped, or until none of its replicas is read here any more, and then until all that
    /// was read under the lease is on the bus.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (mut held, mut missing) = (false, 0);
        while missing < MISSING_MAX {
            let was = held;
            let changed = tokio::select! {
                () = stop.cancelled() => break,
                changed = self.holds.wait_for(|holds| *holds != was) => match changed {
                    Ok(holds) => Some(*holds),
                    Err(_) => break,
                },
                () = tokio::time::sleep(BUS_LEASE_RENEW) => None,
            };
            let Some(holds) = changed else {
                let is_read = self.handles().iter().any(|(_, handle)| handle.is_some());
                missing = if is_read { 0 } else { missing + 1 };
                continue;
            };
            held = holds;
            let (done_tx, done) = oneshot::channel();
            let shift = if held {
                Shift::Hold(self.views().await, done_tx)
            } else {
                warn!(url = %self.url, "the lease is lost: what was read is published, no more is");
                self.halt().await;
                Shift::Follow(self.sources.clone(), done_tx)
            };
            tokio::select! {
                () = stop.cancelled() => break,
                sent = self.shifts.send(shift) => if sent.is_err() { break },
            }
            tokio::select! {
                () = stop.cancelled() => break,
                // Whoever does it may have ended instead.
                _ = done => (),
            }
        }
        self.flushed().await;
        self.leases.by_url().remove(&self.url);
        stop.cancel();
    }

    fn handles(&self) -> Vec<(SourceConfig, Option<ReplicaHandle>)> {
        let handle = |source: &SourceConfig| {
            let key = source.replica.key();
            self.fleet.replica(key.as_str()).map(|(_, handle)| handle)
        };
        self.sources.iter().map(|source| (source.clone(), handle(source))).collect()
    }

    /// The answer that is under way is waited for: nobody else will ever see it.
    async fn halt(&self) {
        for (_, handle) in self.handles() {
            if let Some(handle) = handle {
                handle.halt().await;
            }
        }
    }

    /// What the log tells of each replica, up to its end.
    async fn views(&mut self) -> Vec<(SourceConfig, Option<Box<ViewCut>>)> {
        let mut views = Vec::new();
        for (source, handle) in self.handles() {
            let Some(handle) = handle else {
                views.push((source, None));
                continue;
            };
            if let Some(end) = self.lease.end_of(&source.replica).await {
                reach(&handle, end, &source.replica).await;
            }
            views.push((source, cut(&handle).await.map(Box::new)));
        }
        views
    }

    /// Waits until nothing more is written by these replicas, and all of it is stored.
    async fn flushed(&self) {
        let flushed = async {
            for (_, handle) in self.handles() {
                if let Some(handle) = handle {
                    handle.commands.closed().await;
                }
            }
            while !self.bus.is_flushed() {
                tokio::time::sleep(LOOK).await;
            }
        };
        // After that somebody else waits for the lease in vain.
        drop(tokio::time::timeout(BUS_FLUSH_DEADLINE, flushed).await);
    }
}

/// Waits until the view has all that the log has; not for long.
async fn reach(handle: &ReplicaHandle, end: Cursor, replica: &Replica) {
    let mut status = handle.status.clone();
    let reached = status.wait_for(|status| status.cursor >= end);
    if tokio::time::timeout(BUS_LEASE_CATCH_UP, reached).await.is_err() {
        warn!(replica = %replica.key(), %end.epoch, %end.next_seq, "the log was not read to its end");
    }
}

async fn cut(handle: &ReplicaHandle) -> Option<ViewCut> {
    let (answer, cut) = oneshot::channel();
    handle.commands.send(Command::Checkpoint(answer)).await.ok()?;
    cut.await.ok().filter(|cut| cut.header.state.is_some())
}

fn held(source: &SourceConfig) -> Gauge {
    gauge!(name::LEASE_HELD, label::REPLICA => source.replica.key().to_string())
}

/// Whether that moment has not come.
pub(super) fn is_before(clock: Clock, until: &AtomicU64) -> bool {
    clock.now() < Tick(until.load(Ordering::Acquire))
}
