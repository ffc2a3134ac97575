//! The fields of an event, whether it is written by position or by key.

use crate::{
    fault::{FieldError, Reason},
    reader::{Form, Opened, Reader},
};

/// A field of a dialect's events.
pub trait Field: Copy + 'static {
    /// The field of that key.
    fn from_key(key: &[u8]) -> Option<Self>;
    /// The engine's name of it.
    fn name(self) -> &'static str;
    /// One bit that no other field of the dialect has.
    fn bit(self) -> u32;
}

/// How the fields of one type of event are laid out.
#[derive(Clone, Copy, Debug)]
pub struct Shape<F: 'static> {
    /// The fields by position, after the tag.
    pub layout: &'static [F],
    /// Those that every release sends.
    pub required: &'static [F],
}

impl Reader<'_, '_> {
    /// Reads the fields of an event; what the shape does not know is skipped.
    pub fn fields<F: Field>(
        &mut self,
        opened: Opened<'_>,
        shape: Shape<F>,
        mut read: impl FnMut(&mut Self, F) -> Result<(), Reason>,
    ) -> Result<(), FieldError> {
        let mut seen = 0_u32;
        let mut layout = shape.layout.iter();
        for _ in 0..opened.value_count() {
            let field = match opened.form {
                Form::Array => layout.next().copied(),
                Form::Map => self.key().map_err(|reason| (None, reason))?.and_then(F::from_key),
            };
            let Some(field) = field else {
                self.cursor.skip().map_err(|reason| (None, reason.into()))?;
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

    /// Skips all fields of an event.
    pub fn skip_fields(&mut self, opened: Opened<'_>) -> Result<(), Reason> {
        let values = match opened.form {
            Form::Array => opened.value_count(),
            Form::Map => opened.count.saturating_mul(2),
        };
        Ok((0..values).try_for_each(|_| self.cursor.skip())?)
    }
}

impl Opened<'_> {
    /// Elements after the tag, or pairs with it.
    fn value_count(&self) -> usize {
        match self.form {
            Form::Array => self.count.saturating_sub(1),
            Form::Map => self.count,
        }
    }
}
