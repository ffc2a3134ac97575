//! The adapter against an engine on real sockets. One binary, because linking is the cost.

mod bridged;
mod command_line;
mod conforms;
mod engine;
