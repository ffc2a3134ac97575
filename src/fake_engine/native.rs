//! PURE. The stream that an engine which is otherwise drained can publish: maps, signed hashes, and
//! stores that it leaves out without a word.
//!
//! Modelled from its sources. One sink is in Python, the other in C++; they differ in what they do
//! below a store that was left out, and in what they say of adapters.

use std::{collections::BTreeSet, fmt, str::FromStr};

use kvbridge_schemas::{BlockHash, Event, Parent, Projection, Removed, Stored};

use super::{encode::Stray, msgpack::Pack, release::ReleaseError};

/// Which sink writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// Leaves out what is above its bound, and nothing below it.
    Python,
    /// Leaves out what hangs below a block that it did not publish, too; gives adapters by number.
    Cpp,
}

impl FromStr for SinkKind {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<SinkKind, ReleaseError> {
        match text {
            "python" => Ok(SinkKind::Python),
            "cpp" => Ok(SinkKind::Cpp),
            _ => Err(ReleaseError::new(text, "of the sink python or cpp")),
        }
    }
}

impl fmt::Display for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SinkKind::Python => "native (python)",
            SinkKind::Cpp => "native (cpp)",
        })
    }
}

/// What a rank publishes of what happens.
#[derive(Clone, Debug)]
pub struct Sink {
    kind: SinkKind,
    /// Stored blocks that it publishes of one step; what is above is left out.
    entries_max: usize,
    published: BTreeSet<BlockHash>,
}

impl Sink {
    /// One of a new process.
    pub fn new(kind: SinkKind, entries_max: usize) -> Sink {
        Sink { kind, entries_max, published: BTreeSet::new() }
    }

    /// What is said of one step. `is_full`: as if its bound were reached before the first store.
    /// Removals are always said, and clears never.
    pub fn say(&mut self, events: &[Event], is_full: bool) -> Vec<Event> {
        let mut room = if is_full { 0 } else { self.entries_max };
        let said = events.iter().filter_map(|event| match event {
            Event::Stored(stored) => self.stored(stored, &mut room).map(Event::Stored),
            Event::Removed(Removed { hashes, .. }) => {
                self.published.retain(|hash| !hashes.contains(hash));
                Some(event.clone())
            }
            Event::Cleared(_)
            | Event::Reset(_)
            | Event::Moved(_)
            | Event::Trust(_)
            | Event::Unknown(_) => None,
        });
        said.collect()
    }

    fn stored(&mut self, stored: &Stored, room: &mut usize) -> Option<Stored> {
        let is_known = match &stored.parent {
            Parent::Block(parent) => self.published.contains(parent),
            Parent::Root | Parent::Unknown => true,
        };
        let mut kept = stored.clone();
        kept.blocks.truncate(*room);
        if kept.blocks.is_empty() || (self.kind == SinkKind::Cpp && !is_known) {
            return None;
        }
        *room -= kept.blocks.len();
        let size = usize::try_from(kept.block_size).unwrap_or(usize::MAX);
        kept.tokens.0.truncate(kept.blocks.len().saturating_mul(size));
        self.published.extend(kept.blocks.iter().map(|block| block.hash.clone()));
        Some(kept)
    }
}

/// How batches are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeEncoder {
    /// By which sink.
    pub sink: SinkKind,
}

impl NativeEncoder {
    /// One batch. `ts` in unix seconds.
    pub fn batch(self, ts: f64, events: &[Event], strays: &[Stray], rank: Option<u32>) -> Vec<u8> {
        let mut pack = Pack::default();
        pack.array(3);
        pack.float(ts);
        pack.array(events.len() + strays.len());
        for event in events {
            match event {
                Event::Stored(stored) => self.stored(&mut pack, stored),
                Event::Removed(removed) => {
                    pack.map(3);
                    tag(&mut pack, "BlockRemoved");
                    pack.text("block_hashes");
                    hashes(&mut pack, removed.hashes.iter());
                    medium(&mut pack);
                }
                // The sink left them out.
                _ => pack.map(0),
            }
        }
        for stray in strays {
            match stray {
                Stray::BadStore => {
                    pack.map(2);
                    tag(&mut pack, "BlockStored");
                    pack.text("block_hashes");
                    pack.float(0.5);
                }
                Stray::UnknownTag => {
                    pack.map(1);
                    tag(&mut pack, "BlockTransmuted");
                }
            }
        }
        pack.uint(u64::from(rank.unwrap_or(0)));
        pack.0
    }

