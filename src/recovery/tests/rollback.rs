//! A number that goes back, where the view was dropped since the number was known.

use expect_test::expect;

use super::{
    script::{unproven, vllm_like},
    table::check,
};

/// The next life's journal is empty when it is asked, the view is given up, and then the life
/// begins: its seq 0 is a start, and none of the life that was given up.
// spec: recovery 2.4
#[test]
fn rollback_below_what_was_known_before_the_connection() {
    // All of it came by replay: no live seq tells how far the old life was.
    check(
        vllm_like(),
        "attach; wait 1000; batch 0; batch 1; detach",
        "attach; end; end; live 0b",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            record end_only
            request_replay 0
            record end_only
            record replay_unusable
            cancel
            record no_history
            clear 1 Unproven
            announce lower_bound (history_lost)
            record rollback
            announce none (new_epoch)
            record new_epoch
            clear 1000 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
        "#]],
    );
    // A view of one batch: nothing is below it.
    check(
        vllm_like(),
        "attach; live 0; detach",
        "attach; end; end; live 0b; detach; attach; batch 0b; end; live 1",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            record end_only
            request_replay 0
            record end_only
            record replay_unusable
            cancel
            record no_history
            clear 1 Unproven
            announce lower_bound (history_lost)
            record rollback
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
            announce none (detached)
            record reattached
            request_replay 0
            announce none (verifying)
            record replayed
            cancel
            announce exact (contiguous)
            apply 1
        "#]],
    );
}

/// The live stream lags: what it brings after a new connection was replayed, and given up, before.
#[test]
fn rollback_is_not_told_by_a_stream_that_lags() {
    check(
        vllm_like(),
        "attach; live 0; wait 10001; batch 7; batch 8; detach",
        "attach; live 3; live 4; live 9; batch 7; batch 8; batch 9",
        expect![[r#"
            record reattached
            request_replay 6
            announce none (verifying)
            record overlap_unproven
            record overlap_unproven
            apply 9
            record replayed
            cancel
            record duplicate
            announce lower_bound (history_lost)
        "#]],
    );
}

/// Where another connection is not seen, numbers from before this one prove nothing.
#[test]
fn rollback_is_not_told_by_an_unproven_connection() {
    check(
        unproven(),
        "attach; wait 1000; batch 0; batch 1; detach",
        "attach; end; end; live 0b",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            record end_only
            request_replay 0
            record end_only
            record replay_unusable
            cancel
            record no_history
            clear 1 Unproven
            announce lower_bound (history_lost)
            apply 0
            announce exact (contiguous)
        "#]],
    );
}

/// A number of an earlier connection says that it went back, in the life that the wire names: what
/// that life says next is not of a closed one.
// spec: recovery 2.8
#[test]
fn a_rollback_within_a_named_life_leaves_its_name_open() {
    check(
        vllm_like(),
        "attach; live 15 of a; detach; attach; wait 1000; batch 0c of b; end; batch 0c of b; end",
        "live 1 of b; live 2 of b",
        expect![[r#"
            record rollback
            announce none (new_epoch)
            record new_epoch
            clear 1000 NewEpoch
            record joined_late
            request_replay 0
        "#]],
    );
}

/// The same seq twice with other bytes, both under one name.
// spec: recovery 2.8
#[test]
fn a_digest_mismatch_within_a_named_life_leaves_its_name_open() {
    check(
        vllm_like(),
        "attach; live 0 of a; live 1 of a",
        "live 1b of a; batch 0 of a; batch 1b of a; end; live 2 of a",
        expect![[r#"
            record digest_mismatch
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            record joined_late
            request_replay 0
            apply 0
            apply 1
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
            record stale_answer
            apply 2
        "#]],
    );
}
