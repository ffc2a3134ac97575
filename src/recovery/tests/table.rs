//! One test per label of the contract's table, and the cases behind it.

use expect_test::{Expect, expect};
use kvbridge_adapters_api::Capabilities;

use super::script::{Script, unproven, vllm_like, with_epoch, with_snapshot, without_replay};

/// What comes before is set up silently; what `script` makes the machine do must be `expected`.
#[expect(clippy::needless_pass_by_value, reason = "reads better at the call")]
pub(super) fn check(capabilities: Capabilities, before: &str, script: &str, expected: Expect) {
    let mut machine = Script::new(capabilities);
    machine.run(before);
    expected.assert_eq(&machine.run(script));
}

/// The all-ones seq is not a number: read as one it would put the cursor at the end of time.
#[test]
fn end_marker() {
    check(
        vllm_like(),
        "attach; live 0",
        "end_marker; live 1",
        expect![[r#"
        record end_marker
        apply 1
    "#]],
    );
}

/// A straggler of a closed life never clears the living one.
#[test]
fn stale_epoch() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 2@6; live 2@7",
        expect![[r#"
        record stale_epoch
        apply 2
    "#]],
    );
}

/// A higher epoch ends the old view, at once.
#[test]
fn new_epoch() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 0@8",
        expect![[r#"
        announce none (new_epoch)
        record new_epoch
        clear 8 NewEpoch
        record first_is_zero
        apply 0
        announce exact (contiguous)
    "#]],
    );
}

/// Other bytes under a seq seen before: two lives, whatever the number says.
// spec: recovery 2.3
#[test]
fn digest_mismatch() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 1b; batch 0; batch 1b; end; end",
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
            record stale_answer
        "#]],
    );
}

/// One epoch, two contents: nobody can be believed, no epoch is minted.
#[test]
fn digest_mismatch_with_epoch_on_wire() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 1b@7",
        expect![[r#"
        record digest_mismatch
        announce none (two_publishers)
        clear 7 Unproven
        request_replay 0
    "#]],
    );
}

/// The same bytes again are dropped, and are no rollback.
#[test]
fn duplicate() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 1; live 0; live 2",
        expect![[r#"
        record duplicate
        record duplicate
        apply 2
    "#]],
    );
}

