//! The adapter against an engine on real sockets. One binary, because linking is the cost.

mod bridged;
mod conforms;
mod engine;
