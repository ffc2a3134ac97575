//! PURE. An engine that publishes nothing: its events wait in a bounded buffer until somebody takes
//! them, and the oldest go when it is full.
//!
//! Two cache managers. The older one numbers blocks with 64 bits and knows one group; the newer one
//! announces every block once for each of its layer groups, all of which count.

pub mod hash;

use std::{collections::VecDeque, fmt, str::FromStr};

use kvbridge_schemas::{BlockHash, Event, Parent, Projection, Stored};
use serde_json::{Value, json};

use super::{encode::Stray, release::ReleaseError, sequence::Chain};

/// Layer groups of the newer cache manager.
const GROUP_COUNT: u32 = 2;

/// What every event names: the one attention window.
const WINDOW: u32 = 4096;

/// The priority of a block that nobody gave one.
const PRIORITY: u32 = 35;

/// Which cache manager a release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainedRelease {
    /// 1.0 to 1.2.
    Older,
    /// 1.3 and 1.4.
    Newer,
}

impl DrainedRelease {
    /// How its block hashes follow each other.
    pub fn chain(self) -> Chain {
        match self {
            DrainedRelease::Older => Chain::Mixed,
            DrainedRelease::Newer => Chain::Scoped,
        }
    }

    /// What `/server_info` calls them.
    pub fn algorithm(self) -> &'static str {
        match self {
            DrainedRelease::Older => "v1_block_key",
            DrainedRelease::Newer => "v2_sha256",
        }
    }

    /// A hash of the model as it goes out.
    pub fn wire_hash(self, hash: &BlockHash) -> BlockHash {
        match self {
            DrainedRelease::Older => BlockHash::from_u64(Projection::First8.apply(hash)),
            DrainedRelease::Newer => hash.clone(),
        }
    }

    fn hash(self, hash: &BlockHash) -> Value {
        match self {
            DrainedRelease::Older => json!(Projection::First8.apply(hash)),
            DrainedRelease::Newer => json!(hex::encode(hash.as_bytes())),
        }
    }
}

impl FromStr for DrainedRelease {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<DrainedRelease, ReleaseError> {
        match text {
            "1.0" | "1.1" | "1.2" => Ok(DrainedRelease::Older),
            "1.3" | "1.4" => Ok(DrainedRelease::Newer),
            _ => Err(ReleaseError::new(text, "from 1.0 to 1.4")),
        }
    }
}

impl fmt::Display for DrainedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DrainedRelease::Older => "1.2",
            DrainedRelease::Newer => "1.4",
        })
    }
}

/// The events of one rank that nobody has taken yet.
#[derive(Clone, Debug)]
pub struct Buffer {
    release: DrainedRelease,
    /// Absent where attention is not data-parallel.
    rank: Option<u32>,
    blocks: u32,
    count_max: usize,
    events: VecDeque<String>,
    next_id: u64,
}

impl Buffer {
    /// An empty buffer of an engine with so many blocks.
    pub fn new(
        release: DrainedRelease,
        rank: Option<u32>,
        blocks: u32,
        count_max: usize,
    ) -> Buffer {
        Buffer { release, rank, blocks, count_max, events: VecDeque::new(), next_id: 0 }
    }

    /// The id of the event that comes next.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Adds what happened. What is lost uses up its ids.
    pub fn push(&mut self, events: &[Event], strays: &[Stray], is_lost: bool) {
        let said = events.iter().filter_map(|event| self.data(event)).collect::<Vec<_>>();
        let strays = strays.iter().map(|stray| match stray {
            Stray::BadStore => json!({"type": "stored", "blocks": [{"block_hash": 0.5}]}),
            Stray::UnknownTag => json!({"type": "transmuted"}),
        });
        for data in said.into_iter().chain(strays) {
            let groups = match self.release {
                DrainedRelease::Older => vec![None],
                DrainedRelease::Newer => (0..GROUP_COUNT).map(Some).collect(),
            };
            groups.into_iter().for_each(|group| self.say(&data, group, is_lost));
        }
    }

    /// Takes everything.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events).into()
    }

    fn say(&mut self, data: &Value, group: Option<u32>, is_lost: bool) {
        let mut event = json!({"event_id": self.next_id, "data": data, "window_size": WINDOW});
        self.next_id += 1;
        if let Some(group) = group {
            event["layer_group_id"] = json!(group);
            event["hash_algo"] = json!(self.release.algorithm());
        }
        if let Some(rank) = self.rank {
            event["attention_dp_rank"] = json!(rank);
        }
        if is_lost {
            return;
        }
        self.events.push_back(event.to_string());
        if self.events.len() > self.count_max {
            self.events.pop_front();
        }
    }

    /// A life begins with what is there; it never says that it was emptied.
    fn data(&self, event: &Event) -> Option<Value> {
        match event {
            Event::Cleared(_) => Some(json!({
                "type": "created", "num_blocks_per_cache_level": [self.blocks, 0],
            })),
            Event::Stored(stored) => Some(self.stored(stored)),
            Event::Removed(removed) => {
                let hashes = removed.hashes.iter().map(|hash| self.release.hash(hash));
                let hashes: Vec<Value> = hashes.collect();
                Some(json!({"type": "removed", "block_hashes": hashes}))
            }
            Event::Reset(_) | Event::Moved(_) | Event::Trust(_) | Event::Unknown(_) => None,
        }
    }

    fn stored(&self, stored: &Stored) -> Value {
        let size = usize::try_from(stored.block_size).unwrap_or(usize::MAX).max(1);
        let token = |id: &u32| json!({"type": "unique_token", "token_id": id, "token_extra_id": 0});
        let blocks = stored.blocks.iter().zip(stored.tokens.0.chunks(size));
        let blocks = blocks.map(|(block, tokens)| {
            json!({
                "type": "stored_block",
                "block_hash": self.release.hash(&block.hash),
                "tokens": tokens.iter().map(token).collect::<Vec<_>>(),
                "cache_level": 0,
                "priority": PRIORITY,
                "mm_keys": [],
                "cache_salt": stored.salt,
            })
        });
        let parent = match &stored.parent {
            Parent::Block(parent) => self.release.hash(parent),
            Parent::Root | Parent::Unknown => Value::Null,
        };
        json!({"type": "stored", "parent_hash": parent, "blocks": blocks.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{ClearCause, Cleared, Scope};

    use super::*;

    #[test]
    fn a_full_buffer_drops_the_oldest_and_every_id_counts() {
        let mut buffer = Buffer::new(DrainedRelease::Newer, Some(3), 8, 3);
        let created = Event::Cleared(Cleared { scope: Scope::All, cause: ClearCause::Engine });
        buffer.push(std::slice::from_ref(&created), &[], false);
        buffer.push(std::slice::from_ref(&created), &[], true);
        buffer.push(std::slice::from_ref(&created), &[Stray::UnknownTag], false);
        assert_eq!(buffer.next_id(), 8);
        let taken = buffer.take();
        let ids = taken.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
        let ids: Vec<Value> = ids.map(|event| event["event_id"].clone()).collect();
        assert_eq!(ids, [5, 6, 7]);
        assert!(taken[0].contains("\"attention_dp_rank\":3") && buffer.take().is_empty());
    }
}
