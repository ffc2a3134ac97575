//! What the bridges behind a log say: a cap, a deadline, and a reason to fetch.

use expect_test::expect;

use super::{
    script::{Script, vllm_like, with_epoch, with_stored_snapshot},
    table::check,
};

/// Nobody speaks for the log: contiguous is not enough.
#[test]
fn bridge_silent() {
    check(
        with_epoch(),
        "bridge_silent; attach; live 0@7; live 1@7",
        "vouch 2@7 exact; live 2@7; bridge_silent; live 3@7; vouch 3@7 exact",
        expect![[r#"
            record vouched
            announce exact (contiguous)
            apply 2
            record bridge_silent
            announce none (bridge_silent)
            apply 3
            record vouched
            announce exact (contiguous)
        "#]],
    );
}

/// A view that began behind the end of the log is not believed before it came there.
#[test]
fn catching_up() {
    check(
        with_epoch(),
        "vouch 3@7 exact; attach",
        "live 0@7; live 1@7; live 2@7; vouch 9@7 exact; live 3@7",
        expect![[r#"
            record new_epoch
            clear 7 NewEpoch
            record first_is_zero
            apply 0
            announce none (catching_up)
            apply 1
            apply 2
            announce exact (contiguous)
            apply 3
        "#]],
    );
}

/// Bridges believe more from a place on: a view that is not there yet may still lack what they did.
#[test]
fn a_rise_counts_from_where_it_was_said() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7; vouch 1@7 lower_bound",
        "vouch 3@7 exact; live 1@7; vouch 4@7 exact; live 2@7; live 3@7",
        expect![[r#"
            apply 1
            apply 2
            announce exact (contiguous)
            apply 3
        "#]],
    );
}

/// Never more than the bridges believe, and a word of another life is none.
#[test]
fn vouched() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 1@7 lower_bound; vouch 1@7 none; vouch 1@7 exact; vouch 0@8 exact; live 0@8",
        expect![[r#"
            announce lower_bound (upstream)
            announce none (upstream)
            announce exact (contiguous)
            announce none (bridge_silent)
            record new_epoch
            clear 8 NewEpoch
            record first_is_zero
            apply 0
            announce exact (contiguous)
        "#]],
    );
}

/// The log is ahead and nothing comes: it is read, and trust stays.
#[test]
fn tail_behind() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 2@7 exact; wait 999; wait 1; batch 0@7; batch 1@7; end; wait 5000",
        expect![[r#"
            record tail_behind
            request_replay 0
            apply 1
            record replayed
            cancel
            record tail_loss
        "#]],
    );
}

/// A heartbeat that overtakes its data is no loss.
#[test]
fn a_heartbeat_may_overtake_its_data() {
    check(
        with_epoch(),
        "vouch 1@7 exact; attach; live 0@7",
        "vouch 2@7 exact; wait 900; live 1@7; wait 3000",
        expect![[r#"
            apply 1
        "#]],
    );
}

/// A lower bound beside a bridge that believes more is fetched anew, and not all the time.
#[test]
fn refetched() {
    check(
        with_stored_snapshot(),
        "vouch 1@7 exact; attach; live 0@7",
        "live 1?@7; intro 2; records 3; snapshot_end; batch 1@7; end; live 2?@7; wait 5000",
        expect![[r#"
            record undecodable
            announce lower_bound (store_undecodable)
            apply 1
            record refetched
            announce none (snapshotting)
            request_snapshot fresh
            record installed
            install 7 resume 2
            request_replay 0
            record replayed
            cancel
            announce exact (contiguous)
            record undecodable
            announce lower_bound (store_undecodable)
            apply 2
        "#]],
    );
}

/// A reset emptied the view. The bridge believes as much of its own, which the reset did not empty:
/// that is fetched, once for the reset.
#[test]
fn refetched_behind_a_reset() {
    check(
        with_stored_snapshot(),
        "vouch 1@7 lower_bound; attach; live 0@7",
        "live 1x@7; vouch 4@7 lower_bound; intro 4; records 3; snapshot_end; end; batch 1x@7; end; \
         wait 40000; vouch 4@7 lower_bound",
        expect![[r#"
            record reset
            announce none (history_lost)
            clear 7 Unproven
            record refetched
            request_snapshot fresh
            announce none (snapshotting)
            record installed
            install 7 resume 4
            request_replay 1
            record end_only
            request_replay 1
            record replayed
            cancel
            announce lower_bound (upstream)
            record idle
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
        "#]],
    );
}

/// Where no bridge speaks there is nobody to fetch from.
#[test]
fn a_reset_by_a_bridge_that_is_silent() {
    check(
        with_stored_snapshot(),
        "vouch 1@7 exact; attach; live 0@7; bridge_silent",
        "live 1x@7; wait 40000",
        expect![[r#"
            record reset
            clear 7 Unproven
            record idle
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
            request_replay 1
            record silent
            cancel
        "#]],
    );
}

/// A look that is under way begins too late: the one for the log takes its place.
#[test]
fn look_from_while_looking() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2; live 3; live 4; live 5; live 6; live 7; wait 10000",
        "look_from 2; batch 2; batch 7; end; live 8",
        expect![[r#"
            cancel
            request_replay 2
            record replayed
            cancel
            apply 8
        "#]],
    );
}

/// What the first look held does not wait until the second may ask.
#[test]
fn look_from_lets_go_what_was_held() {
    let mut script = Script::new(vllm_like()).paced(400, 400);
    script.run("attach; live 0; live 1; live 2; live 3; live 4; look_from 2; live 5");
    expect![[r#"
        cancel
        apply 5
        apply 6
        request_replay 3
    "#]]
    .assert_eq(&script.run("look_from 3; live 6; wait 700"));
}

/// Neither snapshot nor journal helped once: a better view is fetched again all the same.
#[test]
fn a_failed_fetch_is_not_the_last() {
    check(
        with_stored_snapshot(),
        "vouch 5@7 exact; attach; live 5@7",
        "unavailable; wait 300; truncated; live 6@7; wait 5000",
        expect![[r#"
            record snapshot_failed
            cancel
            request_replay 0
            record truncated
            record no_history
            cancel
            clear 7 Unproven
            apply 5
            record refetched
            request_snapshot fresh
            record silent
            cancel
            request_snapshot fresh
        "#]],
    );
}

/// A log lacks older batches: the look begins there, and a live batch does not end it.
#[test]
fn look_from() {
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2; live 3; live 4; live 5; live 6; live 7",
        "look_from 2; live 8; batch 2; batch 7; batch 8; end; live 9",
        expect![[r#"
            request_replay 2
            apply 8
            record replayed
            cancel
            record duplicate
            record stale_answer
            apply 9
        "#]],
    );
}

/// The engine's journal has lost what another bridge still has: the view stays exact.
#[test]
fn healed_by_twin() {
    check(
        vllm_like(),
        "attach; live 0; live 1",
        "live 4; from_twin 2; batch 1; batch 2; batch 3; batch 4",
        expect![[r#"
            record gap first 2 count 2
            announce none (gap_open)
            request_replay 0
            record healed_by_twin
            apply 2
            apply 3
            apply 4
            record replayed
            cancel
            record duplicate
            announce exact (contiguous)
        "#]],
    );
}
