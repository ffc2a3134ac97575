//! The task that drains one engine for all its ranks, one request at a time.
//!
//! It belongs to no reader: whoever stops reading ends it only behind the answer that is under way,
//! because what the engine has handed over is nowhere else. When a rank's queue is full the task
//! waits, and the engine keeps its events; its own bound then is what drops them, as a gap.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kvbridge_adapters_api::{Counters, Delivery, SourceEvent};
use kvbridge_schemas::{Seq, SnapshotRecord};
use reqwest::{Client, Method, Response, StatusCode};
use tokio::{
    sync::{
        Notify,
        mpsc::{self, error::TrySendError},
    },
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tracing::{debug, info, warn};

use crate::{
    Instance, ServerInfo, Step, Strange,
    answer::{PollError, read},
    fault::Fault,
    limits::{BODY_BYTES_MAX, SERVER_INFO_BYTES_MAX},
    rank_source::RankSource,
    seat::{Seat, Seats},
};

/// An answer without events that takes less was not waited for: the engine's wait is 2 s.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How an engine is asked.
#[derive(Clone, Debug)]
pub struct PollSettings {
    /// `http://host:port`.
    pub url: String,
    /// What asks. An answer takes 2 s at least and without bound under load: its read timeout
    /// must be generous, because an answer that is not waited for is lost.
    pub client: Client,
    /// The least time from one request to the next: an engine serves nobody else while it looks
    /// for events.
    pub pace: Duration,
    /// The first wait after a failure; it doubles.
    pub retry_first: Duration,
    /// It stops growing here.
    pub retry_max: Duration,
    /// The first rank's number.
    pub first_rank: u32,
    /// How many ranks follow.
    pub rank_count: u32,
    /// Whether this reader is the one that may ask.
    pub permit: Permit,
}

/// The right to ask an engine, looked at before each request.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Permit {
    /// A right that comes and goes.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Permit {
        Permit(Some(Arc::new(holds)))
    }

    /// Whether it holds now. Where nobody else could ask it always does.
    fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds())
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({})", self.holds())
    }
}

/// One engine's drain. Begins when all its ranks are read.
#[derive(Debug)]
pub struct Poller {
    settings: PollSettings,
    seats: Mutex<Seats>,
    /// Told when the drain is wound up: it may wait for its next turn.
    wound_up: Notify,
    /// Another drain of the same engine, while it may not have ended.
    before: Mutex<Option<Arc<Poller>>>,
    drain: tokio::sync::Mutex<Drain>,
}

#[derive(Debug)]
struct Drain {
    instance: Instance,
    is_attached: bool,
    method: Method,
    /// Failures in a row.
    failed: u32,
    strange: u64,
    /// A reader's queue was full: the engine waited, and may have dropped what it kept.
    is_held_up: bool,
}

impl Poller {
    /// A drain that nobody reads yet. It begins when the one before it has ended.
    pub fn after(settings: PollSettings, before: Option<Arc<Poller>>) -> Arc<Poller> {
        let instance = Instance::new(settings.first_rank, settings.rank_count);
        let count = usize::try_from(settings.rank_count.max(1)).unwrap_or(1);
        let seats = Seats::new(count);
        let drain = Drain {
            instance,
            is_attached: false,
            method: Method::POST,
            failed: 0,
            strange: 0,
            is_held_up: false,
        };
        Arc::new(Poller {
            settings,
            seats: Mutex::new(seats),
            wound_up: Notify::new(),
            before: Mutex::new(before),
            drain: tokio::sync::Mutex::new(drain),
        })
    }

    /// Whether it is of these ranks.
    pub fn reads(&self, first_rank: u32, rank_count: u32) -> bool {
        (self.settings.first_rank, self.settings.rank_count) == (first_rank, rank_count)
    }

