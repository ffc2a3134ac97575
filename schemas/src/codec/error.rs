//! Why a message was not read. No error carries a value of the message: a token id, a salt or a
//! session is a customer's secret, and serde's own texts quote what they refuse.

use std::fmt;

use crate::{BlockHashError, SCHEMA_VERSION};

/// Why a message was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Another major version of the schema.
    #[error("schema version {found}, expected {SCHEMA_VERSION}")]
    Version {
        /// The version the message names.
        found: u64,
    },
    /// The message is longer than any we accept.
    #[error("message has {found} bytes, expected at most {max}")]
    TooLarge {
        /// Its length.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A list is longer than any we accept.
    #[error("`{field}` has {found} items, expected at most {max}")]
    TooMany {
        /// The list.
        field: &'static str,
        /// How many items came.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A required field is not there.
    #[error("{of} lacks its field `{field}`")]
    Missing {
        /// The structure.
        of: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A block hash of a length that no engine uses.
    #[error(transparent)]
    BlockHash(#[from] BlockHashError),
    /// A value of fixed length has another one.
    #[error("{of} has {found} bytes, expected {expected}")]
    Length {
        /// What it is.
        of: &'static str,
        /// Bytes that came.
        found: usize,
        /// Bytes it has.
        expected: usize,
    },
    /// A hash in JSON is not written in pairs of lower-case hexadecimal digits.
    #[error("{of} is not lower-case hexadecimal")]
    Hex {
        /// What it is.
        of: &'static str,
    },
    /// The bytes are no message at all, or a field has a value of another type.
    #[error("{fault} at {at}")]
    Malformed {
        /// Where reading stopped.
        at: Position,
        /// What was wrong there.
        fault: Fault,
    },
}

/// What is wrong with the form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It ends too early.
    Truncated,
    /// It is not JSON.
    Syntax,
    /// A value has another type than its field, does not fit it, or a field comes twice.
    WrongType,
    /// A text is not UTF-8.
    NotUtf8,
    /// Deeper than [`DEPTH_MAX`](super::DEPTH_MAX).
    TooDeep,
    /// Something follows it.
    Trailing,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Truncated => "message ends too early",
            Fault::Syntax => "text is not json",
            Fault::WrongType => "value does not fit its field",
            Fault::NotUtf8 => "text is not utf-8",
            Fault::TooDeep => "message is nested too deep",
            Fault::Trailing => "message has ended, expected nothing more",
        })
    }
}

/// Where in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// In msgpack.
    Byte(u64),
    /// In a JSON text, counted from 1.
    Line {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In a JSON value that has no text.
    Unknown,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Byte(byte) => write!(f, "byte {byte}"),
            Position::Line { line, column } => write!(f, "line {line} column {column}"),
            Position::Unknown => f.write_str("an unknown place"),
        }
    }
}

/// What an rmp-serde error is about, without its text.
pub(super) fn msgpack_fault(error: &rmp_serde::decode::Error) -> Fault {
    use rmp_serde::decode::Error;
    match error {
        Error::InvalidMarkerRead(_) | Error::InvalidDataRead(_) => Fault::Truncated,
        Error::Utf8Error(_) => Fault::NotUtf8,
        Error::DepthLimitExceeded => Fault::TooDeep,
        Error::TypeMismatch(_)
        | Error::OutOfRange
        | Error::LengthMismatch(_)
        | Error::Uncategorized(_)
        | Error::Syntax(_) => Fault::WrongType,
    }
}

/// What a serde_json error is about and where, without its text.
pub(super) fn json_malformed(error: &serde_json::Error) -> CodecError {
    use serde_json::error::Category;
    let fault = match error.classify() {
        Category::Eof | Category::Io => Fault::Truncated,
        Category::Syntax => Fault::Syntax,
        Category::Data => Fault::WrongType,
    };
    let at = match (error.line(), error.column()) {
        (0, _) => Position::Unknown,
        (line, column) => Position::Line { line, column },
    };
    CodecError::Malformed { at, fault }
}

/// The value of a required field.
pub(super) fn need<T>(
    value: Option<T>,
    of: &'static str,
    field: &'static str,
) -> Result<T, CodecError> {
    value.ok_or(CodecError::Missing { of, field })
}
