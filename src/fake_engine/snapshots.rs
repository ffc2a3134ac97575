//! SHELL. The snapshot socket of a draft of the publisher, and the names that topics then carry.

use bytes::Bytes;
use kvbridge_adapters_zmq::{Addressed, Outlet, OutletAddress, ServeError};
use kvbridge_schemas::Event;
use tracing::debug;

use super::{
    next::take_one,
    radix::mirror::{Cut, Message, Mirror, REQUEST},
    rng::mix,
};
use crate::clock::Clock;

/// One rank's answers to those who ask what it holds.
pub(super) struct Snapshots {
    outlet: Outlet,
    mirror: Mirror,
    rank: u32,
    /// The topic that the operator chose.
    topic: String,
    life: String,
    barrier_count: u64,
    pub(super) busy: u64,
    pub(super) short: u64,
    pub(super) garbled: u64,
}

impl Snapshots {
    pub(super) async fn bind(
        requests: String,
        topic: &str,
        rank: u32,
    ) -> Result<Snapshots, ServeError> {
        // An outlet has a publisher too; nobody is told of this one.
        let live = "tcp://127.0.0.1:0".to_owned();
        let outlet = Outlet::bind(OutletAddress { live, requests }).await?;
        let mut snapshots = Snapshots {
            outlet,
            mirror: Mirror::default(),
            rank,
            topic: topic.to_owned(),
            life: String::new(),
            barrier_count: 0,
            busy: 0,
            short: 0,
            garbled: 0,
        };
        snapshots.new_life(0);
        Ok(snapshots)
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.outlet.address.requests
    }

    /// Another publisher: what it remembers and its name are new. Returns its topic.
    pub(super) fn new_life(&mut self, life: u64) -> String {
        self.mirror = Mirror::default();
        let (started, rank) = (Clock::unix_ms(), u64::from(self.rank));
        self.life = format!("{:016x}{:016x}", mix(started ^ life << 48), mix(started ^ rank << 32));
        format!("{}\0sgl-kv-epoch={}", self.topic, self.life)
    }

    pub(super) fn hear(&mut self, events: &[Event]) {
        self.mirror.hear(events);
    }

    /// What the next barrier is called, and how its topic ends.
    fn barrier_id(&mut self) -> String {
        self.barrier_count += 1;
        format!("{:x}", mix(self.barrier_count))
    }

    /// The next request; waits for ever where there is no such socket. Cancel-safe.
    pub(super) async fn asked(this: &mut Option<Snapshots>) -> Option<Addressed> {
        match this {
            Some(snapshots) => snapshots.outlet.requests.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Answers. `publish` puts an empty batch into the live stream, under a topic that ends with
    /// this mark, and says its seq.
    pub(super) async fn answer(
        &mut self,
        asked: Addressed,
        publish: impl FnOnce(&str) -> Option<u64>,
    ) {
        let Addressed { peer, frames } = asked;
        let messages = self.messages(&frames, publish);
        for (kind, payload) in messages {
            let frames = vec![Bytes::new(), Bytes::from_static(kind.as_bytes()), payload.into()];
            if self.outlet.answers.send(Addressed { peer: peer.clone(), frames }).await.is_err() {
                return debug!("the snapshot socket is closed");
            }
        }
    }

    fn messages(
        &mut self,
        frames: &[Bytes],
        publish: impl FnOnce(&str) -> Option<u64>,
    ) -> Vec<Message> {
        let refused = |text: &str| vec![("error", text.as_bytes().to_vec())];
        match frames {
            [delimiter, request] if delimiter.is_empty() && request.as_ref() == REQUEST => (),
            _ => return refused("invalid snapshot-v1 request"),
        }
        if take_one(&mut self.busy) {
            return refused("snapshot provider busy");
        }
        let barrier_id = self.barrier_id();
        let Some(barrier) = publish(&format!("\0sgl-kv-snapshot={barrier_id}")) else {
            return refused("snapshot capture failed");
        };
        let cut = Cut { life: &self.life, rank: self.rank, barrier, barrier_id: &barrier_id };
        // One fault an answer.
        let short = take_one(&mut self.short);
        let mut messages = self.mirror.answer(&cut, short);
        if !short && take_one(&mut self.garbled) {
            messages.insert(1, ("chunk", vec![0xc1]));
        }
        messages
    }
}
