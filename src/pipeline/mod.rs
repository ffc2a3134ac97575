//! SHELL. What moves events between the world and the pure parts.

mod index_writers;

pub use index_writers::{INDEX_QUEUE_MESSAGES_MAX, IndexWrite, IndexWriters};
