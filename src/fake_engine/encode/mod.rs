//! PURE. Batches as each release's encoder writes them: layouts, presence rules, forms of hashes.

use kvbridge_schemas::{
    BlockHash, Event, ExtraKey, Parent, Place, Projection, Removed, Stored, Tier,
};

use super::{msgpack::Pack, release::Release};

/// How a publisher writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoder {
    /// As which release.
    pub release: Release,
    /// Hashes are whole bytes (from 0.10.2); else the last 8 bytes as a number.
    pub bytes: bool,
}

/// What is sent beside or instead of well-formed events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// A store whose hash is no hash.
    BadStore,
    /// An event of a type that no release has.
    UnknownTag,
}

/// A body that is no batch: a type byte that msgpack never uses.
pub const POISON: &[u8] = &[0xc1];

impl Encoder {
    /// One batch. `ts` in unix seconds; a missing rank is nil, which no publisher sends.
    pub fn batch(&self, ts: f64, events: &[Event], strays: &[Stray], rank: Option<u32>) -> Vec<u8> {
        let mut pack = Pack::default();
        pack.array(if self.release.rank() { 3 } else { 2 });
        pack.float(ts);
        pack.array(events.iter().filter(|event| is_sent(event)).count() + strays.len());
        for event in events {
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
        if self.release.rank() {
            number(&mut pack, rank);
        }
        pack.0
    }

    /// A hash of the model as it goes out in an event of `tier`.
    pub fn wire_hash(&self, hash: &BlockHash, tier: &Tier) -> BlockHash {
        let host_bytes = *tier != Tier::Device && self.release.host_hashes_are_bytes();
        if (self.bytes || host_bytes) && self.release.medium() {
            hash.clone()
        } else {
            BlockHash::from_u64(Projection::Last8.apply(hash))
        }
    }

    fn hash(&self, pack: &mut Pack, hash: &BlockHash, tier: &Tier) {
        let wire = self.wire_hash(hash, tier);
        match <[u8; 8]>::try_from(wire.as_bytes()) {
            Ok(eight) => pack.uint(u64::from_be_bytes(eight)),
            Err(_) => pack.bytes(wire.as_bytes()),
        }
    }

    fn hashes<'a>(
        &self,
        pack: &mut Pack,
        hashes: impl ExactSizeIterator<Item = &'a BlockHash>,
        tier: &Tier,
    ) {
        pack.array(hashes.len());
        hashes.for_each(|hash| self.hash(pack, hash, tier));
    }

    fn bare(&self, pack: &mut Pack, tag: &str) {
        if self.release.maps() {
            pack.map(1);
            pack.text("type");
        } else {
            pack.array(1);
        }
        pack.text(tag);
    }

    fn stored(&self, pack: &mut Pack, stored: &Stored) {
        let fields = self.stored_fields(stored);
        let count = fields.iter().filter(|field| field.present).count();
        match u16::try_from(count + 1) {
            Ok(wide) if self.release.wide_store_header() => pack.wide_map(wide),
            _ => self.open(pack, count),
        }
        self.tag(pack, "BlockStored");
        for field in fields.iter().filter(|field| field.present) {
            self.key(pack, field.key);
            self.stored_field(pack, field.key, stored);
        }
    }

    /// All fields of this release in their order. In a map what has a default is left out when it
    /// is unset; an array holds everything.
    fn stored_fields(&self, stored: &Stored) -> Vec<Field> {
        let release = self.release;
        let group = stored.place.group.as_ref();
        let known =
            |key, since: bool, set: bool| Field { key, present: since && (set || !release.maps()) };
        let always = |key| Field { key, present: true };
        vec![
            always("block_hashes"),
            always("parent_block_hash"),
            always("token_ids"),
            always("block_size"),
            always("lora_id"),
            Field { key: "medium", present: release.medium() },
            Field { key: "lora_name", present: release.lora_name() },
            known("extra_keys", release.extra_keys(), !stored.extra.is_empty()),
            known("group_idx", release.group(), group.is_some()),
            known(KIND, release.kind(), group.is_some_and(|group| group.kind.is_some())),
            known(WINDOW, release.kind(), group.is_some_and(|group| group.window.is_some())),
            known("locality", release.locality(), stored.place.locality.is_some()),
            known("ownership", release.ownership(), stored.place.ownership.is_some()),
            known("session_id", release.session(), stored.session.is_some()),
        ]
    }

