//! What the engines that publish msgpack batches share: the batch around their events, limits and
//! faults.
//!
//! vLLM's publisher was copied by others, so one [`Decoder`] reads the messages of all of them, and
//! a [`Dialect`] adds an engine's events: their fields and what they mean. This crate knows no
//! field of any event. No I/O and no state. What cannot be read costs as little as it can: an event
//! its neighbours nothing, a payload its seq nothing.
#![deny(clippy::indexing_slicing, clippy::string_slice)]

mod content;
mod decode;
mod fault;
mod fields;
pub mod limits;
mod reader;

pub use content::fill_content;
pub use decode::{Decoded, DecodedBatch, Decoder, Dialect, Read};
pub use fault::{BodyError, EventFault, Fault, FieldError, FrameError, LostKind, Reason};
pub use fields::{Field, Shape};
pub use kvbridge_schemas::msgpack::{Cursor, Int, Kind};
pub use limits::Limits;
pub use reader::{Form, Opened, Reader, affordable};
