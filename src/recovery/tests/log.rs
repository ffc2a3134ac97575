//! What is true of a log that names lives, numbers its messages and keeps views: a bus.

use expect_test::expect;

use super::{
    script::{with_epoch, with_stored_snapshot},
    table::check,
};

/// Nothing live proves a stored cut: what came behind it is asked for before it is believed.
#[test]
fn installed_from_a_store() {
    check(
        with_stored_snapshot(),
        "attach; live 5@0",
        "intro 3; records 3; snapshot_end; batch 2@0; batch 3@0; batch 4@0; batch 5@0",
        expect![[r#"
            record installed
            install 0 resume 3
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

/// The log behind a stored cut is gone, and no newer one is stored: a lower bound follows.
#[test]
fn installed_from_a_store_too_old() {
    check(
        with_stored_snapshot(),
        "attach; live 5@0",
        "intro 3; records 3; snapshot_end; truncated; unavailable; truncated",
        expect![[r#"
            record installed
            install 0 resume 3
            request_replay 0
            record truncated
            cancel
            request_snapshot fresh
            record snapshot_failed
            cancel
            request_replay 0
            record truncated
            record no_history
            cancel
            clear 0 Unproven
            apply 5
            announce lower_bound (history_lost)
        "#]],
    );
}

/// The log went on while a stored cut was installed: a newer one is stored by then, but not for
/// ever.
// spec: recovery 5.9
#[test]
fn installed_behind_what_was_evicted() {
    check(
        with_stored_snapshot(),
        "attach; live 5@0",
        "intro 3; records 3; snapshot_end; truncated; intro 5; records 3; snapshot_end; \
         batch 4@0; batch 5@0; resync; intro 3; records 3; snapshot_end; truncated; intro 3; \
         records 3; snapshot_end; truncated; intro 3; records 3; snapshot_end; truncated",
        expect![[r#"
            record installed
            install 0 resume 3
            request_replay 0
            record truncated
            cancel
            request_snapshot fresh
            record installed
            install 0 resume 5
            request_replay 2
            apply 5
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
            record resync_asked
            announce none (verifying)
            clear 0 Unproven
            request_snapshot fresh
            announce none (snapshotting)
            record installed
            install 0 resume 3
            request_replay 0
            record truncated
            cancel
            request_snapshot fresh
            record installed
            install 0 resume 3
            request_replay 0
            record truncated
            cancel
            request_snapshot fresh
            record installed
            install 0 resume 3
            request_replay 0
            record truncated
            record no_history
            cancel
            clear 0 Unproven
            announce lower_bound (history_lost)
        "#]],
    );
}

/// Nothing is left of what the view stands on, but the log's own numbers say that nothing followed.
// spec: recovery 2.10
#[test]
fn continues_by_the_numbers_of_the_log() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "wait 10000; continues 2@7; end; detach; attach; continues 2@7; batch 2@7; end; end",
        expect![[r#"
            record idle
            request_replay 0
            record replayed
            cancel
            announce none (detached)
            record reattached
            request_replay 0
            announce none (verifying)
            apply 2
            request_replay 0
            record end_only
            request_replay 0
        "#]],
    );
}

/// Numbers of another place or life prove nothing.
#[test]
fn continues_elsewhere() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7; detach",
        "attach; continues 3@7; batch 3@7",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            record truncated
            clear 7 Unproven
            apply 3
            announce none (history_lost)
        "#]],
    );
}

/// A reset has no bytes to compare; on a log that names lives it is a place like any.
#[test]
fn reset_anchors_what_follows() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1x@7; detach",
        "attach; batch 1x@7; batch 4@7; end; batch 4@7; end",
        expect![[r#"
            record reattached
            request_replay 1
            announce none (verifying)
            apply 4
            request_replay 2
            record replayed
            cancel
            announce lower_bound (history_lost)
        "#]],
    );
}

/// Of a quiet replica the log keeps the newest batch only: whoever stands behind it misses nothing.
// spec: recovery 2.10
#[test]
fn continues_although_the_start_is_lost() {
    check(
        with_stored_snapshot(),
        "attach; live 5@0",
        "intro 6; records 3; snapshot_end; continues 6@0; truncated; wait 10000; continues 6@0; \
         truncated",
        expect![[r#"
            record installed
            install 0 resume 6
            request_replay 3
            record replayed
            cancel
            announce exact (contiguous)
            record idle
            request_replay 3
            record replayed
            cancel
        "#]],
    );
}

/// The log ends elsewhere, or goes on behind where it said so: then a lost start is one.
#[test]
fn continues_elsewhere_and_the_start_is_lost() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "wait 10000; continues 3@7; truncated; wait 10000; continues 2@7; batch 1@7; truncated",
        expect![[r#"
            record idle
            request_replay 0
            record truncated
            record no_history
            cancel
            announce none (history_lost)
            clear 7 Unproven
            announce lower_bound (history_lost)
            record idle
            announce none (joined_late)
            request_replay 0
            record truncated
            clear 7 Unproven
            apply 1
            announce none (history_lost)
            record truncated
            record no_history
            cancel
            clear 7 Unproven
            announce lower_bound (history_lost)
        "#]],
    );
}

/// Held batches that join follow at once; before those that do not something is missing.
#[test]
fn continues_and_held_batches_follow() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7; detach; attach",
        "live 2@7; continues 2@7; truncated; detach; attach; live 5@7; continues 3@7; truncated; \
         end",
        expect![[r#"
            record replayed
            cancel
            apply 2
            announce exact (contiguous)
            announce none (detached)
            record reattached
            request_replay 0
            announce none (verifying)
            request_replay 0
        "#]],
    );
}

/// Whoever has no time for a replay says nothing of the log: nothing is cleared, however often.
#[test]
fn replay_busy() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7; detach; attach",
        "replay_busy; wait 4000; replay_busy; wait 4000; replay_busy; wait 4000; replay_busy; \
         wait 4000; replay_busy; wait 4000; replay_busy; wait 4000; batch 1@7; end",
        expect![[r#"
            record busy
            cancel
            request_replay 0
            record busy
            cancel
            request_replay 0
            record busy
            cancel
            request_replay 0
            record busy
            cancel
            request_replay 0
            record busy
            cancel
            request_replay 0
            record busy
            cancel
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
        "#]],
    );
}

/// Of two bridges that take turns the former one was frozen with batches 2 to 4 in its hands, and
/// the next one said that they were lost. Behind that word they are old news: nothing is applied
/// twice.
// spec: lives 5.5
#[test]
fn late_batches_behind_the_reset_that_covers_them() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 2x@7; live 5@7; live 2@7; live 3@7; live 4@7; live 6@7",
        expect![[r#"
            record reset
            announce none (history_lost)
            clear 7 Unproven
            announce lower_bound (history_lost)
            apply 5
            record duplicate
            record duplicate
            record duplicate
            apply 6
        "#]],
    );
}

/// They came first, so nothing was lost to this reader: the reset is behind it.
// spec: lives 5.5
#[test]
fn late_batches_ahead_of_the_reset_that_covers_them() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 2@7; live 3@7; live 4@7; live 2x@7; live 5@7",
        expect![[r#"
            apply 2
            apply 3
            apply 4
            record duplicate
            apply 5
        "#]],
    );
}

/// The reset came between them: what follows it counts, what it covers is gone.
// spec: lives 5.5
#[test]
fn late_batches_on_both_sides_of_the_reset_that_covers_them() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7",
        "live 2@7; live 2x@7; live 3@7; live 5@7; live 4@7; live 6@7",
        expect![[r#"
            apply 2
            record reset
            announce none (history_lost)
            clear 7 Unproven
            announce lower_bound (history_lost)
            record duplicate
            apply 5
            record duplicate
            apply 6
        "#]],
    );
}
