//! Reads streams: one ordered consumer for each, fanned out to the replicas in it.
//!
//! - `follow`: the live path. It makes its consumer anew from the last message it handed over; left
//!   to itself the client's own takes a quarter of a minute after a reconnect.
//! - `log`: how far a stream was read, and who is told of a break.
//! - `inbox`: the bounded queue of one replica.
//! - `source`: one replica's log as a [`Source`]: reorder window, requests, answers.
//! - `replay`: old messages of one subject; `locate`: where to begin without memory of them.
//! - `past`: the same for a bridge that writes the log, and reads nothing else of it.
//! - `fetch`: a stored snapshot as an answer.

mod fetch;
mod follow;
mod inbox;
mod locate;
mod log;
mod message;
mod past;
mod replay;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kvbridge_adapters_api::{Removal, Source};
use kvbridge_schemas::Replica;
use tokio::sync::{Semaphore, mpsc};

use self::{log::Log, source::LogSource};
use super::{session::Sessions, streams::Plan};
use crate::{
    bus::{Found, VouchWatch},
    clock::Clock,
    config::{NatsConfig, limits::BUS_REQUESTS},
    pipeline::Signs,
};

pub(super) use follow::{created, ends, run};
pub(super) use locate::{Handle, Located, locate};
pub use message::Unreadable;
pub(super) use message::{end_of, envelope_of, place_of};
pub(super) use past::LogPast;
pub(super) use source::WINDOW;

/// What all streams, replicas and requests of the reading side share.
pub(super) struct Reader {
    pub(super) config: NatsConfig,
    pub(super) plan: Plan,
    pub(super) sessions: Sessions,
    clock: Clock,
    pub(super) vouches: VouchWatch,
    logs: Mutex<BTreeMap<String, Arc<Log>>>,
    found: mpsc::Sender<Found>,
    /// Subjects that were told of.
    known: Mutex<BTreeSet<String>>,
    /// Replays and snapshots that are read at a time.
    requests: Arc<Semaphore>,
}

impl Reader {
    pub(super) fn new(
        config: &NatsConfig,
        sessions: Sessions,
        clock: Clock,
        found: mpsc::Sender<Found>,
    ) -> Reader {
        Reader {
            config: config.clone(),
            plan: Plan::new(&config.streams),
            sessions,
            vouches: VouchWatch::new(clock, config.streams.heartbeat.ttl),
            clock,
            logs: Mutex::default(),
            found,
            known: Mutex::default(),
            requests: Arc::new(Semaphore::new(BUS_REQUESTS)),
        }
    }

    /// The log of that stream, new if it was not known.
    fn log(&self, name: &str) -> Arc<Log> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = logs.entry(name.to_owned()).or_insert_with(|| Arc::new(Log::new(name)));
        Arc::clone(log)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One replica's log as a source. What was stored before is asked for, not waited for.
    pub(super) fn source(
        self: &Arc<Self>,
        replica: &Replica,
        removal: Removal,
        signs: Arc<Signs>,
    ) -> Box<dyn Source> {
        let log = self.log(&self.plan.name_of(replica));
        Box::new(LogSource::new(Arc::clone(self), log, (replica.clone(), signs), removal))
    }
}
