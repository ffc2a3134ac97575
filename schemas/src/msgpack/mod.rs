//! Msgpack that nobody vouches for: engines' batches and our own envelopes.

mod cursor;
mod narrow;
mod pen;

pub use cursor::Cursor;
pub use pen::Pen;

/// Why a value could not be read. A name; no value of the wire is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unreadable {
    /// The bytes end inside it, or it claims more elements than bytes are left.
    #[error("cut short")]
    Truncated,
    /// The one marker msgpack never uses (0xc1).
    #[error("reserved marker")]
    Reserved,
    /// Another type than was asked for.
    #[error("wrong type")]
    WrongType,
    /// A number that does not fit.
    #[error("number out of range")]
    OutOfRange,
    /// More bytes than the limit.
    #[error("too long")]
    TooLong,
    /// Text that is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
}

/// The type of the next value, as far as a caller has to choose by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nil.
    Nil,
    /// An integer of any width and sign.
    Int,
    /// A float of either width.
    Float,
    /// A text.
    Text,
    /// A byte string.
    Bytes,
    /// A list.
    Array,
    /// A map.
    Map,
    /// A boolean, an extension, or the marker that is never used.
    Other,
}

impl Kind {
    fn of(marker: u8) -> Kind {
        match marker {
            0xc0 => Kind::Nil,
            0x00..=0x7f | 0xcc..=0xd3 | 0xe0..=0xff => Kind::Int,
            0xca | 0xcb => Kind::Float,
            0xa0..=0xbf | 0xd9..=0xdb => Kind::Text,
            0xc4..=0xc6 => Kind::Bytes,
            0x90..=0x9f | 0xdc | 0xdd => Kind::Array,
            0x80..=0x8f | 0xde | 0xdf => Kind::Map,
            0xc1..=0xc3 | 0xc7..=0xc9 | 0xd4..=0xd8 => Kind::Other,
        }
    }
}

/// An integer of any width and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int {
    /// Zero or above.
    Unsigned(u64),
    /// Below zero.
    Negative(i64),
}