    fn stored_field(&self, pack: &mut Pack, key: &str, stored: &Stored) {
        let place = &stored.place;
        match key {
            "block_hashes" => {
                self.hashes(pack, stored.blocks.iter().map(|block| &block.hash), &place.tier);
            }
            "parent_block_hash" => match &stored.parent {
                Parent::Block(hash) => self.hash(pack, hash, &place.tier),
                Parent::Root | Parent::Unknown => pack.nil(),
            },
            "token_ids" => {
                pack.array(stored.tokens.0.len());
                stored.tokens.0.iter().for_each(|token| pack.uint(u64::from(*token)));
            }
            "block_size" => pack.uint(u64::from(stored.block_size)),
            "lora_id" => match stored.lora_id {
                Some(id) => pack.int(id),
                None => pack.nil(),
            },
            "lora_name" => text(pack, stored.lora.as_deref()),
            "extra_keys" if stored.extra.is_empty() => pack.nil(),
            "extra_keys" => {
                pack.array(stored.extra.len());
                stored.extra.iter().for_each(|entry| extra(pack, entry));
            }
            "session_id" => text(pack, stored.session.as_deref()),
            key => place_field(pack, key, place),
        }
    }

    fn removed(&self, pack: &mut Pack, removed: &Removed) {
        let (release, place) = (self.release, &removed.place);
        let known =
            |key, since: bool, set: bool| Field { key, present: since && (set || !release.maps()) };
        let fields = [
            Field { key: "medium", present: release.medium() },
            known("group_idx", release.group(), place.group.is_some()),
            known("locality", release.locality(), place.locality.is_some()),
            known("ownership", release.ownership(), place.ownership.is_some()),
        ];
        self.open(pack, 1 + fields.iter().filter(|field| field.present).count());
        self.tag(pack, "BlockRemoved");
        self.key(pack, "block_hashes");
        self.hashes(pack, removed.hashes.iter(), &place.tier);
        for field in fields.iter().filter(|field| field.present) {
            self.key(pack, field.key);
            place_field(pack, field.key, place);
        }
    }

    /// Looks like a store, but its hash is a fraction.
    fn bad_store(&self, pack: &mut Pack) {
        let keys = ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"];
        self.open(pack, keys.len());
        self.tag(pack, "BlockStored");
        for key in keys {
            self.key(pack, key);
            match key {
                "block_hashes" => {
                    pack.array(1);
                    pack.float(0.5);
                }
                "token_ids" => pack.array(0),
                "block_size" => pack.uint(0),
                _ => pack.nil(),
            }
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

const KIND: &str = "kv_cache_spec_kind";
const WINDOW: &str = "kv_cache_spec_sliding_window";

struct Field {
    key: &'static str,
    present: bool,
}

fn is_sent(event: &Event) -> bool {
    matches!(event, Event::Stored(_) | Event::Removed(_) | Event::Cleared(_))
}

fn place_field(pack: &mut Pack, key: &str, place: &Place) {
    let group = place.group.as_ref();
    match key {
        "medium" => text(pack, place.medium.as_deref()),
        "group_idx" => number(pack, group.map(|group| group.index)),
        KIND => text(pack, group.and_then(|group| group.kind.as_ref()).map(|kind| kind.as_str())),
        WINDOW => number(pack, group.and_then(|group| group.window)),
        "locality" => text(pack, place.locality.as_deref()),
        _ => text(pack, place.ownership.as_deref()),
    }
}

fn extra(pack: &mut Pack, entry: &[ExtraKey]) {
    if entry.is_empty() {
        return pack.nil();
    }
    pack.array(entry.len());
    for key in entry {
        match key {
            ExtraKey::Text(value) => pack.text(value),
            ExtraKey::Item { id, offset } => {
                pack.array(2);
                pack.text(id);
                pack.int(*offset);
            }
            ExtraKey::Bytes(bytes) => pack.bytes(bytes),
        }
    }
}

fn text(pack: &mut Pack, value: Option<&str>) {
    match value {
        Some(value) => pack.text(value),
        None => pack.nil(),
    }
}

fn number(pack: &mut Pack, value: Option<u32>) {
    match value {
        Some(value) => pack.uint(u64::from(value)),
        None => pack.nil(),
    }
}

#[cfg(all(test, feature = "vllm"))]
mod tests;
