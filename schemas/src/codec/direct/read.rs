//! Reading straight. `None` is "serde decides".

use super::{super::RECORDS_MAX, events::read_events};
use crate::{
    BlockHash, Digest, Engine, EngineKind, Envelope, Epoch, Group, GroupKind, HashInfo, HashScheme,
    Parent, Replica, SCHEMA_VERSION, Seq, SnapshotRecord, Tier, Trust,
    msgpack::{Cursor, Kind},
};

/// How deep unknown values are followed; far below what serde is allowed to follow.
const SKIPPED_DEPTH: u8 = 8;

/// Bytes of the smallest record; see [`list`].
const RECORD_BYTES_MIN: usize = 32;

pub(in super::super) fn envelope(payload: &[u8]) -> Option<Envelope> {
    whole(payload, read_envelope)
}

pub(in super::super) fn record(payload: &[u8]) -> Option<SnapshotRecord> {
    whole(payload, read_record)
}

pub(in super::super) fn chunk(payload: &[u8]) -> Option<Vec<SnapshotRecord>> {
    whole(payload, |from| list(from, RECORDS_MAX, RECORD_BYTES_MIN, read_record))
}

fn whole<T>(payload: &[u8], read: impl FnOnce(&mut Cursor<'_>) -> Option<T>) -> Option<T> {
    let mut from = Cursor::new(payload);
    let message = read(&mut from)?;
    (from.remaining() == 0).then_some(message)
}

// === forms

#[inline]
pub(super) fn map<'a>(
    from: &mut Cursor<'a>,
    field: impl FnMut(&'a [u8], &mut Cursor<'a>) -> Option<()>,
) -> Option<()> {
    let pairs = from.map().ok()?;
    fields(from, pairs, field)
}

#[inline]
pub(super) fn fields<'a>(
    from: &mut Cursor<'a>,
    pairs: usize,
    mut field: impl FnMut(&'a [u8], &mut Cursor<'a>) -> Option<()>,
) -> Option<()> {
    for _ in 0..pairs {
        let key = from.text_bytes().ok()?;
        field(key, from)?;
    }
    Some(())
}

/// A field comes once.
#[inline]
pub(super) fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    match (&slot, value) {
        (None, Some(value)) => {
            *slot = Some(value);
            Some(())
        }
        _ => None,
    }
}

/// A list that claims more items than its bytes have room for, each of `bytes_min`, is no list of
/// ours, and no memory is taken for it.
#[inline]
pub(super) fn list<'a, T>(
    from: &mut Cursor<'a>,
    max: usize,
    bytes_min: usize,
    mut item: impl FnMut(&mut Cursor<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = from.array().ok()?;
    if count > max || count > from.remaining() / bytes_min {
        return None;
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(item(from)?);
    }
    Some(items)
}

/// Passes over the value of a field of a later minor version.
pub(super) fn skip(from: &mut Cursor<'_>) -> Option<()> {
    skip_to(from, SKIPPED_DEPTH)
}

fn skip_to(from: &mut Cursor<'_>, depth: u8) -> Option<()> {
    let values = match from.kind().ok()? {
        Kind::Array => from.array().ok()?,
        Kind::Map => from.map().ok()?.checked_mul(2)?,
        Kind::Other => return from.bool().ok().map(drop),
        Kind::Nil | Kind::Int | Kind::Float | Kind::Text | Kind::Bytes => {
            return from.skip().ok();
        }
    };
    let below = depth.checked_sub(1)?;
    (0..values).try_for_each(|_| skip_to(from, below))
}

// === values

pub(super) fn text<'a>(from: &mut Cursor<'a>) -> Option<&'a str> {
    from.text(usize::MAX).ok()
}

pub(super) fn owned(from: &mut Cursor<'_>) -> Option<String> {
    text(from).map(str::to_owned)
}

#[inline]
pub(super) fn block_hash(from: &mut Cursor<'_>) -> Option<BlockHash> {
    BlockHash::from_bytes(from.bytes().ok()?).ok()
}

#[inline]
pub(super) fn parent(from: &mut Cursor<'_>) -> Option<Parent> {
    if from.nil() { Some(Parent::Root) } else { block_hash(from).map(Parent::Block) }
}

pub(super) fn tier(from: &mut Cursor<'_>) -> Option<Tier> {
    if from.kind() == Ok(Kind::Text) {
        return text(from).map(Tier::from_name);
    }
    let mut other = None;
    map(from, |key, from| match key {
        b"other" => once(&mut other, owned(from)),
        _ => skip(from),
    })?;
    other.map(Tier::Other)
}

pub(super) fn group(from: &mut Cursor<'_>) -> Option<Group> {
    let (mut index, mut kind, mut window) = (None, None, None);
    map(from, |key, from| match key {
        b"index" => once(&mut index, from.u32().ok()),
        b"kind" => once(&mut kind, text(from).map(GroupKind::from_name)),
        b"window" => once(&mut window, from.u32().ok()),
        _ => skip(from),
    })?;
    Some(Group { index: index?, kind, window })
}

