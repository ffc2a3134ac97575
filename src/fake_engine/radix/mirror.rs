//! PURE. What a draft of the publisher remembers for `snapshot-v1`, and the messages it answers.
//!
//! Faithful in what it forgets, too: hashes with their parents, no tier, no copies. A removal of
//! one medium, or of one of two pages under a hash, takes the hash away although it is still there.

use std::collections::BTreeMap;

use kvbridge_schemas::{BlockHash, Event, Parent};

use super::encode::RadixEncoder;
use crate::fake_engine::msgpack::Pack;

/// Records in one chunk, as the engine has them.
const CHUNK_RECORDS: usize = 4_096;

/// What is asked.
pub const REQUEST: &[u8] = b"snapshot-v1";

/// One message: kind and payload.
pub type Message = (&'static str, Vec<u8>);

/// The cut that a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut<'a> {
    /// The publisher's life.
    pub life: &'a str,
    /// The rank.
    pub rank: u32,
    /// Seq of the batch that marks it in the live stream.
    pub barrier: u64,
    /// Name of that mark.
    pub barrier_id: &'a str,
}

/// Hashes and their parents.
#[derive(Clone, Debug, Default)]
pub struct Mirror(BTreeMap<BlockHash, Option<BlockHash>>);

impl Mirror {
    /// Remembers what a batch says.
    pub fn hear(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Stored(stored) => {
                    let mut parent = match &stored.parent {
                        Parent::Block(hash) => Some(RadixEncoder::wire_hash(hash)),
                        Parent::Root | Parent::Unknown => None,
                    };
                    for block in &stored.blocks {
                        let hash = RadixEncoder::wire_hash(&block.hash);
                        self.0.insert(hash.clone(), parent.replace(hash));
                    }
                }
                Event::Removed(removed) => {
                    for hash in &removed.hashes {
                        self.0.remove(&RadixEncoder::wire_hash(hash));
                    }
                }
                Event::Cleared(_) => self.0.clear(),
                Event::Reset(_) | Event::Moved(_) | Event::Trust(_) | Event::Unknown(_) => (),
            }
        }
    }

    /// The whole answer. `short` leaves the last record out, as a full pipe does.
    pub fn answer(&self, cut: &Cut<'_>, short: bool) -> Vec<Message> {
        let records: Vec<_> = self.0.iter().collect();
        let mut header = Pack::default();
        header.array(7);
        header.uint(1);
        header.text(cut.life);
        header.uint(u64::from(cut.rank));
        header.uint(cut.barrier + 1);
        header.uint(cut.barrier);
        header.text(cut.barrier_id);
        header.uint(u64::try_from(records.len()).unwrap_or(u64::MAX));
        let sent = records.len().saturating_sub(usize::from(short));
        let chunks = records[..sent].chunks(CHUNK_RECORDS).map(|chunk| ("chunk", chunk_of(chunk)));
        let end = ("end", Vec::new());
        std::iter::once(("header", header.0)).chain(chunks).chain([end]).collect()
    }
}

fn chunk_of(records: &[(&BlockHash, &Option<BlockHash>)]) -> Vec<u8> {
    let mut pack = Pack::default();
    pack.array(records.len());
    for (hash, parent) in records {
        pack.array(2);
        match parent {
            Some(parent) => RadixEncoder::hash(&mut pack, parent),
            None => pack.nil(),
        }
        pack.array(1);
        RadixEncoder::hash(&mut pack, hash);
    }
    pack.0
}
