//! Writing straight. Every field, in the order of the schema, as the serde writer has it.

use super::super::wire::{Show, Wire};
use crate::{
    BlockHash, Envelope, Event, ExtraKey, Group, Parent, Place, Removed, SCHEMA_VERSION,
    SnapshotRecord, Stored, StoredBlock, Tier, msgpack::Pen,
};

/// Room for what is around the events, and around the blocks and ids of one.
const HEAD_BYTES: usize = 512;
const EVENT_BYTES: usize = 192;
/// Room for a block beside its hash, for an id, for a record beside its hashes.
const BLOCK_BYTES: usize = 26;
const ID_BYTES: usize = 5;
const RECORD_BYTES: usize = 128;

pub(in super::super) fn write_envelope(envelope: &Envelope) -> Vec<u8> {
    let mut to = Pen::new(HEAD_BYTES + envelope.events.iter().map(room).sum::<usize>());
    to.map(11 + usize::from(envelope.incarnation.is_some()));
    to.uint_field("v", u64::from(SCHEMA_VERSION));
    to.key("replica");
    to.map(3);
    to.text_field("model", &envelope.replica.model);
    to.text_field("instance", &envelope.replica.instance);
    to.uint_field("rank", u64::from(envelope.replica.rank));
    to.uint_field("epoch", envelope.epoch.0);
    to.some_text("incarnation", envelope.incarnation.as_ref());
    to.uint_field("seq", envelope.seq.0);
    to.uint_field("span", u64::from(envelope.span));
    to.key("digest");
    to.bin(&envelope.digest.0);
    to.text_field("trust", envelope.trust.as_str());
    to.uint_field("ts", envelope.ts);
    to.key("engine");
    to.map(2);
    to.text_field("kind", envelope.engine.kind.as_str());
    to.text_field("format", &envelope.engine.format);
    to.key("hash");
    to.map(2);
    to.text_field("scheme", envelope.hash.scheme.as_str());
    to.uint_field("block_size", u64::from(envelope.hash.block_size));
    to.key("events");
    to.array(envelope.events.len());
    for event in &envelope.events {
        write_event(event, &mut to);
    }
    to.into_bytes()
}

/// A guess from above, so that a message is not copied while it grows.
fn room(event: &Event) -> usize {
    let length = |hash: Option<&BlockHash>| hash.map_or(0, |hash| hash.as_bytes().len());
    EVENT_BYTES
        + match event {
            Event::Stored(stored) => {
                let hash = length(stored.blocks.first().map(|block| &block.hash));
                stored.tokens.0.len() * ID_BYTES + stored.blocks.len() * (hash + BLOCK_BYTES)
            }
            Event::Removed(removed) => {
                removed.hashes.len() * (length(removed.hashes.first()) + ID_BYTES)
            }
            _ => 0,
        }
}

fn write_event(event: &Event, to: &mut Pen) {
    match event {
        Event::Stored(stored) => write_stored(stored, to),
        Event::Removed(removed) => write_removed(removed, to),
        // Rare, and small.
        other => {
            let mut serde = rmp_serde::Serializer::new(to.bytes()).with_struct_map();
            other.write(Show::All, &mut serde).expect("memory takes any event");
        }
    }
}

fn write_stored(stored: &Stored, to: &mut Pen) {
    let Stored { parent, block_size, tokens, blocks, partial, bigram, place, extra, .. } = stored;
    let optional = [
        *parent != Parent::Unknown,
        !tokens.0.is_empty(),
        *partial,
        *bigram,
        stored.lora.is_some(),
        stored.lora_id.is_some(),
        stored.salt.is_some(),
        !extra.is_empty(),
        stored.session.is_some(),
    ];
    to.map(3 + place_fields(place) + present(optional));
    to.text_field("type", "stored");
    write_parent(parent, to);
    to.uint_field("block_size", u64::from(*block_size));
    if !tokens.0.is_empty() {
        to.key("tokens");
        to.array(tokens.0.len());
        to.ids(&tokens.0);
    }
    to.key("blocks");
    to.array(blocks.len());
    for StoredBlock { hash, content } in blocks {
        to.map(1 + usize::from(content.is_some()));
        to.key("hash");
        to.bin(hash.as_bytes());
        to.some_uint("content", *content);
    }
    to.flag("partial", *partial);
    to.flag("bigram", *bigram);
    write_place(place, to);
    to.some_text("lora", stored.lora.as_ref());
    if let Some(id) = stored.lora_id {
        to.key("lora_id");
        to.int(id);
    }
    to.some_text("salt", stored.salt.as_ref());
    if !extra.is_empty() {
        write_extra(extra, to);
    }
    to.some_text("session", stored.session.as_ref());
}

