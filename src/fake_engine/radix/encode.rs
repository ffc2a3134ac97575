//! PURE. Batches as each release's encoder writes them: arrays or maps, one page an event or many.

use kvbridge_schemas::{BlockHash, Event, Parent, Place, Projection, Removed, Stored};

use super::release::RadixRelease;
use crate::fake_engine::{encode::Stray, msgpack::Pack};

/// How a publisher writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RadixEncoder {
    /// As which release.
    pub release: RadixRelease,
}

impl RadixEncoder {
    /// One batch. `ts` in unix seconds.
    pub fn batch(&self, ts: f64, events: &[Event], strays: &[Stray], rank: Option<u32>) -> Vec<u8> {
        let events: Vec<Event> = events.iter().flat_map(|event| self.parts(event)).collect();
        let mut pack = Pack::default();
        pack.array(3);
        pack.float(ts);
        pack.array(events.len() + strays.len());
        for event in &events {
            match event {
                Event::Stored(stored) => self.stored(&mut pack, stored),
                Event::Removed(removed) => self.removed(&mut pack, removed),
                Event::Cleared(_) => self.bare(&mut pack, "AllBlocksCleared"),
                Event::Reset(_) | Event::Moved(_) | Event::Trust(_) | Event::Unknown(_) => (),
            }
        }
        for stray in strays {
            match stray {
                Stray::BadStore => self.bad_store(&mut pack),
                Stray::UnknownTag => self.bare(&mut pack, "BlockTransmuted"),
            }
        }
        match rank {
            Some(rank) => pack.uint(u64::from(rank)),
            None => pack.nil(),
        }
        pack.0
    }

    /// A hash of the model as it goes out.
    pub fn wire_hash(hash: &BlockHash) -> BlockHash {
        BlockHash::from_u64(Projection::First8.apply(hash))
    }

    /// The first 8 bytes, signed.
    pub(super) fn hash(pack: &mut Pack, hash: &BlockHash) {
        pack.int(Projection::First8.apply(hash).cast_signed());
    }

    /// The events that this release makes of one: to 0.5.17 each page has its own.
    fn parts(&self, event: &Event) -> Vec<Event> {
        match event {
            Event::Stored(stored) if !self.release.salt() => pages(stored),
            Event::Removed(removed) if !self.release.salt() => {
                let one = |hash: &BlockHash| {
                    let place = removed.place.clone();
                    Event::Removed(Removed { hashes: vec![hash.clone()], place })
                };
                removed.hashes.iter().map(one).collect()
            }
            Event::Stored(_) | Event::Removed(_) | Event::Cleared(_) => vec![event.clone()],
            Event::Reset(_) | Event::Moved(_) | Event::Trust(_) | Event::Unknown(_) => Vec::new(),
        }
    }

    fn bare(&self, pack: &mut Pack, tag: &str) {
        self.open(pack, 0);
        self.tag(pack, tag);
    }

    fn stored(&self, pack: &mut Pack, stored: &Stored) {
        let maps = self.release.maps();
        let salt = stored.salt.as_deref().filter(|_| self.release.salt());
        let session = stored.session.as_deref().filter(|_| maps);
        let lora = stored.lora.as_deref().filter(|_| self.release.lora_name());
        // Left out when unset, in maps and in arrays.
        let more = [("cache_salt", salt), ("session_id", session), ("lora_name", lora)];
        let count = more.iter().filter(|(_, value)| value.is_some()).count();
        self.open(pack, 5 + usize::from(self.release.medium()) + count);
        self.tag(pack, "BlockStored");
        self.key(pack, "block_hashes");
        hashes(pack, stored.blocks.iter().map(|block| &block.hash));
        self.key(pack, "parent_block_hash");
        match &stored.parent {
            Parent::Block(parent) => RadixEncoder::hash(pack, parent),
            Parent::Root | Parent::Unknown => pack.nil(),
        }
        self.key(pack, "token_ids");
        tokens(pack, stored);
        self.key(pack, "block_size");
        pack.uint(u64::from(stored.block_size));
        self.key(pack, "lora_id");
        pack.nil();
        self.medium(pack, &stored.place);
        for (key, value) in more {
            let Some(value) = value else { continue };
            if maps {
                pack.text(key);
            } else {
                pack.map(1);
                pack.text(key);
            }
            pack.text(value);
        }
    }

    fn removed(&self, pack: &mut Pack, removed: &Removed) {
        self.open(pack, 1 + usize::from(self.release.medium()));
        self.tag(pack, "BlockRemoved");
        self.key(pack, "block_hashes");
        hashes(pack, removed.hashes.iter());
        self.medium(pack, &removed.place);
    }

    /// Looks like a store, but its hash is a fraction.
    fn bad_store(&self, pack: &mut Pack) {
        self.open(pack, 4);
        self.tag(pack, "BlockStored");
        self.key(pack, "block_hashes");
        pack.array(1);
        pack.float(0.5);
        self.key(pack, "parent_block_hash");
        pack.nil();
        self.key(pack, "token_ids");
        pack.array(0);
        self.key(pack, "block_size");
        pack.uint(1);
    }

    fn medium(&self, pack: &mut Pack, place: &Place) {
        if !self.release.medium() {
            return;
        }
        self.key(pack, "medium");
        match place.medium.as_deref() {
            Some(medium) => pack.text(medium),
            None => pack.nil(),
        }
    }

    fn open(&self, pack: &mut Pack, fields: usize) {
        if self.release.maps() { pack.map(fields + 1) } else { pack.array(fields + 1) }
    }

    fn tag(&self, pack: &mut Pack, tag: &str) {
        self.key(pack, "type");
        pack.text(tag);
    }

    fn key(&self, pack: &mut Pack, key: &str) {
        if self.release.maps() {
            pack.text(key);
        }
    }
}

/// A store of many pages as one store for each.
fn pages(stored: &Stored) -> Vec<Event> {
    let size = usize::try_from(stored.block_size).unwrap_or(usize::MAX).max(1);
    let mut parent = stored.parent.clone();
    let pages = stored.blocks.iter().zip(stored.tokens.0.chunks(size));
    pages
        .map(|(block, tokens)| {
            let before = std::mem::replace(&mut parent, Parent::Block(block.hash.clone()));
            Event::Stored(Stored {
                parent: before,
                tokens: kvbridge_schemas::Tokens(tokens.to_vec()),
                blocks: vec![block.clone()],
                ..stored.clone()
            })
        })
        .collect()
}

/// Numbers, or overlapping pairs where the engine drafts.
fn tokens(pack: &mut Pack, stored: &Stored) {
    let tokens = &stored.tokens.0;
    if !stored.bigram {
        pack.array(tokens.len());
        return tokens.iter().for_each(|token| pack.uint(u64::from(*token)));
    }
    pack.array(tokens.len().saturating_sub(1));
    for pair in tokens.windows(2) {
        pack.array(2);
        pair.iter().for_each(|token| pack.uint(u64::from(*token)));
    }
}

fn hashes<'a>(pack: &mut Pack, hashes: impl ExactSizeIterator<Item = &'a BlockHash>) {
    pack.array(hashes.len());
    hashes.for_each(|one| RadixEncoder::hash(pack, one));
}
