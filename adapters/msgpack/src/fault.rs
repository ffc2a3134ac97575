//! What could not be read, and why. Reasons are names; no value of the wire is in them, because
//! token ids, salts and session ids are customers' secrets.

use kvbridge_adapters_api::Loss;
use kvbridge_schemas::msgpack::Unreadable;

/// One event that was not read. Its neighbours were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFault {
    /// Which event of the batch, from 0.
    pub index: u32,
    /// What kind of event is lost.
    pub kind: LostKind,
    /// The engine's name of the field that could not be read, when it was one field.
    pub field: Option<&'static str>,
    /// Why.
    pub reason: Reason,
    /// The unknown tag, so that an operator can name it; only when it looks like a type name (at
    /// most 64 ASCII letters, digits and underscores), so that nothing else can be logged through
    /// it.
    pub tag: Option<String>,
}

/// What kind of event was lost: decides how much trust it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostKind {
    /// A store: blocks are missing from the view.
    Stored,
    /// A removal or a clear.
    MayRemove,
    /// A type nobody here knows. It may have removed blocks.
    UnknownTag,
}

impl LostKind {
    /// What the batch lost with this event.
    pub fn loss(self) -> Loss {
        match self {
            LostKind::Stored => Loss::Stores,
            LostKind::MayRemove | LostKind::UnknownTag => Loss::MayRemove,
        }
    }
}

/// Why one event was not read, before it is known which one of its batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of event is lost.
    pub kind: LostKind,
    /// The field, when it was one.
    pub field: Option<&'static str>,
    /// Why.
    pub reason: Reason,
}

/// The field that could not be read, when it was one, and why.
pub type FieldError = (Option<&'static str>, Reason);

impl LostKind {
    /// The fault that costs this kind of event.
    pub fn fault(self, (field, reason): FieldError) -> Fault {
        Fault { kind: self, field, reason }
    }
}

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// The bytes end inside it, or it claims more elements than bytes are left.
    #[error("cut short")]
    Truncated,
    /// The one marker msgpack never uses (0xc1).
    #[error("reserved marker")]
    Reserved,
    /// Another type than the field has in any release.
    #[error("wrong type")]
    WrongType,
    /// A number that the field cannot hold.
    #[error("number out of range")]
    OutOfRange,
    /// More elements than the limit.
    #[error("too many elements")]
    TooMany,
    /// More bytes than the limit.
    #[error("too long")]
    TooLong,
    /// Text that is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// A field that every release sends is absent.
    #[error("missing")]
    Missing,
    /// The same key twice.
    #[error("given twice")]
    Duplicate,
    /// Extra keys that cannot be told to the blocks they belong to.
    #[error("not one entry per block")]
    Unpaired,
    /// Pairs of tokens of which one does not begin with the token that the one before ends with.
    #[error("pairs do not overlap")]
    Unchained,
    /// The event is neither an array nor a map.
    #[error("not an event")]
    NotAnEvent,
    /// The event does not say its type.
    #[error("no type")]
    NoTag,
    /// The event's type is not known and not listed to be ignored.
    #[error("unknown type")]
    UnknownTag,
}

impl From<Unreadable> for Reason {
    fn from(unreadable: Unreadable) -> Reason {
        match unreadable {
            Unreadable::Truncated => Reason::Truncated,
            Unreadable::Reserved => Reason::Reserved,
            Unreadable::WrongType => Reason::WrongType,
            Unreadable::OutOfRange => Reason::OutOfRange,
            Unreadable::TooLong => Reason::TooLong,
            Unreadable::NotUtf8 => Reason::NotUtf8,
        }
    }
}

/// Why a whole payload was not read. Half a batch is never applied, so no event of it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// No payload, under a seq that is not the end marker's.
    #[error("empty payload")]
    Empty,
    /// Above the limit.
    #[error("payload has {bytes} bytes, limit {max}")]
    TooLarge {
        /// How many came.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The top is neither an array of two elements or more nor a map.
    #[error("payload is not a batch")]
    NotABatch,
    /// No list of events.
    #[error("batch has no events field")]
    NoEvents,
    /// More events than the limit.
    #[error("batch has {count} events, limit {max}")]
    TooManyEvents {
        /// How many came.
        count: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A field of the batch itself could not be read.
    #[error("batch field {field}: {reason}")]
    Field {
        /// The engine's name of the field.
        field: &'static str,
        /// Why.
        reason: Reason,
    },
    /// The bytes cannot be walked to the end.
    #[error("payload cannot be walked: {0}")]
    Unwalkable(Reason),
    /// The topic says which life the message is of, in a form that cannot be read.
    #[error("the life in the topic cannot be read")]
    Life,
    /// Bytes follow the batch.
    #[error("{bytes} bytes follow the batch")]
    TrailingBytes {
        /// How many.
        bytes: usize,
    },
}

/// Why a message has no place in the stream at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FrameError {
    /// The seq frame is neither a seq nor a seq with a publisher id.
    #[error("seq frame has {bytes} bytes, expected 8 or 24")]
    SeqLength {
        /// How many came.
        bytes: usize,
    },
}
