//! SHELL. One task per replica, from a source to the view, the index and the readers of events.

mod index_writers;
pub mod registry;

pub use index_writers::{INDEX_QUEUE_MESSAGES_MAX, IndexWrite, IndexWriters};
