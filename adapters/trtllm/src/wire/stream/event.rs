//! One event of the native stream, read field by field.

use kvbridge_adapters_msgpack::{
    Fault, Field as _, FieldError, Int, Kind, LostKind, Opened, Reader, Reason, affordable,
};
use kvbridge_schemas::{ExtraKey, StoredBlock};

use super::{
    RawEvent, RawPlace, RawRemoved, RawStored,
    field::{Field, REMOVED, STORED},
};

/// Reads the fields of an event by its type.
pub(crate) fn read<'a>(
    reader: &mut Reader<'a, '_>,
    opened: Opened<'a>,
) -> Result<RawEvent<'a>, Fault> {
    match opened.tag {
        "BlockStored" => stored(reader, opened)
            .map(RawEvent::Stored)
            .map_err(|error| LostKind::Stored.fault(error)),
        "BlockRemoved" => removed(reader, opened)
            .map(RawEvent::Removed)
            .map_err(|error| LostKind::MayRemove.fault(error)),
        tag => {
            let untagged = |reason| LostKind::UnknownTag.fault((None, reason));
            reader.skip_fields(opened).map_err(untagged)?;
            match tag {
                "AllBlocksCleared" => Ok(RawEvent::Cleared),
                tag => Ok(RawEvent::Unknown(tag)),
            }
        }
    }
}

fn stored<'a>(
    reader: &mut Reader<'a, '_>,
    opened: Opened<'a>,
) -> Result<RawStored<'a>, FieldError> {
    let mut raw = RawStored::default();
    reader.fields(opened, STORED, |reader, field| stored_field(reader, field, &mut raw))?;
    if raw.media.iter().all(Vec::is_empty) {
        raw.media.clear();
    } else if raw.media.len() != raw.blocks.len() {
        // A media item would be given to the wrong block.
        return Err((Some(Field::MediaKeys.name()), Reason::Unpaired));
    }
    Ok(raw)
}

fn removed<'a>(
    reader: &mut Reader<'a, '_>,
    opened: Opened<'a>,
) -> Result<RawRemoved<'a>, FieldError> {
    let mut raw = RawRemoved::default();
    reader.fields(opened, REMOVED, |reader, field| match field {
        Field::BlockHashes => reader.hashes(&mut raw.hashes, |hash| hash),
        field => place_field(reader, field, &mut raw.place),
    })?;
    Ok(raw)
}

fn stored_field<'a>(
    reader: &mut Reader<'a, '_>,
    field: Field,
    raw: &mut RawStored<'a>,
) -> Result<(), Reason> {
    match field {
        Field::BlockHashes => {
            reader.hashes(&mut raw.blocks, |hash| StoredBlock { hash, content: None })?;
        }
        Field::Parent if reader.cursor.nil() => raw.parent = None,
        Field::Parent => raw.parent = Some(reader.hash()?),
        Field::TokenIds => tokens(reader, raw)?,
        Field::BlockSize => raw.block_size = reader.cursor.u32()?,
        Field::LoraId if reader.cursor.nil() => raw.lora_id = None,
        Field::LoraId => raw.lora_id = Some(reader.cursor.i64()?),
        Field::LoraName => raw.lora_name = reader.text()?,
        Field::ExtraKeys => raw.has_extra = extra_keys(reader)?,
        Field::MediaKeys => media_keys(reader, &mut raw.media)?,
        Field::Medium | Field::Locality => place_field(reader, field, &mut raw.place)?,
    }
    Ok(())
}

fn place_field<'a>(
    reader: &mut Reader<'a, '_>,
    field: Field,
    place: &mut RawPlace<'a>,
) -> Result<(), Reason> {
    match field {
        Field::Medium => place.medium = reader.text()?,
        Field::Locality => place.locality = reader.text()?,
        // A field of stores in a removal: nothing is known to send that.
        _ => reader.cursor.skip()?,
    }
    Ok(())
}

/// Ids, and for a media digest its place.
fn tokens(reader: &mut Reader<'_, '_>, raw: &mut RawStored<'_>) -> Result<(), Reason> {
    let count = reader.token_count()?;
    raw.tokens.reserve_exact(affordable::<u32>(count, reader.cursor.remaining()));
    let start = reader.cursor;
    // Nearly always numbers alone, which are read together.
    if reader.cursor.u32s(count, &mut raw.tokens).is_ok() {
        return Ok(());
    }
    reader.cursor = start;
    raw.tokens.clear();
    for at in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        let id = if reader.cursor.kind()? == Kind::Text {
            reader.spend(1, reader.limits.extra_keys_per_event)?;
            reader.cursor.text(reader.limits.extra_key_bytes)?;
            raw.digests.push(at);
            0
        } else {
            token_id(reader)?
        };
        raw.tokens.push(id);
    }
    Ok(())
}

/// The engine keeps ids in 32 bits: -1 is hashed like the largest number.
fn token_id(reader: &mut Reader<'_, '_>) -> Result<u32, Reason> {
    match reader.cursor.int()? {
        Int::Unsigned(id) => u32::try_from(id).map_err(|_| Reason::OutOfRange),
        Int::Negative(id) => {
            i32::try_from(id).map(i32::cast_unsigned).map_err(|_| Reason::OutOfRange)
        }
    }
}

/// Whether any block has an extra key. Their form was seen nowhere, so what they say is not read.
fn extra_keys(reader: &mut Reader<'_, '_>) -> Result<bool, Reason> {
    if reader.cursor.nil() {
        return Ok(false);
    }
    if reader.cursor.kind()? != Kind::Array {
        reader.cursor.skip()?;
        return Ok(true);
    }
    let mut any = false;
    for _ in 0..reader.cursor.array()? {
        if reader.cursor.nil() {
            continue;
        }
        let mut entry = reader.cursor;
        any |= entry.kind()? != Kind::Array || entry.array()? > 0;
        reader.cursor.skip()?;
    }
    Ok(any)
}

/// A list of media items for each block.
fn media_keys(reader: &mut Reader<'_, '_>, out: &mut Vec<Vec<ExtraKey>>) -> Result<(), Reason> {
    if reader.cursor.nil() {
        return Ok(());
    }
    let max = reader.limits.extra_keys_per_event;
    let count = reader.cursor.array()?;
    reader.spend(count, max)?;
    out.reserve_exact(affordable::<Vec<ExtraKey>>(count, reader.cursor.remaining()));
    for _ in 0..count {
        if reader.cursor.nil() {
            out.push(Vec::new());
            continue;
        }
        let items = reader.cursor.array()?;
        reader.spend(items, max)?;
        let mut entry = Vec::new();
        entry.reserve_exact(affordable::<ExtraKey>(items, reader.cursor.remaining()));
        for _ in 0..items {
            entry.push(media_key(reader)?);
        }
        out.push(entry);
    }
    Ok(())
}

/// Digest and start of one item. An id that its owner gave it is skipped: the digest tells items
/// apart.
fn media_key(reader: &mut Reader<'_, '_>) -> Result<ExtraKey, Reason> {
    let max = reader.limits.extra_key_bytes;
    let (mut id, mut offset) = (None, 0);
    for _ in 0..reader.cursor.map()? {
        match reader.key()? {
            Some(b"hash") => id = Some(reader.cursor.text(max)?.to_owned()),
            Some(b"start_offset") => offset = reader.cursor.i64()?,
            _ => reader.cursor.skip()?,
        }
    }
    Ok(ExtraKey::Item { id: id.ok_or(Reason::Missing)?, offset })
}
