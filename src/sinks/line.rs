//! One replica's line with its sockets.

use std::task::{Context, Poll};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Outlet, OutletAddress};
use kvbridge_schemas::{Replica, ReplicaKey};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{
    LineStanding,
    answers::{Answering, live, start_of},
};
use crate::{
    clock::millis,
    config::{SinkConfig, limits},
    recovery::Tick,
    sink_line::{Line, LineSettings, Moment, Numbered, Numbers},
    telemetry::SinkLineMetrics,
};

/// A line that somebody can read.
pub(super) struct PublishedLine {
    pub(super) key: ReplicaKey,
    pub(super) line: Line,
    pub(super) metrics: SinkLineMetrics,
    /// What it knows may be old: only a whole view counts.
    pub(super) wants_whole: bool,
    sink: String,
    profile: crate::sink_line::Profile,
    preset: &'static str,
    topic: Bytes,
    address: OutletAddress,
    outlet: Option<Outlet>,
    bind_at: Tick,
    said_taken: bool,
    answering: Answering,
    answers: JoinSet<()>,
}

impl PublishedLine {
    pub(super) fn new(config: &SinkConfig, replica: &Replica, at: Moment) -> PublishedLine {
        let profile = config.preset.profile();
        let settings = LineSettings {
            profile,
            rank: replica.rank,
            tiers: config.tiers.clone(),
            block_size: config.block_size,
            grace_ms: millis(config.grace),
            heartbeat_ms: millis(config.heartbeat),
            journal_batches_max: limits::SINK_JOURNAL_BATCHES,
            journal_bytes_max: limits::SINK_JOURNAL_BYTES,
            renumber_after: limits::SINK_RENUMBER_AFTER,
        };
        let first_seq = match profile.numbers {
            Numbers::FromZero => 0,
            // Microseconds: no line has a million batches a second for long.
            Numbers::FromClock => at.unix_ms.saturating_mul(1000),
        };
        let topic = if profile.names_topic {
            format!("kv@{}@{}", replica.instance, replica.model)
        } else {
            String::new()
        };
        let key = replica.key();
        PublishedLine {
            line: Line::new(settings, first_seq, at.now),
            metrics: SinkLineMetrics::register(&config.name, &key),
            wants_whole: true,
            sink: config.name.clone(),
            profile,
            preset: config.preset.as_str(),
            topic: Bytes::from(topic),
            address: OutletAddress {
                live: for_rank(config.listen, replica.rank),
                requests: for_rank(config.replay, replica.rank),
            },
            outlet: None,
            bind_at: at.now,
            said_taken: false,
            answering: Answering::default(),
            answers: JoinSet::new(),
            key,
        }
    }

    /// When [`PublishedLine::due`] has something to do.
    pub(super) fn next_deadline(&self) -> Tick {
        let line = self.line.next_deadline();
        if self.outlet.is_none() { line.min(self.bind_at) } else { line }
    }

    /// Does what is due now.
    pub(super) async fn due(&mut self, at: Moment) {
        if self.outlet.is_none() && self.bind_at <= at.now {
            self.bind(at).await;
        }
        let mut out = Vec::new();
        self.line.due(at, &mut out);
        self.publish(out).await;
    }

    /// Publishes what the line says. It has its place in the journal already, so what nobody is
    /// bound to send is still there for whoever asks.
    pub(super) async fn publish(&mut self, batches: Vec<Numbered>) {
        for batch in batches {
            self.metrics.batches.increment(1);
            let Some(outlet) = &self.outlet else { continue };
            if outlet.messages.send(live(&self.topic, &batch)).await.is_err() {
                warn!(sink = %self.sink, replica = %self.key, "the sink's socket is gone");
                self.outlet = None;
            }
        }
    }

    /// A request for the line's past. Cancel-safe.
    pub(super) fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<Addressed> {
        while let Poll::Ready(Some(_)) = self.answers.poll_join_next(context) {}
        match self.outlet.as_mut().map(|outlet| outlet.requests.poll_recv(context)) {
            Some(Poll::Ready(Some(request))) => Poll::Ready(request),
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }

    /// Answers on a task of its own: a peer that reads slowly holds up nobody.
    pub(super) fn answer(&mut self, at: Moment, request: Addressed) {
        let (Some(start), Some(outlet)) = (start_of(&request.frames), &self.outlet) else {
            return self.metrics.malformed.increment(1);
        };
        let Some(answer) = self.answering.begin(&request.peer) else {
            return self.metrics.refused.increment(1);
        };
        let (origin, batches) = self.line.replay(at, start);
        self.metrics.answered(origin);
        let form = (self.profile.replay, self.topic.clone());
        self.answers.spawn(answer.send(batches, form, outlet.answers.clone()));
    }

    pub(super) fn standing(&self) -> LineStanding {
        let address = self.outlet.as_ref().map(|outlet| &outlet.address);
        LineStanding {
            preset: self.preset,
            live: address.map(|address| address.live.clone()),
            replay: address.map(|address| address.requests.clone()),
            next_seq: self.line.next_seq(),
            is_shown: self.line.is_shown(),
            shown_count: self.line.shown_count(),
            hidden_count: self.line.hidden_count(),
        }
    }

    /// Tells readers that nothing is there any more, and frees the ports.
    pub(super) async fn end(mut self, at: Moment) {
        let mut out = Vec::new();
        self.line.end(at, &mut out);
        self.publish(out).await;
        if let Some(Outlet { messages, ended, stop, .. }) = self.outlet {
            // The thread publishes what it has and ends.
            drop(messages);
            drop(ended.await);
            drop(stop);
        }
    }

    async fn bind(&mut self, at: Moment) {
        match Outlet::bind(self.address.clone()).await {
            Ok(outlet) => {
                let OutletAddress { live, requests } = &outlet.address;
                info!(
                    sink = %self.sink, replica = %self.key, %live, replay = %requests,
                    "a router can read here"
                );
                (self.outlet, self.said_taken) = (Some(outlet), false);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.said_taken, true) {
                    let error = anyhow::Error::from(error);
                    warn!(sink = %self.sink, replica = %self.key, error = %format!("{error:#}"), "a sink cannot be bound, tried again");
                }
                let retry = limits::SINK_BIND_RETRY.as_millis();
                self.bind_at = at.now.plus(u64::try_from(retry).unwrap_or(u64::MAX));
            }
        }
    }
}

/// Port 0 stays 0: each takes a free one. A port past the last one cannot be bound, and is said so.
fn for_rank(address: std::net::SocketAddr, rank: u32) -> String {
    let port = u32::from(address.port());
    let port = if port == 0 { 0 } else { port.saturating_add(rank) };
    format!(
        "tcp://{}",
        address.to_string().replace(&format!(":{}", address.port()), &format!(":{port}"))
    )
}