    /// Reads one of its ranks, which nobody else reads. The engine is asked once all have begun.
    pub fn open(
        self: &Arc<Self>,
        rank: u32,
        queue_count_max: usize,
        counters: Arc<Counters>,
    ) -> RankSource {
        let (queue, events) = mpsc::channel(queue_count_max.max(1));
        let at = rank.checked_sub(self.settings.first_rank).and_then(|at| usize::try_from(at).ok());
        let mut seats = self.seats();
        if let Some(seat) = at.and_then(|at| seats.of.get_mut(at)) {
            *seat =
                Some(Seat { queue, counters, is_attached: false, has_begun: false, kept: None });
        }
        drop(seats);
        RankSource { events, at, poller: Arc::clone(self) }
    }

    pub(crate) fn begin(self: &Arc<Self>, at: usize, kept: Option<(Seq, Vec<SnapshotRecord>)>) {
        if self.seats().begin(at, kept) {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    /// Ends behind the answer that is under way; then every rank's source ends.
    pub(crate) fn wind_up(&self) {
        let mut seats = self.seats();
        seats.is_winding_up = true;
        if !seats.is_running {
            seats.clear();
        }
        drop(seats);
        self.wound_up.notify_one();
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rank_count(&self) -> usize {
        self.seats().of.len()
    }

    async fn run(self: Arc<Self>) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            // Held as long as it runs.
            drop(before.drain.lock().await);
        }
        let mut drain = self.drain.lock().await;
        for (at, next_seq, records) in self.seats().take_kept() {
            drain.instance.resume(at, next_seq, records);
        }
        // Others may have read it since.
        drain.instance.held_up();
        let mut pace = interval(self.settings.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.waits(pace.tick()).await {
            if !self.settings.permit.holds() {
                drain.instance.held_up();
                continue;
            }
            match self.look(&mut drain).await {
                Ok(()) => drain.failed = 0,
                Err(error) => {
                    self.failed(&mut drain, &error).await;
                    self.waits(sleep(self.wait(drain.failed))).await;
                }
            }
        }
    }

    /// Waits for a turn; `false` = there is none any more. A request is never cut short by it.
    async fn waits<T>(&self, turn: impl Future<Output = T>) -> bool {
        if self.seats().ends() {
            return false;
        }
        tokio::select! {
            _ = turn => (),
            () = self.wound_up.notified() => (),
        }
        !self.seats().ends()
    }

    /// One request, and what came of it.
    async fn look(&self, drain: &mut Drain) -> Result<(), PollError> {
        if !drain.is_attached {
            drain.instance.told(&self.info().await?);
        }
        self.count(|counters| {
            Counters::one(&counters.asked);
        });
        let begun = Instant::now();
        let answer = self.ask(drain).await;
        self.count(|counters| {
            Counters::one(&counters.answered);
        });
        let body = answer?;
        let events = Instance::split(&body)?;
        if events.is_empty() {
            let at_once = begun.elapsed() < AT_ONCE;
            self.count(|counters| {
                Counters::one(&counters.answers_empty);
                Counters::add(&counters.answers_at_once, usize::from(at_once));
            });
        }
        if !std::mem::replace(&mut drain.is_attached, true) {
            info!(url = %self.settings.url, "the engine's events can be read");
        }
        self.attach(drain).await;
        self.count(|counters| Counters::add(&counters.bytes, body.len()));
        for text in events {
            let restarts = drain.instance.is_restart(text);
            if restarts && let Ok(info) = self.info().await {
                drain.instance.told(&info);
            }
            let Step { told, faults, strange } = drain.instance.step(text);
            for fault in faults {
                debug!(url = %self.settings.url, %fault, "event lost");
                if matches!(fault, Fault::LongBlock { .. }) {
                    self.count(|counters| {
                        Counters::one(&counters.blocks_too_long);
                    });
                }
            }
            if let Some(strange) = strange {
                self.note(drain, strange);
            }
            for (at, delivery) in told {
                drain.is_held_up |= self.tell(at, delivery).await;
            }
        }
        self.competing(drain).await;
        Ok(())
    }

    /// Says at the end of an answer if it shows another reader.
    async fn competing(&self, drain: &mut Drain) {
        if drain.instance.ends_answer() {
            self.count(|counters| {
                Counters::one(&counters.competing);
            });
            for at in 0..self.rank_count() {
                self.tell(at, SourceEvent::Competing.into()).await;
            }
        }
        if std::mem::take(&mut drain.is_held_up) {
            drain.instance.held_up();
        }
    }

    /// What the engine says of itself; a server without such a path tells nothing.
    async fn info(&self) -> Result<ServerInfo, PollError> {
        let response = self.send(Method::GET, "server_info").await?;
        if response.status() != StatusCode::OK {
            return Ok(ServerInfo::default());
        }
        let body = read(response, SERVER_INFO_BYTES_MAX).await?;
        Ok(ServerInfo::read(&body))
    }

    /// Takes what the engine has. A branch has it under another method.
    async fn ask(&self, drain: &mut Drain) -> Result<Vec<u8>, PollError> {
        let mut response = self.send(drain.method.clone(), "kv_cache_events").await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let is_post = drain.method == Method::POST;
            drain.method = if is_post { Method::GET } else { Method::POST };
            response = self.send(drain.method.clone(), "kv_cache_events").await?;
        }
        if response.status() != StatusCode::OK {
            return Err(PollError::Status(response.status()));
        }
        read(response, BODY_BYTES_MAX).await
    }

    async fn send(&self, method: Method, path: &str) -> Result<Response, PollError> {
        let url = format!("{}/{path}", self.settings.url.trim_end_matches('/'));
        Ok(self.settings.client.request(method, url).send().await?)
    }

    /// The engine may have handed over what never came, so every view starts over.
    async fn failed(&self, drain: &mut Drain, error: &PollError) {
        let is_away = matches!(error, PollError::Request(error) if error.is_connect());
        self.count(|counters| {
            let of = match error {
                _ if is_away => &counters.connect_failed,
                PollError::Body(_) => &counters.malformed,
                PollError::Request(_) | PollError::Status(_) => &counters.receive_failed,
            };
            Counters::one(of);
            let absent = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            if matches!(error, PollError::Status(status) if absent.contains(status)) {
                Counters::one(&counters.answers_absent);
            }
        });
        if drain.failed == 0 {
            warn!(url = %self.settings.url, %error, "the engine's events cannot be read");
        }
        drain.failed = drain.failed.saturating_add(1);
        if std::mem::take(&mut drain.is_attached) {
            drain.instance.lost();
        } else {
            // A kept view is not read yet, and a jump shows whether it still can be.
            drain.instance.held_up();
        }
        for at in 0..self.rank_count() {
            if self.seats().leave(at) {
                self.tell(at, SourceEvent::Detached.into()).await;
            }
        }
    }

    /// Says it to every reader that was not told.
    async fn attach(&self, drain: &mut Drain) {
        for at in 0..self.rank_count() {
            if self.seats().enter(at) {
                drain.instance.attached(at);
                self.tell(at, SourceEvent::Attached.into()).await;
            }
        }
    }

    /// Whether that had to wait.
    async fn tell(&self, at: usize, delivery: Delivery) -> bool {
        let Some(seat) = self.seats().of.get(at).cloned().flatten() else { return false };
        if matches!(delivery, Delivery::Event(SourceEvent::Live(_))) {
            Counters::one(&seat.counters.frames);
        }
        let Err(TrySendError::Full(delivery)) = seat.queue.try_send(delivery) else {
            // A reader that has gone misses nothing.
            return false;
        };
        drop(seat.queue.send(delivery).await);
        true
    }

    fn note(&self, drain: &mut Drain, strange: Strange) {
        drain.strange += 1;
        self.count(|counters| {
            Counters::one(&counters.malformed);
        });
        // The 1st, 2nd, 4th, ...: a rank too many stays one.
        if drain.strange.is_power_of_two() {
            let count = drain.strange;
            warn!(url = %self.settings.url, reason = %strange, count, "event of no place");
        }
    }

    fn count(&self, each: impl Fn(&Counters)) {
        self.seats().of.iter().flatten().for_each(|seat| each(&seat.counters));
    }

    fn wait(&self, failed: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failed.saturating_sub(1).min(16));
        self.settings.retry_first.saturating_mul(factor).min(self.settings.retry_max)
    }
}
