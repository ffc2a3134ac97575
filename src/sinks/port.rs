//! A publisher and an answering socket that readers connect to: of one line, or of all that a sink
//! tells.

use std::task::{Context, Poll};

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Multipart, Outlet, OutletAddress};
use tokio::{sync::mpsc, task::JoinSet};
use tracing::{info, warn};

use super::answers::{Answer, Answering, Part};
use crate::{config::limits, recovery::Tick, sink_line::ReplayForm};

/// Both sockets, once they are bound.
pub(super) struct Port {
    sink: String,
    address: OutletAddress,
    outlet: Option<Outlet>,
    bind_at: Tick,
    said_taken: bool,
    answering: Answering,
    answers: JoinSet<()>,
}

impl Port {
    pub(super) fn new(sink: &str, address: OutletAddress, now: Tick) -> Port {
        Port {
            sink: sink.to_owned(),
            address,
            outlet: None,
            bind_at: now,
            said_taken: false,
            answering: Answering::default(),
            answers: JoinSet::new(),
        }
    }

    /// When [`Port::due`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.outlet.is_none().then_some(self.bind_at)
    }

    /// Binds, if that is due. Whether something changed.
    pub(super) async fn due(&mut self, now: Tick) -> bool {
        if self.outlet.is_some() || self.bind_at > now {
            return false;
        }
        match Outlet::bind(self.address.clone()).await {
            Ok(outlet) => {
                let OutletAddress { live, requests } = &outlet.address;
                info!(sink = %self.sink, %live, replay = %requests, "a router can read here");
                (self.outlet, self.said_taken) = (Some(outlet), false);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.said_taken, true) {
                    let error = anyhow::Error::from(error);
                    warn!(sink = %self.sink, error = %format!("{error:#}"), "a sink cannot be bound, tried again");
                }
                let retry = limits::SINK_BIND_RETRY.as_millis();
                self.bind_at = now.plus(u64::try_from(retry).unwrap_or(u64::MAX));
            }
        }
        true
    }

    /// Publishes, if it is bound. What nobody is bound to send is in the journal for whoever asks.
    pub(super) async fn publish(&mut self, message: Multipart) {
        let Some(outlet) = &self.outlet else { return };
        if outlet.messages.send(message).await.is_err() {
            warn!(sink = %self.sink, "the sink's socket is gone");
            self.outlet = None;
        }
    }

    /// A request for the past. Cancel-safe.
    pub(super) fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<Addressed> {
        while let Poll::Ready(Some(_)) = self.answers.poll_join_next(context) {}
        match self.outlet.as_mut().map(|outlet| outlet.requests.poll_recv(context)) {
            Some(Poll::Ready(Some(request))) => Poll::Ready(request),
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }

    /// A place for an answer to that peer, if there is one.
    pub(super) fn place_for(&self, peer: &Bytes) -> Option<(Answer, mpsc::Sender<Addressed>)> {
        let outlet = self.outlet.as_ref()?;
        Some((self.answering.begin(peer)?, outlet.answers.clone()))
    }

    /// Answers on a task of its own: a peer that reads slowly holds up nobody.
    pub(super) fn answer(
        &mut self,
        (answer, to): (Answer, mpsc::Sender<Addressed>),
        parts: Vec<Part>,
        form: ReplayForm,
    ) {
        self.answers.spawn(answer.send(parts, form, to));
    }

    /// Where it is bound.
    pub(super) fn bound(&self) -> Option<&OutletAddress> {
        self.outlet.as_ref().map(|outlet| &outlet.address)
    }

    /// Publishes what it has and frees the ports.
    pub(super) async fn end(self) {
        if let Some(Outlet { messages, ended, stop, .. }) = self.outlet {
            drop(messages);
            drop(ended.await);
            drop(stop);
        }
    }
}
