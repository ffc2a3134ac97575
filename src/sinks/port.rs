//! A publisher and an answering socket that readers connect to: of one line, or of all that a sink
//! tells.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use kvbridge_adapters_zmq::{Addressed, Multipart, Outlet, OutletAddress};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::answers::{Answer, Answering, Asked, Part, Sent};
use crate::{config::limits, recovery::Tick, sink_line::ReplayForm};

/// Both sockets, once they are bound.
pub(super) struct Port {
    sink: String,
    address: OutletAddress,
    outlet: Option<Outlet>,
    bind_at: Tick,
    said_taken: bool,
    answering: Answering,
    /// Those for whom there is no place yet.
    asked: VecDeque<Asked>,
    answers: JoinSet<Sent>,
    /// Those that wait for their next line.
    ready: Vec<Answer>,
    stalled_count: u64,
}

/// Something that a port says.
pub(super) enum PortSaid {
    /// A request for the past.
    Asked(Addressed),
    /// Answers can go on.
    Ready,
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
            asked: VecDeque::new(),
            answers: JoinSet::new(),
            ready: Vec::new(),
            stalled_count: 0,
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

    /// The next thing that is said. Cancel-safe.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<PortSaid> {
        while let Poll::Ready(Some(sent)) = self.answers.poll_join_next(context) {
            match sent {
                Ok(Sent::Line(answer)) => self.ready.push(answer),
                Ok(Sent::Stalled) => self.stalled_count += 1,
                Ok(Sent::Over) => (),
                // Its place is free, as that of any other which ended.
                Err(error) => debug!(sink = %self.sink, %error, "an answer broke off"),
            }
        }
        let can_begin = !self.asked.is_empty() && self.answering.is_free();
        if can_begin || !self.ready.is_empty() || self.stalled_count > 0 {
            return Poll::Ready(PortSaid::Ready);
        }
        match self.outlet.as_mut().map(|outlet| outlet.requests.poll_recv(context)) {
            Some(Poll::Ready(Some(request))) => Poll::Ready(PortSaid::Asked(request)),
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }

    /// Takes a request, unless too many wait or the peer has not read its last answer.
    pub(super) fn ask(&mut self, asked: Asked) -> bool {
        let is_known = self.asked.iter().any(|other| other.peer == asked.peer);
        let has_room = self.asked.len() < limits::SINK_ASKED_MAX;
        let taken = has_room && !is_known && !self.answering.is_busy(&asked.peer);
        if taken {
            self.asked.push_back(asked);
        }
        taken
    }

    /// The answers that go on now: their last line was sent, or they begin.
    pub(super) fn take_ready(&mut self) -> Vec<Answer> {
        let mut ready = std::mem::take(&mut self.ready);
        while let Some(asked) = self.asked.pop_front() {
            match self.answering.begin(asked) {
                Ok(answer) => ready.push(answer),
                Err(asked) => {
                    self.asked.push_front(asked);
                    break;
                }
            }
        }
        ready
    }

    /// How many answers ended because nobody took them, since the last call.
    pub(super) fn take_stalled(&mut self) -> u64 {
        std::mem::take(&mut self.stalled_count)
    }

    /// Answers one line more, or that there is no other, on a task of its own: a peer that reads
    /// slowly holds up nobody.
    pub(super) fn answer(&mut self, answer: Answer, part: Option<Part>, form: ReplayForm) {
        // Without a socket the peer is gone too.
        let Some(outlet) = &self.outlet else { return };
        let to = outlet.answers.clone();
        match part {
            Some(part) => self.answers.spawn(answer.line(part, form, to)),
            None => self.answers.spawn(answer.end(form, to)),
        };
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
