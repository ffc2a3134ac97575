//! PURE. Which engine is modelled: one with a pool of paged copies, or one with a tree.

use std::fmt;

use kvbridge_schemas::{BlockHash, Event, Tier};

use super::{
    cache::{Cache, CacheSettings, Full, Resident},
    drained::DrainedRelease,
    encode::{Encoder, Stray},
    native::{NativeEncoder, SinkKind},
    radix::{Radix, RadixSettings, encode::RadixEncoder, release::RadixRelease},
    release::Release,
    sequence::Sequence,
};

/// The engine and its release. Their numbers do not overlap: paged ones begin at 0.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Pool, copies, groups, host tier.
    Paged(Release),
    /// A tree of pages.
    Radix(RadixRelease),
    /// A tree of pages whose events are taken and not published.
    Drained(DrainedRelease),
    /// The same engine where it publishes them.
    Native(SinkKind),
}

impl Model {
    /// Replies to replay requests carry the topic.
    pub fn replay_topic(self) -> bool {
        match self {
            Model::Paged(release) => release.replay_topic(),
            Model::Radix(release) => release.replay_topic(),
            Model::Drained(_) => false,
            Model::Native(_) => true,
        }
    }

    /// Events name groups.
    pub fn group(self) -> bool {
        match self {
            Model::Paged(release) => release.group(),
            Model::Radix(_) | Model::Drained(_) | Model::Native(_) => false,
        }
    }

    /// Clears are published at once, the one at start included; else with the next step.
    pub fn clears_at_once(self) -> bool {
        matches!(self, Model::Radix(_) | Model::Drained(_))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Model::Paged(release) => release.fmt(f),
            Model::Radix(release) => release.fmt(f),
            Model::Drained(release) => release.fmt(f),
            Model::Native(sink) => sink.fmt(f),
        }
    }
}

/// How a publisher writes.
#[derive(Clone, Copy, Debug)]
pub enum Writer {
    /// As [`Encoder`] does.
    Paged(Encoder),
    /// As [`RadixEncoder`] does.
    Radix(RadixEncoder),
    /// As [`NativeEncoder`] does.
    Native(NativeEncoder),
}

impl Writer {
    /// One batch. `ts` in unix seconds.
    pub fn batch(&self, ts: f64, events: &[Event], strays: &[Stray], rank: Option<u32>) -> Vec<u8> {
        match self {
            Writer::Paged(encoder) => encoder.batch(ts, events, strays, rank),
            Writer::Radix(encoder) => encoder.batch(ts, events, strays, rank),
            Writer::Native(encoder) => encoder.batch(ts, events, strays, rank),
        }
    }

    /// A hash of the model as it goes out in an event of `tier`.
    pub fn wire_hash(&self, hash: &BlockHash, tier: &Tier) -> BlockHash {
        match self {
            Writer::Paged(encoder) => encoder.wire_hash(hash, tier),
            Writer::Radix(_) => RadixEncoder::wire_hash(hash),
            Writer::Native(_) => NativeEncoder::wire_hash(hash),
        }
    }
}

/// A replica's cache.
#[derive(Clone, Debug)]
pub enum Store {
    /// Pool, copies, groups, host tier.
    Paged(Cache),
    /// A tree of pages.
    Radix(Radix),
}

impl From<CacheSettings> for Store {
    fn from(settings: CacheSettings) -> Store {
        Store::Paged(Cache::new(settings))
    }
}

impl From<RadixSettings> for Store {
    fn from(settings: RadixSettings) -> Store {
        Store::Radix(Radix::new(settings))
    }
}

/// Each of them does for its kind what its name says there.
impl Store {
    pub(super) fn block_size(&self) -> u32 {
        match self {
            Store::Paged(cache) => cache.settings().block_size,
            Store::Radix(radix) => radix.settings().page_size,
        }
    }

    pub(super) fn fits(&self, len: usize) -> bool {
        match self {
            Store::Paged(cache) => cache.fits(len),
            Store::Radix(radix) => radix.fits(len),
        }
    }

    pub(super) fn admit(&mut self, sequence: &mut Sequence) -> Result<usize, Full> {
        match self {
            Store::Paged(cache) => cache.admit(sequence),
            Store::Radix(radix) => radix.admit(sequence),
        }
    }

    pub(super) fn grow(&mut self, sequence: &mut Sequence) -> Result<(), Full> {
        match self {
            Store::Paged(cache) => cache.grow(sequence),
            Store::Radix(radix) => radix.grow(sequence),
        }
    }

    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        match self {
            Store::Paged(cache) => cache.release(sequence),
            Store::Radix(radix) => radix.release(sequence),
        }
    }

    pub(super) fn clear(&mut self) -> bool {
        match self {
            Store::Paged(cache) => cache.clear(),
            Store::Radix(radix) => radix.clear(),
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        match self {
            Store::Paged(cache) => cache.take_events(),
            Store::Radix(radix) => radix.take_events(),
        }
    }

    pub(super) fn has_events(&self) -> bool {
        match self {
            Store::Paged(cache) => cache.has_events(),
            Store::Radix(radix) => radix.has_events(),
        }
    }

    pub(super) fn truth(&self) -> Vec<Resident> {
        match self {
            Store::Paged(cache) => cache.truth(),
            Store::Radix(radix) => radix.truth(),
        }
    }

    pub(super) fn used_count(&self) -> usize {
        match self {
            Store::Paged(cache) => cache.used_count(),
            Store::Radix(radix) => radix.used_count(),
        }
    }
}
