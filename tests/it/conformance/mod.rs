//! The contract of every adapter, opened as a bridge opens it, against engines that are played over
//! real sockets.

mod drained;
mod published;
