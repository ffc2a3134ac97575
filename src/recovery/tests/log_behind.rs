//! A log that is behind what its bridges have: it can be read to its end for ever.

use expect_test::expect;
use kvbridge_adapters_api::{Capabilities, Replay};

use super::{script::with_epoch, table::check};

/// A log that is never read back: nothing but time passes in between.
fn unasked() -> Capabilities {
    Capabilities { replay: Replay::Absent, ..with_epoch() }
}

/// The server stores nothing more and passes heartbeats on: each look finds the end of the log and
/// proves nothing of the engine. Trust runs out, and is back with what was missed.
#[test]
fn log_behind() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 1@7 exact view 3; wait 9000; vouch 1@7 exact view 4; wait 1000; batch 0@7; end; \
         wait 49999; batch 0@7; end; wait 1; vouch 1@7 exact view 9; live 1@7; live 2@7; \
         vouch 3@7 exact view 9; live 3@7; wait 999; live 4@7; live 5@7; live 6@7; live 7@7; live 8@7",
        expect![[r#"
            record idle
            request_replay 0
            record replayed
            cancel
            record idle
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
            record idle
            request_replay 0
            record replayed
            cancel
            record log_behind
            announce none (log_behind)
            apply 1
            apply 2
            announce exact (contiguous)
            apply 3
            apply 4
            apply 5
            apply 6
            apply 7
            apply 8
        "#]],
    );
}

/// An engine that runs is always a little ahead of its log: that is no loss, however long it runs.
#[test]
fn a_log_that_keeps_up() {
    check(
        unasked(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 1@7 exact view 2; wait 40000; live 1@7; vouch 2@7 exact view 3; wait 40000; live 2@7; \
         vouch 3@7 exact view 4; wait 40000; live 3@7",
        expect![[r#"
            apply 1
            apply 2
            apply 3
        "#]],
    );
}

/// A bridge that ended was further than the one that goes on, which has all there is.
#[test]
fn log_behind_of_one_that_ended() {
    check(
        unasked(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 1@7 exact view 9; live 1@7; wait 50000; vouch 2@7 exact; live 2@7; wait 50000",
        expect![[r#"
            apply 1
            apply 2
        "#]],
    );
}

/// A new connection, and a view that was fetched, are as old as the log that they are of.
#[test]
fn log_behind_through_a_reconnect() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7; vouch 1@7 exact view 3",
        "wait 9000; detach; attach; batch 0@7; end; wait 51000; vouch 0@8 exact; live 0@8",
        expect![[r#"
            announce none (detached)
            record reattached
            request_replay 0
            announce none (verifying)
            record replayed
            cancel
            announce exact (contiguous)
            record idle
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
            record idle
            request_replay 0
            record silent
            cancel
            request_replay 0
            record log_behind
            announce none (log_behind)
            announce none (bridge_silent)
            cancel
            record new_epoch
            clear 8 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
        "#]],
    );
}

/// What came at the last moment makes what was named soon after it no younger.
#[test]
fn log_behind_again_and_again() {
    check(
        unasked(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 1@7 exact view 2; wait 9000; vouch 1@7 exact view 3; wait 50000; live 1@7; wait 9999; \
         wait 1; live 2@7",
        expect![[r#"
            apply 1
            record log_behind
            announce none (log_behind)
            apply 2
            announce exact (contiguous)
        "#]],
    );
}

/// A reader that starts beside a log that takes nothing knows of no time at which its end was the
/// engine's: it believes nothing until it was where the bridge was when it came.
#[test]
fn catching_up_with_a_late_log() {
    check(
        unasked(),
        "vouch 1@7 exact view 3; attach; live 0@7",
        "wait 60000; live 1@7; vouch 3@7 exact view 9; live 2@7",
        expect![[r#"
            record lease_expired
            record log_behind
            announce none (unproven)
            apply 1
            announce none (log_behind)
            apply 2
            announce exact (contiguous)
        "#]],
    );
}

/// Nor does one that heard nothing for a while, or only of views that are not believed.
#[test]
fn catching_up_after_silence() {
    check(
        unasked(),
        "vouch 1@7 exact; attach; live 0@7",
        "bridge_silent; vouch 1@7 exact view 3; live 1@7; live 2@7; \
         vouch 3@7 none view 4; vouch 3@7 exact view 5; live 3@7; live 4@7",
        expect![[r#"
            record bridge_silent
            announce none (bridge_silent)
            record vouched
            announce none (catching_up)
            apply 1
            apply 2
            announce exact (contiguous)
            announce none (upstream)
            announce none (catching_up)
            apply 3
            apply 4
            announce exact (contiguous)
        "#]],
    );
}
