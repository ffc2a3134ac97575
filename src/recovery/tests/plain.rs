//! Snapshots of hashes alone: when they are asked for, whose they are, and how long they count.

use expect_test::expect;

use super::{
    script::{with_plain_snapshot, with_snapshot},
    table::check,
};

/// A view that rests on a snapshot of an engine that is said to be plain.
const INSTALLED: &str = "attach; live 5 of a; batch 3 of a; live 6 of a; intro 7 barrier 6 of a; \
                         records 3; snapshot_end; live 7 of a";

/// The journal may reach back to the start, and brings content with the blocks.
#[test]
fn joined_late_with_bare_snapshot() {
    check(
        with_plain_snapshot(),
        "attach",
        "live 2 of a; batch 0; batch 1; batch 2 of a",
        expect![[r#"
            record joined_late
            request_replay 0
            announce none (joined_late)
            apply 0
            apply 1
            apply 2
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
        "#]],
    );
}

/// It does not: the snapshot, and the bytes of its marker anchor what follows.
#[test]
fn truncated_with_bare_snapshot() {
    check(
        with_plain_snapshot(),
        "attach; live 5 of a",
        "batch 3 of a; live 6 of a; intro 7 barrier 6 of a; records 3; snapshot_end; live 7 of a; \
         live 9 of a; batch 6 of a; batch 7 of a",
        expect![[r#"
            record truncated
            cancel
            request_snapshot fresh
            announce none (snapshotting)
            record installed
            install 1 resume 7
            announce exact (contiguous)
            apply 7
            record gap first 8 count 1
            announce none (gap_open)
            request_replay 5
        "#]],
    );
}

/// A marker under the right number, of another life.
#[test]
fn barrier_missed_of_another_life() {
    check(
        with_snapshot(),
        "attach; live 5 of a",
        "live 6 of a; intro 6 barrier 6 of b; records 3; snapshot_end",
        expect![[r#"
            record barrier_missed
            cancel
            request_snapshot fresh
        "#]],
    );
}

/// The same without names: a marker has nothing to tell, and this batch has.
#[test]
fn barrier_missed_of_a_nameless_life() {
    for told in ["6c", "6?"] {
        check(
            with_snapshot(),
            "attach; live 5",
            &format!("live {told}; intro 7 barrier 6; records 3; snapshot_end"),
            expect![[r#"
                record barrier_missed
                cancel
                request_snapshot fresh
            "#]],
        );
    }
}

/// The engine restarted, and its snapshot says so before its stream does.
#[test]
fn new_epoch_by_snapshot() {
    check(
        with_snapshot(),
        "attach; live 0 of a; overflow; truncated",
        "intro 6 barrier 6 of b; records 3; snapshot_end",
        expect![[r#"
            cancel
            record new_epoch
            clear 2 NewEpoch
            request_snapshot fresh
        "#]],
    );
}

/// A snapshot of a life that ended is no news.
#[test]
fn stale_epoch_of_a_snapshot() {
    check(
        with_snapshot(),
        "attach; live 0 of a; live 0 of b; overflow; truncated",
        "intro 6 barrier 6 of a; records 3; snapshot_end",
        expect![[r#"
            record stale_epoch
            cancel
            request_snapshot fresh
        "#]],
    );
}

/// The stream shows a second tier: blocks of the snapshot may be in the wrong one.
#[test]
fn disproved() {
    check(
        with_plain_snapshot(),
        INSTALLED,
        "disproved; live 8 of a; batch 7 of a; batch 8 of a; live 9 of a; overflow; truncated",
        expect![[r#"
            record disproved
            announce none (partial_snapshot)
            clear 1 Unproven
            request_replay 0
            record truncated
            clear 1 Unproven
            apply 7
            announce none (joined_late)
            apply 8
            record replayed
            cancel
            record duplicate
            announce lower_bound (joined_late)
            apply 9
            record overflowed
            announce none (gap_open)
            request_replay 7
            record truncated
            record no_history
            cancel
            clear 1 Unproven
            announce lower_bound (history_lost)
        "#]],
    );
}

/// Nothing rests on it: what is there stays.
#[test]
fn disproved_before_anything_rests_on_it() {
    check(
        with_plain_snapshot(),
        "attach; live 0 of a",
        "disproved; live 1 of a",
        expect![[r#"
            record disproved
            apply 1
        "#]],
    );
}

/// A second page under one hash: the snapshot counted one where there may be more.
#[test]
fn disproved_by_a_second_copy() {
    check(
        with_plain_snapshot(),
        INSTALLED,
        "finding second_copy; live 8 of a; finding second_copy",
        expect![[r#"
            record disproved
            announce lower_bound (partial_snapshot)
            apply 8
        "#]],
    );
}

/// Copies are no news to a view that counts them.
#[test]
fn second_copy_of_what_is_counted() {
    check(
        with_snapshot(),
        "attach; live 0",
        "finding second_copy; live 1",
        expect![[r#"
        apply 1
    "#]],
    );
}

/// After a flush nothing rests on the snapshot any more.
#[test]
fn disproved_after_a_flush() {
    check(
        with_plain_snapshot(),
        INSTALLED,
        "live 8c; disproved; finding second_copy",
        expect![[r#"
            record flushed
            announce exact host lower_bound (flushed)
            apply 8
            record disproved
        "#]],
    );
}
