//! Tests of the state machine: one per label of the table.
