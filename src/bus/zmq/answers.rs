//! Answers readers of the bus, and says each second how every replica stands.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Multipart};
use kvbridge_schemas::{Cursor, Epoch, ReplicaKey, Seq, Status, Trust, codec, subject};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::{
    journal::{Journal, Wanted},
    published::Published,
    snapshots::Snapshots,
    tickets::Tickets,
    wire::{Answer, Query, Refusal, Ticket, read_query, write_answer},
};
use crate::{
    clock::Clock,
    config::limits::{BUS_REPLICAS_MAX, ZMQ_PEERS_MAX, ZMQ_REQUESTS_MAX},
    pipeline::Fleet,
    telemetry::BusRequestMetrics,
};

/// How long a driver may take to cut its view, and the log to reach that place.
const CUT_DEADLINE: Duration = Duration::from_secs(2);

/// Between two looks whether the log has reached a place.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What answers are made of.
pub(super) struct Desk {
    pub(super) fleet: Arc<Fleet>,
    pub(super) journal: Arc<Journal>,
    pub(super) published: Arc<Published>,
    pub(super) bridge: Arc<str>,
    pub(super) live_port: u16,
    /// Time between two heartbeats.
    pub(super) beat: Duration,
    pub(super) metrics: BusRequestMetrics,
}

/// The task that answers.
pub(super) struct Answers {
    desk: Arc<Desk>,
    snapshots: Arc<Snapshots>,
    requests: mpsc::Receiver<Addressed>,
    answers: mpsc::Sender<Addressed>,
    messages: mpsc::Sender<Multipart>,
    tickets: Tickets,
    permits: Arc<Semaphore>,
    under_way: JoinSet<()>,
}

impl Answers {
    pub(super) fn new(
        desk: Desk,
        requests: mpsc::Receiver<Addressed>,
        answers: mpsc::Sender<Addressed>,
        messages: mpsc::Sender<Multipart>,
    ) -> Answers {
        Answers {
            desk: Arc::new(desk),
            snapshots: Arc::default(),
            requests,
            answers,
            messages,
            tickets: Tickets::new(ZMQ_PEERS_MAX),
            permits: Arc::new(Semaphore::new(ZMQ_REQUESTS_MAX)),
            under_way: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut beats = interval(self.desk.beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = beats.tick() => {
                    self.snapshots.beat(self.desk.beat);
                    self.heartbeat().await;
                }
                Some(request) = self.requests.recv() => self.take(request),
                // Only reaped: what they did is sent by themselves.
                Some(_) = self.under_way.join_next() => (),
                else => return,
            }
        }
    }

    fn take(&mut self, Addressed { peer, frames }: Addressed) {
        let (shown, query) = match read_query(frames) {
            Ok(read) => read,
            Err(error) => {
                self.desk.metrics.malformed.increment(1);
                // Whoever sends it may send much of it.
                return debug!(%error, "malformed request");
            }
        };
        let Some(ticket) = self.tickets.next(&peer, shown) else {
            self.desk.metrics.unread.increment(1);
            return debug!("request of a peer that has not read its last answer");
        };
        let answers = self.answers.clone();
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let busy = addressed(peer, ticket, &Answer::Refused(Refusal::Busy));
            self.desk.metrics.refused.increment(1);
            // Full as well: then the peer hears nothing and asks again.
            return drop(answers.try_send(busy));
        };
        let (desk, snapshots) = (Arc::clone(&self.desk), Arc::clone(&self.snapshots));
        self.under_way.spawn(async move {
            let answer = desk.answer(query, &snapshots).await;
            match answer {
                Answer::Refused(_) => desk.metrics.refused.increment(1),
                _ => desk.metrics.answered.increment(1),
            }
            // Closed = the program ends.
            drop(answers.send(addressed(peer, ticket, &answer)).await);
            drop(permit);
        });
    }

    async fn heartbeat(&self) {
        for (key, status) in self.desk.statuses() {
            let frames = vec![
                Bytes::from(subject::status(&key)),
                Bytes::copy_from_slice(&status.next_seq.0.to_be_bytes()),
                Bytes::copy_from_slice(&status.epoch.0.to_be_bytes()),
                Bytes::from(codec::encode_msgpack(&status)),
            ];
            if self.messages.send(frames).await.is_err() {
                return;
            }
        }
    }
}

