//! Batches of a life that has no name on the bus yet.

use std::{collections::VecDeque, sync::Arc};

use kvbridge_schemas::{Envelope, Epoch, Event, Seq};

use crate::config::limits::{BUS_UNNAMED_BATCHES, BUS_UNNAMED_BYTES};

/// The newest ones; when there is no room the oldest goes: a log that is somebody's has it, and a
/// new one covers it by a reset.
#[derive(Default)]
pub(super) struct Unnamed {
    batches: VecDeque<Arc<Envelope>>,
    bytes: usize,
}

impl Unnamed {
    /// Keeps a batch; returns how many had to go.
    pub(super) fn hold(&mut self, envelope: Arc<Envelope>) -> u64 {
        if self.batches.back().is_some_and(|last| last.epoch != envelope.epoch) {
            // That life ended without a name: nobody was told of it, and nobody needs to be.
            self.clear();
        }
        self.bytes += weight(&envelope);
        self.batches.push_back(envelope);
        let mut left_out = 0;
        while self.batches.len() > 1 && self.is_over() {
            self.pop();
            left_out += 1;
        }
        left_out
    }

    fn is_over(&self) -> bool {
        self.batches.len() > BUS_UNNAMED_BATCHES || self.bytes > BUS_UNNAMED_BYTES
    }

    /// Whether the next one may push one out.
    pub(super) fn is_full(&self) -> bool {
        self.batches.len() >= BUS_UNNAMED_BATCHES || self.bytes >= BUS_UNNAMED_BYTES
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Envelope>> {
        let envelope = self.batches.pop_front()?;
        self.bytes = self.bytes.saturating_sub(weight(&envelope));
        Some(envelope)
    }

    pub(super) fn clear(&mut self) {
        *self = Unnamed::default();
    }

    /// Drops what is of another life.
    pub(super) fn retain(&mut self, life: Epoch) {
        if self.batches.front().is_some_and(|first| first.epoch != life) {
            self.clear();
        }
    }

    /// The life and seq of the oldest.
    pub(super) fn first(&self) -> Option<(Epoch, Seq)> {
        self.batches.front().map(|envelope| (envelope.epoch, envelope.seq))
    }
}

/// About what an envelope takes in memory: lists are what can be large in it.
fn weight(envelope: &Envelope) -> usize {
    let of = |event: &Event| match event {
        Event::Stored(stored) => {
            stored.tokens.0.len() * 4 + (stored.blocks.len() + stored.extra.len()) * 64
        }
        Event::Removed(removed) => removed.hashes.len() * 48,
        Event::Cleared(_)
        | Event::Reset(_)
        | Event::Moved(_)
        | Event::Trust(_)
        | Event::Unknown(_) => 64,
    };
    512 + envelope.events.iter().map(of).sum::<usize>()
}
