//! Sends one stream's messages in a window, in order, and again from the first one that failed.
//!
//! Each connection lives in a runtime of its own. When it is lost the runtime is dropped, and with
//! it whatever the client still held: left to itself the client would send those bytes after the
//! reconnect, ahead of the messages before them that were lost with the old socket, and the log
//! would be out of order by our making. A new connection begins with the oldest message that has no
//! ack; the server knows the ids it has.

use std::{
    collections::{VecDeque, hash_map::RandomState},
    future::{Future, IntoFuture},
    hash::{BuildHasher, Hasher},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use async_nats::{
    ConnectOptions, Event,
    jetstream::{
        Context,
        context::{PublishError, PublishErrorKind},
        message::PublishMessage,
        publish::PublishAck,
        stream::Config,
    },
};
use kvbridge_schemas::BusSeq;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    connect::{ConnectFailure, connect, jetstream, reason},
    desk::{Desk, DeskFailure, Lives},
    spool::{PAYLOAD_SAFE, Queued},
    streams::{self, StreamFailure},
};
use crate::{
    bus::{BusState, Standing, Stored},
    clock::Clock,
    config::{
        NatsConfig,
        limits::{BUS_FLUSH_DEADLINE, BUS_WINDOW},
    },
    shared_log::Window,
    telemetry::BusMetrics,
};

/// Failed acks in a row after which the connection itself is doubted.
const FAILURES_MAX: u32 = 5;

/// Longest wait where the server refuses us: a person must act, but nobody should have to restart.
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(10);

type Ack = Pin<Box<dyn Future<Output = Result<PublishAck, PublishError>> + Send>>;

/// One stream's publisher.
pub(super) struct Publisher {
    pub(super) config: NatsConfig,
    pub(super) bridge: Arc<str>,
    pub(super) lives: Lives,
    pub(super) wanted: Config,
    pub(super) queue: mpsc::Receiver<Queued>,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) metrics: Arc<BusMetrics>,
}

/// Why a session ended.
enum Ended {
    Stopped,
    Lost { state: BusState, detail: String },
}

/// What has no ack yet, with the connection's side of it.
pub(super) struct Pending {
    pub(super) window: Window<Queued>,
    /// Acks under way, for the first so many messages.
    acks: VecDeque<Ack>,
    failures: u32,
    /// Since when nothing reaches the server.
    pub(super) lost_at_ms: Option<u64>,
    /// The server takes this much in one message.
    payload_max: usize,
}

impl Pending {
    fn new() -> Pending {
        let window = Window::new(BUS_WINDOW);
        let (acks, failures, lost_at_ms, payload_max) = (VecDeque::new(), 0, None, 0);
        Pending { window, acks, failures, lost_at_ms, payload_max }
    }

    /// Whatever is under way counts as lost.
    fn go_back(&mut self) {
        self.acks.clear();
        self.window.failed();
    }
}