fn addressed(peer: Bytes, ticket: Ticket, answer: &Answer) -> Addressed {
    Addressed { peer, frames: write_answer(ticket, answer) }
}

impl Desk {
    async fn answer(&self, query: Query, snapshots: &Snapshots) -> Answer {
        match query {
            Query::List => self.list(),
            Query::Replay { key, epoch, first, after } => {
                self.replay(key, epoch, first, after).await
            }
            Query::Snapshot { key } => self.snapshot(&key, snapshots).await,
            Query::Records { id } => snapshots.records(id).await,
        }
    }

    /// Replicas that have something to read.
    fn list(&self) -> Answer {
        let replicas = self.fleet.replicas().filter_map(|(key, _)| {
            let head = self.published.head(&key)?;
            Some((key, head.engine.as_str().to_owned()))
        });
        Answer::List {
            live_port: self.live_port,
            replicas: replicas.take(BUS_REPLICAS_MAX).collect(),
        }
    }

    async fn replay(&self, key: ReplicaKey, epoch: Epoch, first: Seq, after: u64) -> Answer {
        let journal = Arc::clone(&self.journal);
        let read = tokio::task::spawn_blocking(move || {
            journal.read(&Wanted { key: &key, epoch, first, after })
        });
        match read.await {
            Ok(Ok(answer)) => Answer::Replay(answer),
            Ok(Err(error)) => {
                self.metrics.unreadable.increment(1);
                error!(%error, "a replay cannot be read");
                Answer::Refused(Refusal::Unreadable)
            }
            Err(_) => Answer::Refused(Refusal::Unreadable),
        }
    }

    async fn snapshot(&self, key: &ReplicaKey, snapshots: &Snapshots) -> Answer {
        let Some((key, handle)) = self.fleet.replica(key.as_str()) else {
            return Answer::Refused(Refusal::UnknownReplica);
        };
        let Ok(Ok(cut)) = tokio::time::timeout(CUT_DEADLINE, handle.checkpoint()).await else {
            return Answer::Refused(Refusal::Busy);
        };
        let now = handle.status.borrow().clone();
        let Some(cut) = cut.as_believed(&now) else { return Answer::Refused(Refusal::Untrusted) };
        // A reader that installs it goes on with the log, which must reach that far.
        let at = Cursor { epoch: cut.header.epoch, next_seq: cut.header.resume_seq };
        let reached = tokio::time::timeout(CUT_DEADLINE, self.reached(&key, at));
        if reached.await.is_err() {
            return Answer::Refused(Refusal::Busy);
        }
        snapshots.begin(cut)
    }

    async fn reached(&self, key: &ReplicaKey, at: Cursor) {
        let there = |head: super::published::LogHead| {
            head.cursor.epoch == at.epoch && head.cursor.next_seq >= at.next_seq
        };
        while at.next_seq > Seq(0) && !self.published.head(key).is_some_and(there) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// How every replica stands that has a log, at the place that its log was published up to.
    fn statuses(&self) -> Vec<(ReplicaKey, Status)> {
        let at = Clock::steady_unix_ms();
        let statuses = self.fleet.replicas().filter_map(|(key, handle)| {
            let cursor = self.published.head(&key)?.cursor;
            let shown = handle.status.borrow();
            // A view of another life says nothing of what the log holds.
            let same_life = shown.cursor.epoch == cursor.epoch;
            let trust = if same_life { shown.trust.device } else { Trust::None };
            let ahead = same_life && shown.cursor.next_seq > cursor.next_seq;
            let status = Status {
                replica: (*handle.replica).clone(),
                epoch: cursor.epoch,
                next_seq: cursor.next_seq,
                view_seq: ahead.then_some(shown.cursor.next_seq),
                bus_seq: None,
                trust,
                reason: shown.reason.to_owned(),
                bridge: self.bridge.to_string(),
                at,
            };
            drop(shown);
            Some((key, status))
        });
        statuses.collect()
    }
}
