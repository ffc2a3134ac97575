//! Tests of the state machine as data: a script goes in, a list of actions comes out.
//!
//! `checkpoint.rs` restarts the process; `table.rs` has one test per label of the contract;
//! `upstream.rs` follows a log's bridges; `transcripts.rs` runs whole dialogues from `tests/transcripts`; `exhaustive.rs` steps every
//! phase with every input and random scripts.

mod checkpoint;
mod exhaustive;
mod script;
mod table;
mod transcripts;
mod upstream;