// === the envelope

fn read_envelope(from: &mut Cursor<'_>) -> Option<Envelope> {
    let (mut version, mut who, mut epoch, mut incarnation) = (None, None, None, None);
    let (mut seq, mut span, mut digest, mut trust) = (None, None, None, None);
    let (mut ts, mut of, mut hash, mut events) = (None, None, None, None);
    map(from, |key, from| match key {
        b"v" => once(&mut version, from.u64().ok()),
        b"replica" => once(&mut who, replica(from)),
        b"epoch" => once(&mut epoch, from.u64().ok().map(Epoch)),
        b"incarnation" => once(&mut incarnation, owned(from)),
        b"seq" => once(&mut seq, from.u64().ok().map(Seq)),
        b"span" => once(&mut span, from.u32().ok()),
        b"digest" => {
            let bytes = from.bytes().ok().and_then(|bytes| bytes.try_into().ok());
            once(&mut digest, bytes.map(Digest))
        }
        b"trust" => once(&mut trust, text(from).map(Trust::from_name)),
        b"ts" => once(&mut ts, from.u64().ok()),
        b"engine" => once(&mut of, engine(from)),
        b"hash" => once(&mut hash, hash_info(from)),
        b"events" => once(&mut events, read_events(from)),
        _ => skip(from),
    })?;
    (version? == u64::from(SCHEMA_VERSION)).then_some(())?;
    Some(Envelope {
        replica: who?,
        epoch: epoch?,
        incarnation,
        seq: seq?,
        span: span?,
        digest: digest?,
        trust: trust?,
        ts: ts?,
        engine: of?,
        hash: hash?,
        events: events?,
    })
}

fn replica(from: &mut Cursor<'_>) -> Option<Replica> {
    let (mut model, mut instance, mut rank) = (None, None, None);
    map(from, |key, from| match key {
        b"model" => once(&mut model, owned(from)),
        b"instance" => once(&mut instance, owned(from)),
        b"rank" => once(&mut rank, from.u32().ok()),
        _ => skip(from),
    })?;
    Some(Replica { model: model?, instance: instance?, rank: rank? })
}

fn engine(from: &mut Cursor<'_>) -> Option<Engine> {
    let (mut kind, mut format) = (None, None);
    map(from, |key, from| match key {
        b"kind" => once(&mut kind, text(from).map(EngineKind::from_name)),
        b"format" => once(&mut format, owned(from)),
        _ => skip(from),
    })?;
    Some(Engine { kind: kind?, format: format? })
}

fn hash_info(from: &mut Cursor<'_>) -> Option<HashInfo> {
    let (mut scheme, mut block_size) = (None, None);
    map(from, |key, from| match key {
        b"scheme" => once(&mut scheme, text(from).map(HashScheme::from_name)),
        b"block_size" => once(&mut block_size, from.u32().ok()),
        _ => skip(from),
    })?;
    Some(HashInfo { scheme: scheme?, block_size: block_size? })
}

// === records

fn read_record(from: &mut Cursor<'_>) -> Option<SnapshotRecord> {
    let (mut hash, mut before, mut content, mut block_size) = (None, None, None, None);
    let (mut at, mut in_group, mut count, mut lora) = (None, None, None, None);
    let (mut salt, mut extra, mut partial, mut bigram) = (None, None, None, None);
    let (mut parked, mut hint) = (None, None);
    map(from, |key, from| match key {
        b"hash" => once(&mut hash, block_hash(from)),
        b"parent" => once(&mut before, parent(from)),
        b"content" => once(&mut content, from.u64().ok()),
        b"block_size" => once(&mut block_size, from.u32().ok()),
        b"tier" => once(&mut at, tier(from)),
        b"group" => once(&mut in_group, group(from)),
        b"count" => once(&mut count, from.u32().ok()),
        b"lora" => once(&mut lora, owned(from)),
        b"salt" => once(&mut salt, owned(from)),
        b"extra" => once(&mut extra, from.u64().ok()),
        b"partial" => once(&mut partial, from.bool().ok()),
        b"bigram" => once(&mut bigram, from.bool().ok()),
        b"parked" => once(&mut parked, from.bool().ok()),
        b"hint" => once(&mut hint, from.bool().ok()),
        _ => skip(from),
    })?;
    Some(SnapshotRecord {
        hash: hash?,
        parent: before.unwrap_or(Parent::Unknown),
        content,
        block_size: block_size?,
        tier: at?,
        group: in_group,
        count: count?,
        lora,
        salt,
        extra,
        partial: partial.unwrap_or(false),
        bigram: bigram.unwrap_or(false),
        parked: parked.unwrap_or(false),
        hint: hint.unwrap_or(false),
    })
}