impl Publisher {
    /// Until stopped, and then until the spool is empty or its time is over.
    pub(super) fn run(mut self, stop: &CancellationToken) {
        let mut pending = Pending::new();
        let mut wait = self.config.reconnect.0;
        loop {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return error!(%error, "bus runtime"),
            };
            let ended = runtime.block_on(self.session(&mut pending, stop));
            pending.go_back();
            self.lives.set_away(true);
            pending.lost_at_ms.get_or_insert_with(Clock::steady_unix_ms);
            let Ended::Lost { state, detail } = ended else {
                runtime.shutdown_background();
                return self.report_rest(&pending);
            };
            if self.standing.borrow().state == BusState::Ready {
                wait = self.config.reconnect.0;
            }
            self.stand(state, detail);
            let longest = if state >= BusState::SettingsDiffer {
                REFUSED_WAIT_MAX
            } else {
                self.config.reconnect.1
            };
            let pause = wait.mul_f64(random_part());
            wait = (wait * 2).min(longest);
            runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => (),
                    () = tokio::time::sleep(pause) => (),
                }
            });
            runtime.shutdown_background();
            if stop.is_cancelled() {
                return self.report_rest(&pending);
            }
        }
    }

    async fn session(&mut self, pending: &mut Pending, stop: &CancellationToken) -> Ended {
        let lost = CancellationToken::new();
        let connected = tokio::select! {
            () = self.idle_stop(pending.window.is_empty(), stop) => return Ended::Stopped,
            connected = self.open(&lost, pending) => connected,
        };
        let context = match connected {
            Ok(context) => context,
            Err(ended) => return ended,
        };
        if let Err(detail) = self.take_stored(&context, pending).await {
            return Ended::Lost { state: BusState::NoStream, detail };
        }
        pending.failures = 0;
        self.stand(BusState::Ready, String::new());
        let (lives, bridge) = (self.lives.clone(), Arc::clone(&self.bridge));
        let at = (&lives, &*bridge, self.wanted.name.as_str());
        let desk = match Desk::open(context.clone(), &self.config, at).await {
            Ok(desk) => desk,
            Err(DeskFailure { state, detail }) => return Ended::Lost { state, detail },
        };
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(BUS_FLUSH_DEADLINE).await;
        };
        tokio::select! {
            () = stopping => Ended::Stopped,
            () = lost.cancelled() => Ended::Lost {
                state: BusState::Away,
                detail: "the connection was lost".to_owned(),
            },
            DeskFailure { state, detail } = Box::pin(desk.work()) => Ended::Lost { state, detail },
            ended = self.publish(&context, pending, stop) => ended,
        }
    }

    /// The end, once nothing waits or its time is over.
    async fn idle_stop(&self, sent_all: bool, stop: &CancellationToken) {
        stop.cancelled().await;
        if !sent_all || !self.queue.is_empty() || self.lives.wait() {
            tokio::time::sleep(BUS_FLUSH_DEADLINE).await;
        }
    }

    async fn open(
        &self,
        lost: &CancellationToken,
        pending: &mut Pending,
    ) -> Result<Context, Ended> {
        let seen = lost.clone();
        let options = ConnectOptions::new().event_callback(move |event| {
            let seen = seen.clone();
            async move {
                match event {
                    Event::Disconnected | Event::Closed | Event::LameDuckMode => seen.cancel(),
                    Event::ServerError(error) => warn!(%error, "bus server error"),
                    _ => (),
                }
            }
        });
        let client = connect(&self.config, options).await.map_err(|failure: ConnectFailure| {
            Ended::Lost { state: failure.state(), detail: failure.to_string() }
        })?;
        pending.payload_max = client.server_info().max_payload;
        if pending.payload_max < PAYLOAD_SAFE {
            let detail = format!(
                "max_payload of the server is {}, need {PAYLOAD_SAFE}",
                pending.payload_max
            );
            return Err(Ended::Lost { state: BusState::SettingsDiffer, detail });
        }
        let context = jetstream(client);
        let info = streams::ensure(&context, &self.wanted).await.map_err(|failure| {
            let state = match failure {
                StreamFailure::NoJetStream(_) => BusState::NoJetStream,
                StreamFailure::Differs { .. } => BusState::SettingsDiffer,
                StreamFailure::Refused { .. } => BusState::NoStream,
            };
            Ended::Lost { state, detail: failure.to_string() }
        })?;
        info!(
            stream = %self.wanted.name, created = %info.created,
            messages = info.state.messages, "bus stream"
        );
        Ok(context)
    }

    async fn publish(
        &mut self,
        context: &Context,
        pending: &mut Pending,
        stop: &CancellationToken,
    ) -> Ended {
        loop {
            while !pending.window.is_full()
                && let Ok(queued) = self.queue.try_recv()
            {
                pending.window.push(queued);
            }
            if let Err(error) = self.send(context, pending).await {
                return Ended::Lost { state: BusState::Away, detail: error };
            }
            self.metrics.waiting(pending.window.len().saturating_add(self.queue.len()));
            let room = !pending.window.is_full() && pending.window.is_open();
            if let Some(ack) = pending.acks.front_mut() {
                tokio::select! {
                    acked = ack => {
                        pending.acks.pop_front();
                        match acked {
                            Ok(ack) => self.acked(pending, &ack),
                            Err(error) => if let Some(ended) = self.failed(pending, &error).await {
                                return ended;
                            },
                        }
                    }
                    Some(queued) = self.queue.recv(), if room => {
                        pending.window.push(queued);
                    }
                }
                continue;
            }
            if stop.is_cancelled() && self.queue.is_empty() && !self.lives.wait() {
                return Ended::Stopped;
            }
            tokio::select! {
                queued = self.queue.recv() => match queued {
                    Some(queued) => pending.window.push(queued),
                    None => return Ended::Stopped,
                },
                // Drivers stop on the same signal and may still write.
                () = stop.cancelled() => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Sends what is not under way, as far as the window allows.
    async fn send(&self, context: &Context, pending: &mut Pending) -> Result<(), String> {
        while let Some(queued) = pending.window.to_send() {
            if queued.payload.len() + 1024 > pending.payload_max {
                self.shrink(queued);
            }
            let message = PublishMessage::build()
                .headers(queued.headers.clone())
                .payload(queued.payload.clone());
            match context.send_publish(queued.subject.clone(), message).await {
                Ok(ack) => {
                    pending.acks.push_back(ack.into_future());
                    pending.window.sent();
                }
                Err(error) => return Err(reason(&error)),
            }
        }
        Ok(())
    }

    fn shrink(&self, queued: &mut Queued) {
        let Some(substitute) = queued.substitute.take() else { return };
        error!(
            stream = %self.wanted.name, bytes = queued.payload.len(),
            "batch is larger than max_payload of the server: readers get a reset in its place"
        );
        self.metrics.too_large.increment(1);
        (queued.headers, queued.payload) = *substitute;
    }

    fn acked(&self, pending: &mut Pending, ack: &PublishAck) {
        pending.failures = 0;
        let Some(queued) = pending.window.acked() else { return };
        self.metrics.published.increment(1);
        if ack.duplicate {
            self.metrics.duplicates.increment(1);
        }
        if let Some(life) = &queued.life {
            life.acked(queued.behind, BusSeq(ack.sequence));
        }
        self.metrics.lag(Clock::unix_ms().saturating_sub(queued.at_ms));
        if let Some(receipt) = queued.receipt {
            let stored = Stored { bus_seq: Some(BusSeq(ack.sequence)), duplicate: ack.duplicate };
            // Whoever published may not want to know.
            receipt.send(stored).ok();
        }
        if self.standing.borrow().state != BusState::Ready {
            self.stand(BusState::Ready, String::new());
        }
    }

    /// All later acks are as doubtful as this one: everything is sent again, the first alone.
    async fn failed(&self, pending: &mut Pending, error: &PublishError) -> Option<Ended> {
        self.metrics.retries.increment(u64::try_from(pending.acks.len()).unwrap_or(0) + 1);
        pending.go_back();
        pending.failures += 1;
        let (state, detail) = match error.kind() {
            PublishErrorKind::StreamNotFound => {
                (BusState::NoStream, "the stream does not answer".to_owned())
            }
            PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                (BusState::Away, "no acknowledgement came".to_owned())
            }
            _ => (BusState::NotStoring, reason(error)),
        };
        if pending.failures >= FAILURES_MAX {
            return Some(Ended::Lost { state, detail });
        }
        self.stand(state, detail);
        // 100 ms, 200, 400, 800: an election takes seconds, a full disk longer.
        let pause = Duration::from_millis(50 << pending.failures.min(5));
        tokio::time::sleep(pause.mul_f64(0.5 + random_part() / 2.0)).await;
        None
    }

    /// One log line for each change.
    fn stand(&self, state: BusState, detail: String) {
        let before = self.standing.borrow().state;
        if before == state {
            return;
        }
        self.metrics.state(state);
        let stream = &self.wanted.name;
        match state {
            BusState::Ready => info!(%stream, state = %state, "bus"),
            BusState::Connecting | BusState::NoStream | BusState::NotStoring | BusState::Away => {
                warn!(%stream, state = %state, detail, "bus");
            }
            BusState::SettingsDiffer
            | BusState::NoJetStream
            | BusState::TlsRefused
            | BusState::CredentialsRefused => error!(%stream, state = %state, detail, "bus"),
        }
        self.standing.send_replace(Standing { state, detail });
    }

    fn report_rest(&mut self, pending: &Pending) {
        let rest = pending.window.len().saturating_add(self.queue.len());
        if rest > 0 {
            warn!(stream = %self.wanted.name, messages = rest, "stopped before they were stored");
        }
    }
}

/// In 0..1. Jitter needs no generator: a fresh `RandomState` has other keys each time.
pub(super) fn random_part() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}
