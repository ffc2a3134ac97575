//! Writes what drivers queued to the journal, group by group, and then publishes it.
//!
//! One sync of the disk for each group: while one is under way the next one gathers, so the busier
//! the bridge the larger the groups.

use std::{sync::Arc, thread, time::Duration};

use bytes::Bytes;
use kvbridge_adapters_zmq::Multipart;
use kvbridge_schemas::{Cursor, EngineKind, ReplicaKey, Seq};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    journal::{Journal, Message},
    published::Published,
};
use crate::{
    bus::{BusState, Standing, Stored, spool::Share},
    clock::Clock,
    config::limits::{BUS_FLUSH_DEADLINE, ZMQ_GROUP_MAX},
    pipeline::Fleet,
    telemetry::BusMetrics,
};

/// Waits after the journal took nothing: 100 ms, doubling up to 2 s. A full disk lasts.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Drivers stop on the same signal and may still write: an empty queue is looked at once more.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// A message that waits.
pub(super) struct Queued {
    pub(super) message: Message,
    pub(super) subject: Bytes,
    pub(super) engine: EngineKind,
    pub(super) receipt: Option<oneshot::Sender<Stored>>,
    /// When it was queued, unix milliseconds.
    pub(super) at_ms: u64,
    pub(super) _share: Share,
}

/// The thread behind the journal.
pub(super) struct Publisher {
    pub(super) queue: mpsc::Receiver<Queued>,
    pub(super) journal: Arc<Journal>,
    pub(super) messages: mpsc::Sender<Multipart>,
    pub(super) published: Arc<Published>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) metrics: Arc<BusMetrics>,
}

impl Publisher {
    /// Starts the thread. What is returned resolves when it has ended.
    pub(super) fn spawn(self, stop: CancellationToken) -> std::io::Result<oneshot::Receiver<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (ended_tx, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("bus journal".to_owned()).spawn(move || {
            runtime.block_on(self.run(stop));
            drop(ended_tx);
        })?;
        Ok(ended)
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut group = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = self.queue.recv_many(&mut group, ZMQ_GROUP_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.metrics.waiting(count.saturating_add(self.queue.len()));
                }
                () = stop.cancelled() => return self.drain(group).await,
            }
            if !self.write(&group, &stop).await {
                return self.report_rest(group.len());
            }
            self.publish(&mut group).await;
        }
    }

    /// Writes what is still queued, for a while.
    async fn drain(&mut self, mut group: Vec<Queued>) {
        let stop = CancellationToken::new();
        let drained = async {
            loop {
                let more = tokio::time::timeout(
                    LAST_LOOK,
                    self.queue.recv_many(&mut group, ZMQ_GROUP_MAX),
                );
                if more.await.unwrap_or(0) == 0 {
                    return;
                }
                self.write(&group, &stop).await;
                self.publish(&mut group).await;
            }
        };
        if tokio::time::timeout(BUS_FLUSH_DEADLINE, drained).await.is_err() {
            self.report_rest(0);
        }
    }

    /// Until the journal has the group; false = stopped before.
    async fn write(&self, group: &[Queued], stop: &CancellationToken) -> bool {
        let messages: Vec<Message> = group.iter().map(|queued| queued.message.clone()).collect();
        let mut wait = RETRY_FIRST;
        loop {
            // Blocks, and this thread has nothing else to do.
            // Asked once for each message that is dropped: nothing of the fleet is copied.
            let is_active = |key: &str| {
                ReplicaKey::parse(key).is_ok_and(|replica| self.fleet.has(&replica.key()))
            };
            match self.journal.append(&messages, &is_active) {
                Ok(()) => {
                    self.stand(BusState::Ready, String::new());
                    return true;
                }
                Err(error) => self.stand(BusState::NotStoring, error.to_string()),
            }
            self.metrics.retries.increment(u64::try_from(messages.len()).unwrap_or(0));
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(wait) => (),
            }
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn publish(&self, group: &mut Vec<Queued>) {
        for queued in group.drain(..) {
            let Queued { message, subject, engine, receipt, at_ms, _share } = queued;
            let frames = vec![
                subject,
                Bytes::copy_from_slice(&message.seq.0.to_be_bytes()),
                Bytes::copy_from_slice(&message.epoch.0.to_be_bytes()),
                Bytes::clone(&message.payload),
            ];
            if self.messages.send(frames).await.is_err() {
                // The sockets are gone, and the program ends; readers ask the next process.
                return;
            }
            // Behind the message in the same queue: a heartbeat never tells of what is not sent.
            let next_seq = Seq(message.seq.0.saturating_add(u64::from(message.span)));
            let cursor = Cursor { epoch: message.epoch, next_seq };
            self.published.moved(&message.key, engine, cursor);
            self.metrics.published.increment(1);
            self.metrics.lag(Clock::unix_ms().saturating_sub(at_ms));
            if let Some(receipt) = receipt {
                // Whoever published may not want to know.
                receipt.send(Stored { bus_seq: None, duplicate: false }).ok();
            }
        }
        self.metrics.waiting(self.queue.len());
    }

    /// One log line for each change.
    fn stand(&self, state: BusState, detail: String) {
        if self.standing.borrow().state == state {
            return;
        }
        self.metrics.state(state);
        if state == BusState::Ready {
            info!("the journal takes messages again");
        } else {
            error!(detail, "the journal takes nothing: messages wait in the spool");
        }
        self.standing.send_replace(Standing { state, detail });
    }

    fn report_rest(&self, taken: usize) {
        let rest = taken.saturating_add(self.queue.len());
        if rest > 0 {
            warn!(messages = rest, "stopped before they were stored");
        }
    }
}
