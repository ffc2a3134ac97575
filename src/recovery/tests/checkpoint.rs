//! A process comes back with what it kept: the same life is proven before anything is believed, and
//! then no more than was believed before.

use expect_test::{Expect, expect};
use kvbridge_adapters_api::Capabilities;
use kvbridge_schemas::{Epoch, Scope, Seq, Trust};

use super::script::{Script, unproven, vllm_like, with_epoch, without_replay};
use crate::recovery::{CheckpointFault, Recovery, Settings};

const ONE_LIFE: &str = "attach; live 0; live 1; live 2; live 3; save";

#[expect(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn check(capabilities: Capabilities, before: &str, script: &str, expected: Expect) {
    let mut machine = Script::new(capabilities);
    machine.run(before);
    expected.assert_eq(&machine.run(script));
}

/// What was let go without a word is missing after a restart too.
#[test]
fn unannounced_stays() {
    check(
        vllm_like(),
        "attach; live 0; unannounced; live 1; save",
        "restart; attach; batch 0; batch 1; end; live 2",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            record replayed
            cancel
            announce lower_bound (unannounced)
            apply 2
        "#]],
    );
}

#[test]
fn the_same_life_is_exact_again() {
    check(
        vllm_like(),
        ONE_LIFE,
        "restart; attach; batch 1; batch 2; batch 3; batch 4; end; batch 3; batch 4; end; live 5",
        expect![[r#"
            record reattached
            request_replay 1
            announce none (verifying)
            apply 4
            request_replay 2
            record replayed
            cancel
            announce exact (contiguous)
            apply 5
        "#]],
    );
}

#[test]
fn nothing_is_believed_before_the_comparison() {
    let mut machine = Script::new(vllm_like());
    machine.run(ONE_LIFE);
    machine.run("restart; attach; live 4");
    assert_eq!(machine.recovery.standing().0.device, Trust::None);
    assert_eq!(machine.recovery.cursor().next_seq, Seq(4));
}

#[test]
fn another_digest_is_a_new_epoch() {
    check(
        vllm_like(),
        ONE_LIFE,
        "restart; attach; batch 1; batch 2b",
        expect![[r#"
        record reattached
        request_replay 1
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

#[test]
fn a_restarted_engine_below_the_old_seq_is_a_new_epoch() {
    check(
        vllm_like(),
        ONE_LIFE,
        "restart; attach; live 1b",
        expect![[r#"
        record reattached
        request_replay 1
        announce none (verifying)
        record digest_mismatch
        cancel
        record new_epoch
        clear 2 NewEpoch
        record joined_late
        request_replay 0
        announce none (new_epoch)
    "#]],
    );
    check(
        vllm_like(),
        "attach; live 0; live 1; live 2; live 3; wait 10000; batch 1; batch 2; batch 3; end; save",
        "restart; attach; end; end",
        expect![[r#"
            record reattached
            request_replay 1
            announce none (verifying)
            record end_only
            request_replay 1
            record end_only
            cancel
            record new_epoch
            clear 2 NewEpoch
            request_replay 0
            announce none (new_epoch)
        "#]],
    );
    // The journal was never seen to work: its silence proves nothing, a number going back does.
    check(
        vllm_like(),
        ONE_LIFE,
        "restart; attach; end; end; live 1b",
        expect![[r#"
            record reattached
            request_replay 1
            announce none (verifying)
            record end_only
            request_replay 1
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
            record joined_late
            request_replay 0
        "#]],
    );
}

#[test]
fn a_journal_that_moved_on_is_a_lower_bound() {
    check(
        vllm_like(),
        ONE_LIFE,
        "restart; attach; batch 7; end; batch 7; end",
        expect![[r#"
        record reattached
        request_replay 1
        announce none (verifying)
        record truncated
        clear 1 Unproven
        apply 7
        announce none (history_lost)
        request_replay 5
        record replayed
        cancel
        announce lower_bound (history_lost)
    "#]],
    );
}

#[test]
fn without_a_replay_nothing_of_it_is_used() {
    check(
        without_replay(),
        ONE_LIFE,
        "restart; attach; live 4",
        expect![[r#"
        record reattached
        record no_history
        clear 1 Unproven
        announce lower_bound (history_lost)
        apply 4
    "#]],
    );
}

#[test]
fn losses_outlive_the_process() {
    let mut machine = Script::new(vllm_like());
    machine.run("attach; live 0; live 1?; save; restart");
    expect![[r#"
        record reattached
        request_replay 0
        announce none (verifying)
        record replayed
        cancel
        announce lower_bound (store_undecodable)
    "#]]
    .assert_eq(&machine.run("attach; batch 0; batch 1?; end"));
    let mut machine = Script::new(vllm_like());
    machine.run("attach; live 0; live 1~; save; restart");
    expect![[r#"
        record reattached
        request_replay 0
        announce none (verifying)
        record replayed
        cancel
        announce none (removal_undecodable)
    "#]]
    .assert_eq(&machine.run("attach; batch 0; batch 1~; end"));
    let mut machine = Script::new(without_replay());
    machine.run("attach; live 5; save");
    let saved = machine.saved.unwrap();
    assert_eq!((saved.trust, saved.state.proven), (Trust::LowerBound, None));
}

/// The audit point must survive: a source that cannot see its reconnects may have been spliced
/// anywhere behind it.
#[test]
fn an_unproven_source_is_compared_from_its_last_audit() {
    check(
        unproven(),
        ONE_LIFE,
        "restart; attach; batch 0b",
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

/// The clock stands at zero in all of these: names still grow.
#[test]
fn epochs_grow_whatever_the_clock_says() {
    let mut machine = Script::new(vllm_like());
    machine.run("wait 5000; attach; live 0; live 1; save");
    let first = machine.recovery.cursor().epoch;
    assert!(first > Epoch(1_000));
    machine.run("restart; attach; batch 0b");
    let second = machine.recovery.cursor().epoch;
    assert!(second > first);
    machine.run("batch 0b; batch 1b; end; batch 1b; end; save; forgetful; attach");
    assert!(machine.recovery.cursor().epoch > second, "a lost view is no reason to reuse a name");
}

#[test]
fn a_restored_life_keeps_its_name_when_an_operator_resyncs() {
    let mut machine = Script::new(vllm_like());
    machine.run("wait 5000; attach; live 0; live 1; save");
    let epoch = machine.recovery.cursor().epoch;
    machine.run("restart; attach; batch 0; batch 1; end; resync; batch 0; batch 1; end");
    assert_eq!(machine.recovery.cursor().epoch, epoch);
}

#[test]
fn the_wire_names_the_life_after_a_restart_too() {
    check(
        with_epoch(),
        "attach; live 0@7; live 1@7; save",
        "restart; attach; batch 0@8",
        expect![[r#"
            record reattached
            request_replay 0
            announce none (verifying)
            cancel
            record new_epoch
            clear 8 NewEpoch
            request_replay 0
            announce none (new_epoch)
        "#]],
    );
}

#[test]
fn a_view_that_stands_nowhere_is_not_kept() {
    let mut machine = Script::new(vllm_like());
    assert!(machine.recovery.checkpoint("script").is_none());
    machine.run("attach");
    assert!(machine.recovery.checkpoint("script").is_none());
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut machine = Script::new(vllm_like());
    machine.run(ONE_LIFE);
    let good = machine.saved.unwrap();
    let refused = |change: &dyn Fn(&mut crate::recovery::Checkpoint)| {
        let mut bad = good.clone();
        change(&mut bad);
        Recovery::restored(Settings::new(vllm_like(), 0), bad).err()
    };
    let inconsistent = Some(CheckpointFault::Inconsistent);
    assert_eq!(refused(&|_| ()), None);
    assert_eq!(refused(&|bad| bad.trust = Trust::LowerBound), inconsistent);
    assert_eq!(refused(&|bad| bad.state.host = Trust::None), inconsistent);
    assert_eq!(refused(&|bad| bad.cursor.next_seq = Seq(3)), inconsistent);
    assert_eq!(refused(&|bad| bad.state.digests.swap(0, 1)), inconsistent);
    assert_eq!(
        refused(&|bad| bad.state.stores_lost = Some("?".to_owned())),
        Some(CheckpointFault::UnknownReason)
    );
    // A cap only lowers.
    assert_eq!(refused(&|bad| bad.state.removals_lost = true), None);
    assert_eq!(refused(&|bad| bad.state.proven = Some(Scope::Tiers(Vec::new()))), None);
}
