//! Reading stores and removals. `None` is "serde decides".

use super::{
    super::{EVENTS_MAX, EXTRA_KEYS_MAX, HASHES_MAX, ITEMS_MAX, TOKENS_MAX, wire::Wire},
    read::{block_hash, fields, group, list, map, once, owned, parent, skip, tier},
};
use crate::{
    Event, ExtraKey, Group, Parent, Place, Removed, Stored, StoredBlock, Tier, Tokens,
    msgpack::{Cursor, Kind},
};

/// Bytes of the smallest event, block and hash; see [`list`].
const EVENT_BYTES_MIN: usize = 28;
const BLOCK_BYTES_MIN: usize = 9;
const HASH_BYTES_MIN: usize = 3;

pub(super) fn read_events(from: &mut Cursor<'_>) -> Option<Vec<Event>> {
    let mut weight = 0_usize;
    list(from, EVENTS_MAX, EVENT_BYTES_MIN, |from| {
        let event = event(from)?;
        weight = weight.saturating_add(event.weight());
        (weight <= ITEMS_MAX).then_some(event)
    })
}

/// A store or a removal whose type comes first. The others are rare.
fn event(from: &mut Cursor<'_>) -> Option<Event> {
    let pairs = from.map().ok()?.checked_sub(1)?;
    if from.text_bytes() != Ok(b"type") {
        return None;
    }
    match from.text_bytes().ok()? {
        b"stored" => stored(from, pairs).map(Event::Stored),
        b"removed" => removed(from, pairs).map(Event::Removed),
        _ => None,
    }
}

#[derive(Default)]
struct PlaceIn {
    tier: Option<Tier>,
    medium: Option<String>,
    group: Option<Group>,
    locality: Option<String>,
    ownership: Option<String>,
}

impl PlaceIn {
    fn field(&mut self, key: &[u8], from: &mut Cursor<'_>) -> Option<()> {
        match key {
            b"tier" => once(&mut self.tier, tier(from)),
            b"medium" => once(&mut self.medium, owned(from)),
            b"group" => once(&mut self.group, group(from)),
            b"locality" => once(&mut self.locality, owned(from)),
            b"ownership" => once(&mut self.ownership, owned(from)),
            // Fields of other events have a type here too, which serde checks.
            b"type" | b"parent" | b"block_size" | b"tokens" | b"blocks" | b"partial"
            | b"bigram" | b"lora" | b"lora_id" | b"salt" | b"extra" | b"session" | b"hashes"
            | b"scope" | b"cause" | b"trust" | b"snapshot" | b"reason" | b"bridge" | b"hash"
            | b"from" | b"to" => None,
            _ => skip(from),
        }
    }

    fn place(self) -> Option<Place> {
        let PlaceIn { tier, medium, group, locality, ownership } = self;
        Some(Place { tier: tier?, medium, group, locality, ownership })
    }
}

fn stored(from: &mut Cursor<'_>, pairs: usize) -> Option<Stored> {
    let (mut before, mut block_size, mut tokens, mut blocks) = (None, None, None, None);
    let (mut partial, mut bigram, mut lora, mut lora_id) = (None, None, None, None);
    let (mut salt, mut extra, mut session) = (None, None, None);
    let mut place = PlaceIn::default();
    fields(from, pairs, |key, from| match key {
        b"parent" => once(&mut before, parent(from)),
        b"block_size" => once(&mut block_size, from.u32().ok()),
        b"tokens" => once(&mut tokens, ids(from)),
        b"blocks" => once(&mut blocks, list(from, HASHES_MAX, BLOCK_BYTES_MIN, block)),
        b"partial" => once(&mut partial, from.bool().ok()),
        b"bigram" => once(&mut bigram, from.bool().ok()),
        b"lora" => once(&mut lora, owned(from)),
        b"lora_id" => once(&mut lora_id, from.i64().ok()),
        b"salt" => once(&mut salt, owned(from)),
        b"extra" => {
            let keys = |from: &mut Cursor<'_>| list(from, EXTRA_KEYS_MAX, 1, extra_key);
            once(&mut extra, list(from, HASHES_MAX, 1, keys))
        }
        b"session" => once(&mut session, owned(from)),
        _ => place.field(key, from),
    })?;
    Some(Stored {
        parent: before.unwrap_or(Parent::Unknown),
        block_size: block_size?,
        tokens: Tokens(tokens.unwrap_or_default()),
        blocks: blocks?,
        partial: partial.unwrap_or(false),
        bigram: bigram.unwrap_or(false),
        place: place.place()?,
        lora,
        lora_id,
        salt,
        extra: extra.unwrap_or_default(),
        session,
    })
}

fn ids(from: &mut Cursor<'_>) -> Option<Vec<u32>> {
    // The header never claims more ids than bytes are left.
    let count = from.array().ok().filter(|count| *count <= TOKENS_MAX)?;
    let mut ids = Vec::with_capacity(count);
    from.u32s(count, &mut ids).ok()?;
    Some(ids)
}

#[inline]
fn block(from: &mut Cursor<'_>) -> Option<StoredBlock> {
    let (mut hash, mut content) = (None, None);
    map(from, |key, from| match key {
        b"hash" => once(&mut hash, block_hash(from)),
        b"content" => once(&mut content, from.u64().ok()),
        _ => skip(from),
    })?;
    Some(StoredBlock { hash: hash?, content })
}

fn removed(from: &mut Cursor<'_>, pairs: usize) -> Option<Removed> {
    let mut hashes = None;
    let mut place = PlaceIn::default();
    fields(from, pairs, |key, from| match key {
        b"hashes" => once(&mut hashes, list(from, HASHES_MAX, HASH_BYTES_MIN, block_hash)),
        _ => place.field(key, from),
    })?;
    Some(Removed { hashes: hashes?, place: place.place()? })
}

fn extra_key(from: &mut Cursor<'_>) -> Option<ExtraKey> {
    match from.kind().ok()? {
        Kind::Text => owned(from).map(ExtraKey::Text),
        Kind::Bytes => from.bytes().ok().map(|bytes| ExtraKey::Bytes(bytes.to_vec())),
        Kind::Array if from.array() == Ok(2) => {
            Some(ExtraKey::Item { id: owned(from)?, offset: from.i64().ok()? })
        }
        _ => None,
    }
}
