//! One event: a positional array or a map, read field by field.

use kvbridge_schemas::{BlockHash, ExtraKey, StoredBlock};

use super::{
    Fault, Form, RawEvent, RawPlace, RawRemoved, RawStored, Reader, affordable,
    field::{
        BARE_MEDIA_LAYOUT_LEN, Field, REMOVED_LAYOUT, REMOVED_REQUIRED, STORED_LAYOUT,
        STORED_REQUIRED,
    },
};
use crate::{
    fault::{LostKind, Reason},
    msgpack::{Int, Kind},
};

/// What went wrong, and in which field.
type FieldError = (Option<&'static str>, Reason);

/// How the fields of an event are laid out.
#[derive(Clone, Copy)]
struct Shape {
    form: Form,
    count: usize,
    layout: &'static [Field],
    required: &'static [Field],
}

impl<'a> Reader<'a, '_> {
    pub(super) fn event(&mut self) -> Result<RawEvent<'a>, Fault> {
        let untagged = |reason| Fault { kind: LostKind::UnknownTag, field: None, reason };
        let (form, count) = match self.cursor.kind().map_err(untagged)? {
            Kind::Array => (Form::Array, self.cursor.array().map_err(untagged)?),
            Kind::Map => (Form::Map, self.cursor.map().map_err(untagged)?),
            _ => return Err(untagged(Reason::NotAnEvent)),
        };
        self.head.form.get_or_insert(form);
        match self.tag(form, count).map_err(untagged)? {
            "BlockStored" => self.stored(form, count).map(RawEvent::Stored),
            "BlockRemoved" => self.removed(form, count).map(RawEvent::Removed),
            tag => {
                self.rest(form, count).map_err(untagged)?;
                match tag {
                    "AllBlocksCleared" => Ok(RawEvent::Cleared),
                    tag => Ok(RawEvent::Unknown(tag)),
                }
            }
        }
    }

    /// The event's tag. An array's first element is taken, a map is left at its first pair.
    fn tag(&mut self, form: Form, count: usize) -> Result<&'a str, Reason> {
        let max = self.limits.text_bytes;
        match form {
            Form::Array if count == 0 => Err(Reason::NoTag),
            Form::Array if self.cursor.kind()? != Kind::Text => Err(Reason::NoTag),
            Form::Array => self.cursor.text(max),
            Form::Map => {
                // Always the first key so far, but maps have no order.
                let mut look = Reader { cursor: self.cursor, ..*self };
                for _ in 0..count {
                    if look.key()? == Some(b"type") {
                        return look.cursor.text(max);
                    }
                    look.cursor.skip()?;
                }
                Err(Reason::NoTag)
            }
        }
    }

    /// Skips all fields of an event.
    fn rest(&mut self, form: Form, count: usize) -> Result<(), Reason> {
        let values = match form {
            Form::Array => count.saturating_sub(1),
            Form::Map => count.saturating_mul(2),
        };
        (0..values).try_for_each(|_| self.cursor.skip())
    }

    /// A map's key; `None` for a key that is no text, which is stepped over.
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>, Reason> {
        if self.cursor.kind()? == Kind::Text {
            return self.cursor.text_bytes().map(Some);
        }
        self.cursor.skip().map(|()| None)
    }

    fn stored(&mut self, form: Form, count: usize) -> Result<RawStored<'a>, Fault> {
        let mut raw = RawStored {
            bare_media: form == Form::Array && count <= BARE_MEDIA_LAYOUT_LEN,
            ..RawStored::default()
        };
        let shape = Shape { form, count, layout: &STORED_LAYOUT, required: &STORED_REQUIRED };
        self.fields(shape, |reader, field| reader.stored_field(field, &mut raw))
            .and_then(|()| raw.pair_extra())
            .map_err(|(field, reason)| Fault { kind: LostKind::Stored, field, reason })?;
        Ok(raw)
    }

    fn removed(&mut self, form: Form, count: usize) -> Result<RawRemoved<'a>, Fault> {
        let mut raw = RawRemoved::default();
        let shape = Shape { form, count, layout: &REMOVED_LAYOUT, required: &REMOVED_REQUIRED };
        self.fields(shape, |reader, field| match field {
            Field::BlockHashes => reader.hashes(&mut raw.hashes, |hash| hash),
            field => reader.place_field(field, &mut raw.place),
        })
        .map_err(|(field, reason)| Fault { kind: LostKind::MayRemove, field, reason })?;
        Ok(raw)
    }

    /// Reads the fields of a shape; what it does not know is skipped.
    fn fields(
        &mut self,
        shape: Shape,
        mut read: impl FnMut(&mut Self, Field) -> Result<(), Reason>,
    ) -> Result<(), FieldError> {
        let mut seen = 0_u16;
        let values = if shape.form == Form::Array { shape.count - 1 } else { shape.count };
        let mut layout = shape.layout.iter();
        for _ in 0..values {
            let field = match shape.form {
                Form::Array => layout.next().copied(),
                Form::Map => self.key().map_err(|reason| (None, reason))?.and_then(Field::from_key),
            };
            let Some(field) = field else {
                self.cursor.skip().map_err(|reason| (None, reason))?;
                continue;
            };
            let fail = |reason| (Some(field.name()), reason);
            if seen & field.bit() != 0 {
                return Err(fail(Reason::Duplicate));
            }
            seen |= field.bit();
            read(self, field).map_err(fail)?;
        }
        match shape.required.iter().find(|field| seen & field.bit() == 0) {
            Some(field) => Err((Some(field.name()), Reason::Missing)),
            None => Ok(()),
        }
    }

    fn stored_field(&mut self, field: Field, raw: &mut RawStored<'a>) -> Result<(), Reason> {
        match field {
            Field::BlockHashes => {
                self.hashes(&mut raw.blocks, |hash| StoredBlock { hash, content: None })?;
            }
            Field::Parent if self.cursor.nil() => raw.parent = None,
            Field::Parent => raw.parent = Some(self.hash()?),
            Field::TokenIds => self.tokens(&mut raw.tokens)?,
            Field::BlockSize => raw.block_size = self.cursor.u32()?,
            Field::LoraId if self.cursor.nil() => raw.lora_id = None,
            Field::LoraId => raw.lora_id = Some(self.cursor.i64()?),
            Field::LoraName => raw.lora_name = self.text()?,
            Field::ExtraKeys => self.extra_keys(&mut raw.extra)?,
            Field::SessionId => raw.session = self.session()?,
            Field::Medium
            | Field::GroupIdx
            | Field::SpecKind
            | Field::SlidingWindow
            | Field::Locality
            | Field::Ownership => self.place_field(field, &mut raw.place)?,
        }
        Ok(())
    }

    fn place_field(&mut self, field: Field, place: &mut RawPlace<'a>) -> Result<(), Reason> {
        match field {
            Field::Medium => place.medium = self.text()?,
            Field::GroupIdx => place.group = self.number()?,
            Field::SpecKind => place.kind = self.text()?,
            Field::SlidingWindow => place.window = self.number()?,
            Field::Locality => place.locality = self.text()?,
            Field::Ownership => place.ownership = self.text()?,
            // A field of stores in a removal: no release sends that.
            _ => self.cursor.skip()?,
        }
        Ok(())
    }

    fn text(&mut self) -> Result<Option<&'a str>, Reason> {
        if self.cursor.nil() {
            Ok(None)
        } else {
            self.cursor.text(self.limits.text_bytes).map(Some)
        }
    }

    fn number(&mut self) -> Result<Option<u32>, Reason> {
        if self.cursor.nil() { Ok(None) } else { self.cursor.u32().map(Some) }
    }

    /// The session's id. It comes from a customer's request and no hash depends on it: one that is
    /// too long is left out, because a refused event would let any tenant lower the replica's
    /// trust.
    fn session(&mut self) -> Result<Option<&'a str>, Reason> {
        match self.text() {
            Err(Reason::TooLong) => Ok(None),
            other => other,
        }
    }

    /// An integer of either sign (to 0.10.1.1 the hash is Python's, often negative) or bytes.
    #[inline]
    fn hash(&mut self) -> Result<BlockHash, Reason> {
        if self.cursor.kind()? == Kind::Bytes {
            let bytes = self.cursor.bytes()?;
            return BlockHash::from_bytes(bytes).map_err(|_| Reason::OutOfRange);
        }
        Ok(BlockHash::from_u64(match self.cursor.int()? {
            Int::Unsigned(value) => value,
            Int::Negative(value) => value.cast_unsigned(),
        }))
    }

    fn hashes<T>(&mut self, out: &mut Vec<T>, wrap: impl Fn(BlockHash) -> T) -> Result<(), Reason> {
        let count = self.cursor.array()?;
        self.spend(count, self.limits.hashes_per_event)?;
        out.reserve_exact(affordable::<T>(count, self.cursor.remaining()));
        for _ in 0..count {
            out.push(wrap(self.hash()?));
        }
        Ok(())
    }

    fn tokens(&mut self, out: &mut Vec<u32>) -> Result<(), Reason> {
        let count = self.cursor.array()?;
        if count > self.limits.tokens_per_event {
            return Err(Reason::TooMany);
        }
        out.reserve_exact(affordable::<u32>(count, self.cursor.remaining()));
        self.cursor.u32s(count, out)
    }

    fn extra_keys(&mut self, out: &mut Vec<Vec<ExtraKey>>) -> Result<(), Reason> {
        if self.cursor.nil() {
            return Ok(());
        }
        let max = self.limits.extra_keys_per_event;
        let count = self.cursor.array()?;
        self.spend(count, max)?;
        out.reserve_exact(affordable::<Vec<ExtraKey>>(count, self.cursor.remaining()));
        let mut total = count;
        for _ in 0..count {
            if self.cursor.nil() {
                out.push(Vec::new());
                continue;
            }
            let items = self.cursor.array()?;
            total = total.saturating_add(items);
            self.spend(items, max.saturating_sub(total - items))?;
            let mut entry = Vec::new();
            entry.reserve_exact(affordable::<ExtraKey>(items, self.cursor.remaining()));
            for _ in 0..items {
                entry.push(self.extra_key()?);
            }
            out.push(entry);
        }
        Ok(())
    }

    /// A text, a digest, or `[media id, offset]` from 0.19 on. Another shape is refused: without it
    /// blocks of different media would look alike.
    fn extra_key(&mut self) -> Result<ExtraKey, Reason> {
        let max = self.limits.extra_key_bytes;
        match self.cursor.kind()? {
            Kind::Text => Ok(ExtraKey::Text(self.cursor.text(max)?.to_owned())),
            Kind::Bytes => match self.cursor.bytes()? {
                bytes if bytes.len() > max => Err(Reason::TooLong),
                bytes => Ok(ExtraKey::Bytes(bytes.to_vec())),
            },
            Kind::Array if self.cursor.array()? == 2 => {
                let id = self.cursor.text(max)?.to_owned();
                Ok(ExtraKey::Item { id, offset: self.cursor.i64()? })
            }
            _ => Err(Reason::WrongType),
        }
    }

    /// Takes `count` items from the event's and the batch's allowance.
    fn spend(&mut self, count: usize, max: usize) -> Result<(), Reason> {
        if count > max {
            return Err(Reason::TooMany);
        }
        self.items_left = self.items_left.checked_sub(count).ok_or(Reason::TooMany)?;
        Ok(())
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