/// Half applied, half new: it can be neither applied nor dropped.
#[test]
fn straddle() {
    check(
        with_epoch(),
        "attach; live 0+2@7",
        "live 1+3@7",
        expect![[r#"
        record straddle
        announce none (gap_open)
        clear 7 Unproven
        request_replay 0
    "#]],
    );
}

/// A restarted engine counts from 0: asked before old numbers are dropped.
#[test]
fn rollback() {
    check(
        without_replay(),
        "attach; live 5; live 6",
        "live 2; live 3",
        expect![[r#"
        record rollback
        announce none (new_epoch)
        record new_epoch
        clear 2 NewEpoch
        record joined_late
        record no_history
        clear 2 Unproven
        apply 2
        announce lower_bound (joined_late)
        apply 3
    "#]],
    );
}

/// A restarted engine's journal is empty until its first batch: the replay was not broken.
#[test]
fn replay_is_tried_again_in_a_new_life() {
    check(
        vllm_like(),
        "attach; live 0; live 1; detach; attach; end; end",
        "live 0b; live 3",
        expect![[r#"
            record rollback
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
            record gap first 1 count 2
            announce none (gap_open)
            request_replay 0
        "#]],
    );
}

/// Rollback is asked in every phase, against the highest seq seen.
// spec: recovery 2.4
#[test]
fn rollback_while_replaying() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 5",
        "live 3",
        expect![[r#"
        record rollback
        cancel
        record new_epoch
        clear 2 NewEpoch
        record joined_late
        request_replay 0
        announce none (new_epoch)
    "#]],
    );
}

/// A lost store: blocks are missing, so exact ends, until a flush.
// spec: recovery 5.4
#[test]
fn undecodable_store() {
    check(
        vllm_like(),
        "attach; live 0",
        "live 1?; live 2; live 3c",
        expect![[r#"
        record undecodable
        announce lower_bound (store_undecodable)
        apply 1
        apply 2
        record flushed
        apply 3
        announce exact host lower_bound (flushed)
    "#]],
    );
}

/// A lost removal or an unknown tag: nothing can be believed.
#[test]
fn undecodable_removal() {
    check(
        vllm_like(),
        "attach; live 0",
        "live 1~; live 2; resync; batch 0; batch 1~; batch 2; end; end",
        expect![[r#"
            record undecodable
            announce none (removal_undecodable)
            apply 1
            apply 2
            record resync_asked
            clear 1 Unproven
            request_replay 0
            announce none (verifying)
            apply 0
            record undecodable
            apply 1
            apply 2
            request_replay 0
            record end_only
            request_replay 0
        "#]],
    );
}

/// A body is asked for once more; the same bytes again are a permanent hole, never a third request.
#[test]
fn undecodable_body() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 2!; batch 0; batch 1; batch 2!; batch 3; end; batch 3; end; live 4",
        expect![[r#"
            record undecodable
            announce none (gap_open)
            request_replay 0
            record undecodable
            record permanent_hole
            clear 1 Unproven
            announce none (history_lost)
            apply 3
            request_replay 1
            record replayed
            cancel
            announce lower_bound (history_lost)
            apply 4
        "#]],
    );
}

/// Without a journal the view starts again behind it.
#[test]
fn undecodable_body_without_replay() {
    check(
        without_replay(),
        "attach; live 0; live 1",
        "live 2!; live 3",
        expect![[r#"
        record undecodable
        record permanent_hole
        announce none (history_lost)
        clear 1 Unproven
        announce lower_bound (history_lost)
        apply 3
    "#]],
    );
}

/// A bridge's reset names its snapshot: install it, never ask for the seqs it covers.
#[test]
fn reset_with_snapshot() {
    check(
        with_snapshot(),
        "attach; live 0; live 1",
        "live 2y; intro 5; records 3; snapshot_end; live 5",
        expect![[r#"
            record reset
            announce none (snapshotting)
            request_snapshot object
            record installed
            install 1 resume 5
            announce exact (contiguous)
            apply 5
        "#]],
    );
}

/// No snapshot: clear, lower bound, go on behind the range.
#[test]
fn reset_without_snapshot() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 2x; live 5",
        expect![[r#"
        record reset
        announce none (history_lost)
        clear 1 Unproven
        announce lower_bound (history_lost)
        apply 5
    "#]],
    );
}

/// A reset behind the cursor changes nothing.
#[test]
fn reset_behind_us() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2; live 3; live 4",
        "live 1x",
        expect![[r#"
            record duplicate
        "#]],
    );
}

/// The first batch of the life was seen: the view equals the engine.
#[test]
fn first_is_zero() {
    check(
        vllm_like(),
        "attach",
        "live 0",
        expect![[r#"
        record first_is_zero
        apply 0
        announce exact (contiguous)
    "#]],
    );
}

/// A flush proves its scope and nothing beyond.
#[test]
fn leading_clear_in_joining() {
    check(
        vllm_like(),
        "attach",
        "live 9c; live 10",
        expect![[r#"
        record flushed
        apply 9
        announce exact host lower_bound (flushed)
        apply 10
    "#]],
    );
}

/// The ordinary case says nothing but apply.
#[test]
fn next() {
    check(
        vllm_like(),
        "attach; live 0",
        "live 1; live 2",
        expect![[r#"
        apply 1
        apply 2
    "#]],
    );
}

/// A warm engine: its journal reaches back to the start.
#[test]
fn joined_late() {
    check(
        vllm_like(),
        "attach",
        "live 3; batch 0; batch 1; batch 2; batch 3; end",
        expect![[r#"
            record joined_late
            request_replay 0
            announce none (joined_late)
            apply 0
            apply 1
            apply 2
            apply 3
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
            record stale_answer
        "#]],
    );
}

/// A source that proves a snapshot is asked for one.
#[test]
fn joined_late_with_snapshot() {
    check(
        with_snapshot(),
        "attach",
        "live 3",
        expect![[r#"
        record joined_late
        request_snapshot fresh
        announce none (snapshotting)
    "#]],
    );
}

/// Nobody can say what was before.
#[test]
fn joined_late_without_anything() {
    check(
        without_replay(),
        "attach",
        "live 3; live 4",
        expect![[r#"
        record joined_late
        record no_history
        clear 1 Unproven
        apply 3
        announce lower_bound (joined_late)
        apply 4
    "#]],
    );
}

/// An engine that says nothing may still hold a cache; exactly the last batch and END prove the
/// end.
#[test]
fn idle_engine_is_asked_on_joining() {
    check(
        vllm_like(),
        "attach",
        "wait 250; batch 0; batch 1; end; batch 0; batch 1; end",
        expect![[r#"
            request_replay 0
            announce none (joined_late)
            apply 0
            apply 1
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// An engine that has published nothing yet.
#[test]
fn empty_journal_in_joining() {
    check(
        vllm_like(),
        "attach",
        "wait 250; end; live 0",
        expect![[r#"
        request_replay 0
        announce none (joined_late)
        record end_only
        cancel
        announce none (joining)
        record first_is_zero
        apply 0
        announce exact (contiguous)
    "#]],
    );
}

/// Trust first, then inclusive of what we hold, then the tail.
// spec: recovery 2.1
#[test]
fn gap() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2",
        "live 5; batch 0; batch 1; batch 2; batch 3; batch 4; batch 5",
        expect![[r#"
            record gap first 3 count 2
            announce none (gap_open)
            request_replay 0
            apply 3
            apply 4
            apply 5
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
        "#]],
    );
}

/// Nothing can be asked: clear, and a lower bound from here.
#[test]
fn gap_without_replay() {
    check(
        without_replay(),
        "attach; live 0; live 1",
        "live 5",
        expect![[r#"
        record gap first 2 count 3
        announce none (gap_open)
        record no_history
        clear 1 Unproven
        apply 5
        announce lower_bound (history_lost)
    "#]],
    );
}

/// A restarted engine that passed our last seq: only bytes tell.
// spec: recovery 2.2
#[test]
fn gap_meets_another_life() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2",
        "live 60; batch 0b",
        expect![[r#"
        record gap first 3 count 57
        announce none (gap_open)
        request_replay 0
        record digest_mismatch
        cancel
        record new_epoch
        clear 2 NewEpoch
        request_replay 0
        announce none (new_epoch)
    "#]],
    );
}

/// Our own queue dropped batches: as a gap whose end is unknown.
#[test]
fn overflowed() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "overflow; batch 0; batch 1; batch 2; end; batch 1; batch 2; end",
        expect![[r#"
            record overflowed
            announce none (gap_open)
            request_replay 0
            apply 2
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// The end of the open replay is not the end of what was dropped.
#[test]
fn overflowed_while_replaying() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 3",
        "overflow; batch 0; batch 1; batch 2; batch 3",
        expect![[r#"
            record overflowed
            apply 2
            apply 3
            record replayed
            cancel
            record duplicate
            request_replay 1
        "#]],
    );
}

/// Once the journal returns what was held; a second time history is given up.
// spec: recovery 3.3
#[test]
fn held_full() {
    check(
        vllm_like(),
        "attach; live 0",
        "live 5; live 6; live 7; live 8; live 9; live 10; live 11; live 12; live 13",
        expect![[r#"
            record gap first 1 count 4
            announce none (gap_open)
            request_replay 0
            record held_full
            record held_full
            record no_history
            cancel
            clear 1 Unproven
            apply 9
            apply 10
            apply 11
            apply 12
            apply 13
            announce lower_bound (history_lost)
        "#]],
    );
}

/// The last applied batch did not come back first: history is gone, not the engine.
// spec: recovery 3.1
#[test]
fn truncated() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 50; batch 48; batch 49; batch 50; live 51",
        expect![[r#"
            record gap first 2 count 48
            announce none (gap_open)
            request_replay 0
            record truncated
            clear 1 Unproven
            apply 48
            announce none (history_lost)
            apply 49
            apply 50
            record replayed
            cancel
            record duplicate
            announce lower_bound (history_lost)
            apply 51
        "#]],
    );
}

/// A snapshot mends what the journal lost.
#[test]
fn truncated_with_snapshot() {
    check(
        with_snapshot(),
        "attach; live 0; live 1",
        "live 50; batch 48; intro 50; records 3; snapshot_end",
        expect![[r#"
            record gap first 2 count 48
            announce none (gap_open)
            request_replay 0
            record truncated
            cancel
            request_snapshot fresh
            announce none (snapshotting)
            record installed
            install 1 resume 50
            apply 50
            announce exact (contiguous)
        "#]],
    );
}

/// The bus knows from its first seq that retention has passed.
#[test]
fn truncated_by_the_bus() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 5@7; truncated",
        expect![[r#"
        record gap first 2 count 3
        announce none (gap_open)
        request_replay 0
        record truncated
        record no_history
        cancel
        clear 7 Unproven
        apply 5
        announce lower_bound (history_lost)
    "#]],
    );
}

/// A jump inside an answer is asked for again.
#[test]
fn hole() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 5; batch 0; batch 1; batch 3; end; batch 0; batch 1; batch 2; batch 3; batch 4; batch 5",
        expect![[r#"
            record gap first 2 count 3
            announce none (gap_open)
            request_replay 0
            record hole
            request_replay 0
            apply 2
            apply 3
            apply 4
            apply 5
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
        "#]],
    );
}

/// The same jump from two complete answers: the engine never had it.
#[test]
fn permanent_hole() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 5; batch 0; batch 1; batch 3; batch 4; end; batch 0; batch 1; batch 3; batch 4; end; batch 3; batch 4; batch 5",
        expect![[r#"
            record gap first 2 count 3
            announce none (gap_open)
            request_replay 0
            record hole
            request_replay 0
            record hole
            record permanent_hole
            cancel
            clear 1 Unproven
            apply 3
            request_replay 1
            announce none (history_lost)
            apply 4
            apply 5
            record replayed
            cancel
            record duplicate
            announce lower_bound (history_lost)
        "#]],
    );
}

/// An answer that breaks off behind its jump proves nothing.
// spec: recovery 2.5
#[test]
fn hole_cut_twice_is_not_permanent() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 9; batch 0; batch 1; batch 3; failed; batch 0; batch 1; batch 3; failed",
        expect![[r#"
            record gap first 2 count 7
            announce none (gap_open)
            request_replay 0
            record hole
            record replay_failed
            cancel
            request_replay 0
            record hole
            record replay_failed
            cancel
            request_replay 0
        "#]],
    );
}

/// No progress: again, up to the limit, then as truncated.
#[test]
fn silent() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 3; wait 5000; wait 5000; wait 5000; wait 5000; wait 15000",
        expect![[r#"
            record gap first 2 count 1
            announce none (gap_open)
            request_replay 0
            record silent
            cancel
            request_replay 0
            record silent
            cancel
            request_replay 0
            record silent
            cancel
            request_replay 0
            record silent
            cancel
            request_replay 0
            record silent
            cancel
            record no_history
            clear 1 Unproven
            apply 3
            announce lower_bound (history_lost)
            record idle
            request_replay 1
        "#]],
    );
}

/// The cut is not proven: again.
#[test]
fn barrier_missed() {
    check(
        with_snapshot(),
        "attach; live 5",
        "live 7; intro 6 barrier 6; records 3; snapshot_end",
        expect![[r#"
            record barrier_missed
            cancel
            request_snapshot fresh
        "#]],
    );
}

/// The marker may come first: what is held is searched.
#[test]
fn barrier_before_header() {
    check(
        with_snapshot(),
        "attach; live 5",
        "live 6; live 7; intro 6 barrier 6; records 3; snapshot_end",
        expect![[r#"
            record installed
            install 1 resume 6
            apply 6
            apply 7
            announce exact (contiguous)
        "#]],
    );
}

/// One capture at a time; retried with back-off.
#[test]
fn busy() {
    check(
        with_snapshot(),
        "attach; live 5",
        "busy; busy",
        expect![[r#"
        record busy
        cancel
        request_snapshot fresh
        record busy
        cancel
        request_snapshot fresh
    "#]],
    );
}

/// A record too few is no snapshot.
#[test]
fn short() {
    check(
        with_snapshot(),
        "attach; live 5",
        "live 6; intro 6 barrier 6; records 2; snapshot_end",
        expect![[r#"
            record short
            cancel
            request_snapshot fresh
        "#]],
    );
}

/// The journal is the next best.
#[test]
fn snapshot_unavailable() {
    check(
        with_snapshot(),
        "attach; live 5",
        "unavailable",
        expect![[r#"
        record snapshot_failed
        cancel
        request_replay 0
    "#]],
    );
}

/// Held goes through the table before anything is announced: here it holds a gap.
#[test]
fn installed() {
    check(
        with_snapshot(),
        "attach; live 5",
        "live 6; live 8; intro 6 barrier 6; records 3; snapshot_end",
        expect![[r#"
            record installed
            install 1 resume 6
            apply 6
            record gap first 7 count 1
            request_replay 4
            announce none (gap_open)
        "#]],
    );
}

/// The same digest: the same life, nothing was lost.
#[test]
fn reattached() {
    check(
        vllm_like(),
        "attach; live 0; live 1; detach",
        "attach; live 2; batch 0; batch 1; batch 2",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            apply 2
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
        "#]],
    );
}

/// Another digest: a new life, learnt from its journal.
#[test]
fn reattached_to_another_life() {
    check(
        vllm_like(),
        "attach; live 0; live 1; detach",
        "attach; batch 0b",
        expect![[r#"
        record reattached
        request_replay 0
        announce none (verifying)
        record digest_mismatch
        cancel
        record new_epoch
        clear 2 NewEpoch
        request_replay 0
        announce none (new_epoch)
    "#]],
    );
}

/// Nothing kept can be proven.
#[test]
fn reattached_without_replay() {
    check(
        without_replay(),
        "attach; live 0; live 1; detach",
        "attach; live 2",
        expect![[r#"
        record reattached
        record no_history
        clear 1 Unproven
        announce lower_bound (history_lost)
        apply 2
    "#]],
    );
}

/// Silence is looked into; trust stays.
#[test]
fn idle() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "wait 10000; batch 0; batch 1; end",
        expect![[r#"
            record idle
            request_replay 0
            record replayed
            cancel
        "#]],
    );
}

/// The last batch was lost and nothing followed.
#[test]
fn idle_finds_a_lost_tail() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "wait 10000; batch 0; batch 1; batch 2; end; wait 1000",
        expect![[r#"
            record idle
            request_replay 0
            apply 2
            record replayed
            cancel
            record tail_loss
        "#]],
    );
}

/// A batch that comes twice is no restart.
// spec: recovery 3.4
#[test]
fn idle_races_with_the_live_copy() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "wait 10000; batch 0; batch 1; batch 2; live 2; end",
        expect![[r#"
            record idle
            request_replay 0
            apply 2
            record duplicate
            record replayed
            cancel
        "#]],
    );
}

/// Nothing at our seq, twice, where it used to answer: another life.
// spec: recovery 2.6
#[test]
fn idle_finds_a_silent_restart() {
    check(
        vllm_like(),
        "attach; live 0; live 1; wait 10000; batch 0; batch 1; end",
        "wait 10000; end; end",
        expect![[r#"
            record idle
            request_replay 0
            record end_only
            announce none (verifying)
            request_replay 0
            record end_only
            cancel
            record new_epoch
            clear 20000 NewEpoch
            request_replay 0
            announce none (new_epoch)
        "#]],
    );
}

/// Nothing at our seq and it never answered: the wrong port, not a restart.
// spec: recovery 2.9
#[test]
fn probe_of_no_use() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "wait 10000; end; end",
        expect![[r#"
        record idle
        request_replay 0
        record end_only
        request_replay 0
        record end_only
        record replay_unusable
        cancel
    "#]],
    );
}

/// A source that cannot see its reconnects is asked also under traffic.
// spec: recovery 2.7
#[test]
fn audit() {
    check(
        unproven(),
        "attach; live 0; live 1",
        "wait 9000; live 2; wait 1000; live 3; batch 0; batch 1; batch 2; batch 3",
        expect![[r#"
            apply 2
            record audit
            request_replay 0
            apply 3
            record replayed
            cancel
            record duplicate
        "#]],
    );
}

/// Neither replay nor snapshot: a lower bound from here on.
#[test]
fn no_history() {
    check(
        without_replay(),
        "attach; live 0; live 1",
        "overflow; live 9",
        expect![[r#"
        record overflowed
        announce none (gap_open)
        record no_history
        clear 1 Unproven
        announce lower_bound (history_lost)
        apply 9
    "#]],
    );
}

/// A destructive source that knows of silent removals: never more than a lower bound, in no life.
// spec: recovery 5.10
#[test]
fn unannounced() {
    check(
        without_replay(),
        "attach",
        "unannounced; live 0; live 1; restarted; live 0",
        expect![[r#"
            record unannounced
            record first_is_zero
            apply 0
            announce lower_bound (unannounced)
            apply 1
            record restarted
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            announce none (joining)
            record first_is_zero
            apply 0
            announce lower_bound (unannounced)
        "#]],
    );
}

/// What another reader took is nowhere, and what it takes next is not seen.
// spec: recovery 7.5
#[test]
fn competing_consumer() {
    check(
        without_replay(),
        "attach; live 0; live 5",
        "competing; live 6",
        expect![[r#"
            record competing_consumer
            announce lower_bound (competing_consumer)
            apply 6
        "#]],
    );
}

/// Nothing proven for a minute is not believed; the next batch proves again.
#[test]
fn lease_expired() {
    check(
        without_replay(),
        "attach; live 0",
        "wait 60000; live 1",
        expect![[r#"
        record lease_expired
        announce none (unproven)
        apply 1
        announce exact (contiguous)
    "#]],
    );
}

/// An observed flush lifts a lower bound, for its scope.
// spec: recovery 5.6
#[test]
fn flushed() {
    check(
        without_replay(),
        "attach; live 5",
        "live 6c; live 7",
        expect![[r#"
        record flushed
        apply 6
        announce exact host lower_bound (flushed)
        apply 7
    "#]],
    );
}

/// A repair proves nothing.
// spec: recovery 5.7
#[test]
fn cleared_by_a_bridge() {
    check(
        with_epoch(),
        "attach; live 0@7",
        "live 1r@7; live 2@7",
        expect![[r#"
        announce lower_bound (history_lost)
        apply 1
        apply 2
    "#]],
    );
}

/// Too many lives in a minute: quarantined.
// spec: recovery 2.8
#[test]
fn two_publishers() {
    check(
        vllm_like(),
        "attach; live 0",
        "restarted; restarted; restarted; restarted; restarted; restarted; live 0; wait 10000",
        expect![[r#"
            record restarted
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            request_replay 0
            record restarted
            cancel
            record new_epoch
            clear 3 NewEpoch
            request_replay 0
            record restarted
            cancel
            record new_epoch
            clear 4 NewEpoch
            request_replay 0
            record restarted
            cancel
            record new_epoch
            clear 5 NewEpoch
            request_replay 0
            record restarted
            cancel
            record new_epoch
            clear 6 NewEpoch
            request_replay 0
            record restarted
            cancel
            record new_epoch
            clear 7 NewEpoch
            record two_publishers
            announce none (two_publishers)
            record unattached
            announce none (joining)
        "#]],
    );
}

/// A removal of what was never stored contradicts exact.
// spec: recovery 5.5
#[test]
fn anomaly() {
    check(
        vllm_like(),
        "attach; live 0",
        "finding; live 1",
        expect![[r#"
        record anomaly
        announce lower_bound (anomaly)
        apply 1
    "#]],
    );
}

/// A flush proved the device's tier alone: what is removed from the host's may be unknown.
#[test]
fn anomaly_in_a_tier_that_is_not_proven() {
    check(
        vllm_like(),
        "attach; live 0; finding host",
        "live 1c; finding host; finding; live 2",
        expect![[r#"
            record flushed
            apply 1
            announce exact host lower_bound (flushed)
            record anomaly
            announce lower_bound (anomaly)
            apply 2
        "#]],
    );
}

/// A batch without a stream.
#[test]
fn unattached() {
    check(
        vllm_like(),
        "",
        "live 0",
        expect![[r#"
        record unattached
    "#]],
    );
}

/// An old attempt changes nothing.
// spec: recovery 6.2
#[test]
fn stale_answer() {
    check(
        vllm_like(),
        "attach; live 0; live 2; batch 0; batch 1; batch 2",
        "batch 3",
        expect![[r#"
            record stale_answer
        "#]],
    );
}

/// A changed start time ends the life although the stream went on.
#[test]
fn restart_evidence() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "restarted; batch 0b; end; batch 0b; end",
        expect![[r#"
            record restarted
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            request_replay 0
            apply 0
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// An operator asks for a proven state.
#[test]
fn resync() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "resync; batch 0; batch 1; end; batch 0; batch 1; end",
        expect![[r#"
            record resync_asked
            announce none (verifying)
            clear 1 Unproven
            request_replay 0
            apply 0
            apply 1
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// Over a limit nothing is kept and nothing is read; released, the journal is asked from its start.
#[test]
fn over_limit() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "over_limit; over_limit; live 2; release; release; wait 250; batch 0; batch 1; batch 2; live 3; end",
        expect![[r#"
            record over_limit
            announce none (over_limit)
            clear 1 OverLimit
            record unattached
            record released
            announce none (joining)
            request_replay 0
            announce none (joined_late)
            apply 0
            apply 1
            apply 2
            request_replay 0
        "#]],
    );
}

/// An operator's resync brings it back too, and what is open is cancelled first.
#[test]
fn over_limit_ends_by_resync() {
    check(
        vllm_like(),
        "attach; live 0; live 4",
        "over_limit; batch 0; end; resync; live 5",
        expect![[r#"
            record over_limit
            cancel
            clear 1 OverLimit
            announce none (over_limit)
            record stale_answer
            record stale_answer
            record resync_asked
            record released
            announce none (joining)
            record joined_late
            request_replay 0
            announce none (joined_late)
        "#]],
    );
}

/// A stream that broke meanwhile is waited for, and one that came back is used.
#[test]
fn released() {
    check(
        without_replay(),
        "attach; live 5; live 6; over_limit",
        "detach; release; attach; live 9; over_limit; detach; attach; release; live 12",
        expect![[r#"
            record released
            announce none (detached)
            announce none (joining)
            record joined_late
            record no_history
            clear 1 Unproven
            apply 9
            announce lower_bound (joined_late)
            record over_limit
            announce none (over_limit)
            clear 1 OverLimit
            record released
            announce none (joining)
            record joined_late
            record no_history
            clear 1 Unproven
            apply 12
            announce lower_bound (joined_late)
        "#]],
    );
}

/// A life that began while nothing was read is still told by its numbers.
#[test]
fn a_restart_while_over_limit_is_a_new_epoch() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2; over_limit",
        "detach; attach; release; live 0; live 1",
        expect![[r#"
            record released
            announce none (joining)
            record rollback
            record new_epoch
            clear 2 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
            apply 1
        "#]],
    );
}

/// A restarted engine that published a little before we reconnected and then went idle: nothing at
/// our seq says whose journal it is, but nothing is risked by reading it from its start.
#[test]
fn no_history_then_idle_finds_the_new_life() {
    check(
        vllm_like(),
        "attach; live 0; live 1; detach; attach; end; end",
        "wait 10000; batch 0b; end; batch 0b; end",
        expect![[r#"
            record idle
            announce none (joined_late)
            request_replay 0
            apply 0
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// Its parts contradict each other: another one may be whole.
#[test]
fn inconsistent() {
    check(
        with_snapshot(),
        "attach; live 5",
        "live 6; intro 6; inconsistent",
        expect![[r#"
        record inconsistent
        cancel
        request_snapshot fresh
    "#]],
    );
}

/// More than is kept of one replica: no second one is asked for.
#[test]
fn too_large() {
    check(
        with_snapshot(),
        "attach; live 5",
        "intro 6; too_large",
        expect![[r#"
        record too_large
        record snapshot_failed
        cancel
        request_replay 0
    "#]],
    );
}

/// A rank that never spoke while others of its instance do: whatever its emptiness looks like.
// spec: recovery 5.13
#[test]
fn rank_missing() {
    check(
        vllm_like(),
        "",
        "rank_missing; rank_missing; attach; detach; attach; live 0; rank_missing; live 1",
        expect![[r#"
            record rank_missing
            announce none (rank_missing)
            record first_is_zero
            apply 0
            announce exact (contiguous)
            apply 1
        "#]],
    );
}
