//! SHELL. One task per replica, from a source to the view, the index and the readers of events.

pub mod registry;
