//! One event: a positional array or a map, read field by field.

use kvbridge_adapters_msgpack::{
    Fault, Field as _, FieldError, Kind, LostKind, Opened, Reader, Reason, affordable,
};
use kvbridge_schemas::{BlockHash, StoredBlock};

use super::{
    RawEvent, RawRemoved, RawStored,
    field::{Field, REMOVED, STORED},
};

/// The salt's key inside the eighth element of an array.
const SALT_KEY: &[u8] = b"cache_salt";

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

/// The hashes that know of namespaces, when they are sent: `extra_key` and adapter are in them, so
/// that pages of two tenants have two names. Without them equal tokens have one name and are
/// counted.
#[derive(Default)]
struct Namespaced {
    hashes: Vec<BlockHash>,
    parent: Option<BlockHash>,
}

impl Namespaced {
    fn field(&mut self, reader: &mut Reader<'_, '_>, field: Field) -> Result<(), Reason> {
        if reader.cursor.nil() {
            return Ok(());
        }
        match field {
            Field::NamespacedParent => self.parent = Some(reader.hash()?),
            _ => reader.hashes(&mut self.hashes, |hash| hash)?,
        }
        Ok(())
    }

    /// Names blocks by them; some must be there for each block or for none.
    fn rename<'h>(
        self,
        plain: impl ExactSizeIterator<Item = &'h mut BlockHash>,
    ) -> Result<Option<BlockHash>, FieldError> {
        if self.hashes.is_empty() {
            return Ok(None);
        }
        if self.hashes.len() != plain.len() {
            return Err((Some(Field::NamespacedHashes.name()), Reason::Unpaired));
        }
        for (plain, hash) in plain.zip(self.hashes) {
            *plain = hash;
        }
        Ok(self.parent)
    }
}

fn stored<'a>(
    reader: &mut Reader<'a, '_>,
    opened: Opened<'a>,
) -> Result<RawStored<'a>, FieldError> {
    let mut raw = RawStored::default();
    let mut namespaced = Namespaced::default();
    reader.fields(opened, STORED, |reader, field| match field {
        Field::NamespacedHashes | Field::NamespacedParent => namespaced.field(reader, field),
        field => stored_field(reader, field, &mut raw),
    })?;
    let parent = namespaced.rename(raw.blocks.iter_mut().map(|block| &mut block.hash))?;
    raw.parent = parent.or(raw.parent);
    Ok(raw)
}

fn removed<'a>(
    reader: &mut Reader<'a, '_>,
    opened: Opened<'a>,
) -> Result<RawRemoved<'a>, FieldError> {
    let mut raw = RawRemoved::default();
    let mut namespaced = Namespaced::default();
    reader.fields(opened, REMOVED, |reader, field| match field {
        Field::BlockHashes => reader.hashes(&mut raw.hashes, |hash| hash),
        Field::Medium => {
            raw.medium = reader.text()?;
            Ok(())
        }
        Field::NamespacedHashes => namespaced.field(reader, field),
        // A field of stores in a removal: no release sends that.
        _ => Ok(reader.cursor.skip()?),
    })?;
    namespaced.rename(raw.hashes.iter_mut())?;
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
        Field::TokenIds => raw.bigram = tokens(reader, &mut raw.tokens)?,
        Field::BlockSize => raw.block_size = reader.cursor.u32()?,
        Field::LoraId if reader.cursor.nil() => raw.lora_id = None,
        Field::LoraId => raw.lora_id = Some(reader.cursor.i64()?),
        Field::Medium => raw.medium = reader.text()?,
        Field::Eighth => eighth(reader, &mut raw.salt)?,
        Field::LoraName => raw.lora_name = reader.text()?,
        Field::CacheSalt => raw.salt = salt(reader)?.or(raw.salt),
        Field::SessionId => raw.session = reader.session()?,
        Field::NamespacedHashes | Field::NamespacedParent => reader.cursor.skip()?,
    }
    Ok(())
}

/// A salt is a customer's text and may be long; see
/// [`EXTRA_KEY_BYTES_MAX`](crate::limits::EXTRA_KEY_BYTES_MAX).
fn salt<'a>(reader: &mut Reader<'a, '_>) -> Result<Option<&'a str>, Reason> {
    if reader.cursor.nil() {
        return Ok(None);
    }
    Ok(Some(reader.cursor.text(reader.limits.extra_key_bytes)?))
}

/// A map with the salt (0.5.18), or a list of component types (a branch), which say nothing of
/// identity. Another type could be a namespace, so it is refused.
fn eighth<'a>(reader: &mut Reader<'a, '_>, out: &mut Option<&'a str>) -> Result<(), Reason> {
    match reader.cursor.kind()? {
        Kind::Nil | Kind::Array => Ok(reader.cursor.skip()?),
        Kind::Map => {
            for _ in 0..reader.cursor.map()? {
                if reader.key()? == Some(SALT_KEY) {
                    *out = salt(reader)?.or(*out);
                } else {
                    reader.cursor.skip()?;
                }
            }
            Ok(())
        }
        _ => Err(Reason::WrongType),
    }
}

/// Token ids, or pairs of which each begins with the token that the one before ends with. Says
/// which.
fn tokens(reader: &mut Reader<'_, '_>, out: &mut Vec<u32>) -> Result<bool, Reason> {
    let mut look = reader.cursor;
    if look.array()? == 0 || look.kind()? != Kind::Array {
        return reader.tokens(out).map(|()| false);
    }
    let count = reader.token_count()?;
    out.reserve_exact(affordable::<u32>(count.saturating_add(1), reader.cursor.remaining()));
    for _ in 0..count {
        if reader.cursor.array()? != 2 {
            return Err(Reason::WrongType);
        }
        let (first, second) = (reader.cursor.u32()?, reader.cursor.u32()?);
        match out.last() {
            None => out.push(first),
            Some(last) if *last == first => (),
            Some(_) => return Err(Reason::Unchained),
        }
        out.push(second);
    }
    Ok(true)
}
