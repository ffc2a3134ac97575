//! Tests of the state machine as data: a script goes in, a list of actions comes out.
//!
//! `checkpoint.rs` restarts the process; `plain.rs` trusts snapshots that leave much out; `log.rs`
//! reads a bus, `upstream.rs` hears bridges; `pace.rs` spaces requests; `drained.rs` has no
//! journal, `left_out.rs` stores that nobody told; `table.rs` has one test per label of the
//! contract, `rollback.rs` and `rank.rs` more of one; `transcripts.rs` runs whole dialogues from
//! `tests/transcripts`; `exhaustive.rs` steps every phase with every input and random scripts.

mod checkpoint;
mod drained;
mod exhaustive;
mod left_out;
mod log;
mod log_behind;
mod pace;
mod plain;
mod rank;
mod rollback;
mod script;
mod table;
mod transcripts;
mod upstream;