    /// A hash of the model as it goes out: its first 8 bytes.
    pub fn wire_hash(hash: &BlockHash) -> BlockHash {
        BlockHash::from_u64(Projection::First8.apply(hash))
    }

    fn stored(self, pack: &mut Pack, stored: &Stored) {
        pack.map(8);
        tag(pack, "BlockStored");
        pack.text("block_hashes");
        hashes(pack, stored.blocks.iter().map(|block| &block.hash));
        pack.text("parent_block_hash");
        match &stored.parent {
            Parent::Block(parent) => signed(pack, parent),
            Parent::Root | Parent::Unknown => pack.nil(),
        }
        pack.text("token_ids");
        pack.array(stored.tokens.0.len());
        stored.tokens.0.iter().for_each(|token| pack.uint(u64::from(*token)));
        pack.text("block_size");
        pack.uint(u64::from(stored.block_size));
        pack.text("lora_id");
        match stored.lora_id.filter(|_| self.sink == SinkKind::Cpp) {
            Some(id) => pack.int(id),
            None => pack.nil(),
        }
        medium(pack);
        pack.text("lora_name");
        pack.nil();
    }
}

fn tag(pack: &mut Pack, tag: &str) {
    pack.text("type");
    pack.text(tag);
}

fn medium(pack: &mut Pack) {
    pack.text("medium");
    pack.text("GPU");
}

fn hashes<'a>(pack: &mut Pack, hashes: impl ExactSizeIterator<Item = &'a BlockHash>) {
    pack.array(hashes.len());
    hashes.for_each(|hash| signed(pack, hash));
}

fn signed(pack: &mut Pack, hash: &BlockHash) {
    pack.int(Projection::First8.apply(hash).cast_signed());
}

#[cfg(test)]
mod tests {
    use kvbridge_schemas::{ClearCause, Cleared, Place, Scope, StoredBlock, Tier, Tokens};

    use super::*;

    fn stored(parent: Option<u64>, first: u64, count: u64) -> Event {
        let block = |hash| StoredBlock { hash: BlockHash::from_u64(hash), content: None };
        Event::Stored(Stored {
            parent: parent.map_or(Parent::Root, |hash| Parent::Block(BlockHash::from_u64(hash))),
            block_size: 2,
            tokens: Tokens(vec![7; usize::try_from(count * 2).unwrap()]),
            blocks: (first..first + count).map(block).collect(),
            partial: false,
            bigram: false,
            place: Place::of(Tier::Device),
            lora: None,
            lora_id: None,
            salt: None,
            extra: Vec::new(),
            session: None,
        })
    }

    fn removed(hash: u64) -> Event {
        let hashes = vec![BlockHash::from_u64(hash)];
        Event::Removed(Removed { hashes, place: Place::of(Tier::Device) })
    }

    fn blocks(events: &[Event]) -> Vec<u64> {
        let of = |event: &Event| match event {
            Event::Stored(stored) => {
                assert_eq!(stored.tokens.0.len(), 2 * stored.blocks.len());
                stored.blocks.iter().map(|it| Projection::First8.apply(&it.hash)).collect()
            }
            _ => Vec::new(),
        };
        events.iter().flat_map(of).collect()
    }

    #[test]
    fn what_is_above_the_bound_is_left_out_and_with_one_sink_all_below_it() {
        let clear = Event::Cleared(Cleared { scope: Scope::All, cause: ClearCause::Engine });
        for (kind, below) in [(SinkKind::Python, vec![20]), (SinkKind::Cpp, vec![])] {
            let mut sink = Sink::new(kind, 3);
            let said = sink.say(&[clear.clone(), stored(None, 10, 2), stored(None, 12, 2)], false);
            assert_eq!(blocks(&said), [10, 11, 12]);
            let said = sink.say(&[stored(Some(13), 20, 1), removed(13)], false);
            assert_eq!((blocks(&said), said.last()), (below, Some(&removed(13))));
            assert_eq!(sink.say(&[stored(None, 30, 1)], true), []);
            assert_eq!(blocks(&sink.say(&[stored(Some(11), 40, 1)], false)), [40]);
        }
    }
}