fn write_extra(extra: &[Vec<ExtraKey>], to: &mut Pen) {
    to.key("extra");
    to.array(extra.len());
    for keys in extra {
        to.array(keys.len());
        for key in keys {
            match key {
                ExtraKey::Text(text) => to.text(text),
                ExtraKey::Bytes(bytes) => to.bin(bytes),
                ExtraKey::Item { id, offset } => {
                    to.array(2);
                    to.text(id);
                    to.int(*offset);
                }
            }
        }
    }
}

fn write_removed(Removed { hashes, place }: &Removed, to: &mut Pen) {
    to.map(2 + place_fields(place));
    to.text_field("type", "removed");
    to.key("hashes");
    to.array(hashes.len());
    for hash in hashes {
        to.bin(hash.as_bytes());
    }
    write_place(place, to);
}

pub(in super::super) fn write_record(record: &SnapshotRecord) -> Vec<u8> {
    let mut to = Pen::new(RECORD_BYTES);
    put_record(record, &mut to);
    to.into_bytes()
}

pub(in super::super) fn write_chunk(records: &[SnapshotRecord]) -> Vec<u8> {
    let mut to = Pen::new(HEAD_BYTES + records.len() * RECORD_BYTES);
    to.array(records.len());
    for record in records {
        put_record(record, &mut to);
    }
    to.into_bytes()
}

fn put_record(record: &SnapshotRecord, to: &mut Pen) {
    let SnapshotRecord { parent, content, group, lora, salt, extra, .. } = record;
    let optional = [
        *parent != Parent::Unknown,
        content.is_some(),
        group.is_some(),
        lora.is_some(),
        salt.is_some(),
        extra.is_some(),
        record.partial,
        record.bigram,
        record.parked,
        record.hint,
    ];
    to.map(4 + present(optional));
    to.key("hash");
    to.bin(record.hash.as_bytes());
    write_parent(parent, to);
    to.some_uint("content", *content);
    to.uint_field("block_size", u64::from(record.block_size));
    write_tier(&record.tier, to);
    write_group(group.as_ref(), to);
    to.uint_field("count", u64::from(record.count));
    to.some_text("lora", lora.as_ref());
    to.some_text("salt", salt.as_ref());
    to.some_uint("extra", *extra);
    to.flag("partial", record.partial);
    to.flag("bigram", record.bigram);
    to.flag("parked", record.parked);
    to.flag("hint", record.hint);
}

// === what both have

fn present<const N: usize>(optional: [bool; N]) -> usize {
    optional.into_iter().map(usize::from).sum()
}

fn write_parent(parent: &Parent, to: &mut Pen) {
    match parent {
        Parent::Unknown => (),
        Parent::Root => {
            to.key("parent");
            to.nil();
        }
        Parent::Block(hash) => {
            to.key("parent");
            to.bin(hash.as_bytes());
        }
    }
}

fn place_fields(place: &Place) -> usize {
    let Place { tier: _, medium, group, locality, ownership } = place;
    1 + present([medium.is_some(), group.is_some(), locality.is_some(), ownership.is_some()])
}

fn write_place(place: &Place, to: &mut Pen) {
    write_tier(&place.tier, to);
    to.some_text("medium", place.medium.as_ref());
    write_group(place.group.as_ref(), to);
    to.some_text("locality", place.locality.as_ref());
    to.some_text("ownership", place.ownership.as_ref());
}

fn write_tier(tier: &Tier, to: &mut Pen) {
    to.key("tier");
    match tier {
        Tier::Other(name) => {
            to.map(1);
            to.text_field("other", name);
        }
        known => to.text(known.as_str()),
    }
}

fn write_group(group: Option<&Group>, to: &mut Pen) {
    let Some(Group { index, kind, window }) = group else { return };
    to.key("group");
    to.map(1 + present([kind.is_some(), window.is_some()]));
    to.uint_field("index", u64::from(*index));
    if let Some(kind) = kind {
        to.text_field("kind", kind.as_str());
    }
    to.some_uint("window", window.map(u64::from));
}
