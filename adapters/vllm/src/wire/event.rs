//! One event: a positional array or a map, read field by field.

use kvbridge_adapters_msgpack::{
    Fault, Field as _, FieldError, Form, Kind, LostKind, Opened, Reader, Reason, Shape, affordable,
};
use kvbridge_schemas::{ExtraKey, StoredBlock};

use super::{
    RawEvent, RawPlace, RawRemoved, RawStored,
    field::{
        BARE_MEDIA_LAYOUT_LEN, Field, REMOVED_LAYOUT, REMOVED_REQUIRED, STORED_LAYOUT,
        STORED_REQUIRED,
    },
};

const STORED: Shape<Field> = Shape { layout: &STORED_LAYOUT, required: &STORED_REQUIRED };
const REMOVED: Shape<Field> = Shape { layout: &REMOVED_LAYOUT, required: &REMOVED_REQUIRED };

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
    let mut raw = RawStored {
        bare_media: opened.form == Form::Array && opened.count <= BARE_MEDIA_LAYOUT_LEN,
        ..RawStored::default()
    };
    reader.fields(opened, STORED, |reader, field| stored_field(reader, field, &mut raw))?;
    raw.pair_extra()?;
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
        Field::TokenIds => reader.tokens(&mut raw.tokens)?,
        Field::BlockSize => raw.block_size = reader.cursor.u32()?,
        Field::LoraId if reader.cursor.nil() => raw.lora_id = None,
        Field::LoraId => raw.lora_id = Some(reader.cursor.i64()?),
        Field::LoraName => raw.lora_name = reader.text()?,
        Field::ExtraKeys => extra_keys(reader, &mut raw.extra)?,
        Field::SessionId => raw.session = reader.session()?,
        Field::Medium
        | Field::GroupIdx
        | Field::SpecKind
        | Field::SlidingWindow
        | Field::Locality
        | Field::Ownership => place_field(reader, field, &mut raw.place)?,
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
        Field::GroupIdx => place.group = number(reader)?,
        Field::SpecKind => place.kind = reader.text()?,
        Field::SlidingWindow => place.window = number(reader)?,
        Field::Locality => place.locality = reader.text()?,
        Field::Ownership => place.ownership = reader.text()?,
        // A field of stores in a removal: no release sends that.
        _ => reader.cursor.skip()?,
    }
    Ok(())
}

fn number(reader: &mut Reader<'_, '_>) -> Result<Option<u32>, Reason> {
    if reader.cursor.nil() { Ok(None) } else { Ok(Some(reader.cursor.u32()?)) }
}

fn extra_keys(reader: &mut Reader<'_, '_>, out: &mut Vec<Vec<ExtraKey>>) -> Result<(), Reason> {
    if reader.cursor.nil() {
        return Ok(());
    }
    let max = reader.limits.extra_keys_per_event;
    let count = reader.cursor.array()?;
    reader.spend(count, max)?;
    out.reserve_exact(affordable::<Vec<ExtraKey>>(count, reader.cursor.remaining()));
    let mut total = count;
    for _ in 0..count {
        if reader.cursor.nil() {
            out.push(Vec::new());
            continue;
        }
        let items = reader.cursor.array()?;
        total = total.saturating_add(items);
        reader.spend(items, max.saturating_sub(total - items))?;
        let mut entry = Vec::new();
        entry.reserve_exact(affordable::<ExtraKey>(items, reader.cursor.remaining()));
        for _ in 0..items {
            entry.push(extra_key(reader)?);
        }
        out.push(entry);
    }
    Ok(())
}

/// A text, a digest, or `[media id, offset]` from 0.19 on. Another shape is refused: without it
/// blocks of different media would look alike.
fn extra_key(reader: &mut Reader<'_, '_>) -> Result<ExtraKey, Reason> {
    let max = reader.limits.extra_key_bytes;
    match reader.cursor.kind()? {
        Kind::Text => Ok(ExtraKey::Text(reader.cursor.text(max)?.to_owned())),
        Kind::Bytes => match reader.cursor.bytes()? {
            bytes if bytes.len() > max => Err(Reason::TooLong),
            bytes => Ok(ExtraKey::Bytes(bytes.to_vec())),
        },
        Kind::Array if reader.cursor.array()? == 2 => {
            let id = reader.cursor.text(max)?.to_owned();
            Ok(ExtraKey::Item { id, offset: reader.cursor.i64()? })
        }
        _ => Err(Reason::WrongType),
    }
}

impl RawStored<'_> {
    /// Entries and blocks must pair up, or a key would be given to the wrong block. Entries without
    /// a key say nothing, however many there are.
    fn pair_extra(&mut self) -> Result<(), FieldError> {
        if self.extra.len() == self.blocks.len() {
            return Ok(());
        }
        if self.extra.iter().any(|entry| !entry.is_empty()) {
            return Err((Some(Field::ExtraKeys.name()), Reason::Unpaired));
        }
        self.extra.clear();
        Ok(())
    }
}
