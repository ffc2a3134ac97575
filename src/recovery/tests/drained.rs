//! A source that is drained: it has no journal, and keeps what nobody has read.

use expect_test::expect;
use kvbridge_adapters_api::{Capabilities, Drain};
use kvbridge_schemas::Trust;

use super::{
    script::{Script, without_replay},
    table::check,
};
use crate::recovery::TrustReason;

pub(super) fn drained() -> Capabilities {
    Capabilities { drain: Drain::Destructive, ..without_replay() }
}

/// A view that was kept, and its process begins again.
pub(super) const KEPT: &str = "attach; live 0; live 1; save; restart";

/// Never exact, also where nothing seems to be missing, until the engine's next life.
// spec: recovery 7.5
#[test]
fn a_second_reader_ends_exact_until_the_next_life() {
    check(
        drained(),
        "attach; live 0; live 1",
        "live 5; competing; live 6; live 9; restarted; live 0; competing; live 1",
        expect![[r#"
            record gap first 2 count 3
            announce none (gap_open)
            record no_history
            clear 1 Unproven
            apply 5
            announce lower_bound (history_lost)
            record competing_consumer
            announce lower_bound (competing_consumer)
            apply 6
            record gap first 7 count 2
            announce none (gap_open)
            record no_history
            clear 1 Unproven
            apply 9
            announce lower_bound (competing_consumer)
            record restarted
            announce none (new_epoch)
            record new_epoch
            clear 2 NewEpoch
            announce none (joining)
            record first_is_zero
            apply 0
            announce exact (contiguous)
            record competing_consumer
            announce none (gap_open)
            record no_history
            clear 2 Unproven
            announce lower_bound (competing_consumer)
            apply 1
        "#]],
    );
}

/// What came while nobody read is still there: the next id is the proof that nothing is missing.
// spec: recovery 7.6
#[test]
fn a_kept_view_goes_on_with_the_next_id() {
    check(
        drained(),
        KEPT,
        "attach; wait 200000; live 2; live 3",
        expect![[r#"
        record reattached
        announce none (verifying)
        record resumed
        apply 2
        announce exact (contiguous)
        apply 3
    "#]],
    );
}

#[test]
fn a_kept_view_ends_with_another_id_a_loss_of_others_or_a_new_process() {
    for script in
        ["live 3; live 4", "overflow; live 2", "competing; live 2", "detach; attach; live 2"]
    {
        let mut machine = Script::new(drained());
        machine.run(&format!("{KEPT}; attach; {script}"));
        assert_eq!(machine.recovery.standing().0.device, Trust::LowerBound, "{script}");
    }
    let mut machine = Script::new(drained());
    let epoch = machine.recovery.cursor().epoch;
    let said = machine.run(&format!("{KEPT}; attach; restarted; live 0"));
    assert!(said.contains("clear") && machine.recovery.cursor().epoch > epoch, "{said}");
    assert_eq!(machine.recovery.standing().0.device, Trust::Exact);
}

#[test]
fn a_kept_view_remembers_that_blocks_go_without_a_word() {
    let mut machine = Script::new(drained());
    let before = "attach; unannounced; live 0; save; restart; attach; live 1";
    machine.run(before);
    let (trust, reason) = machine.recovery.standing();
    assert_eq!((trust.device, reason), (Trust::LowerBound, TrustReason::Unannounced));
}

/// Until it is attached anew: that may be another engine, or another release of it.
// spec: recovery 5.10
#[test]
fn that_blocks_go_without_a_word_is_said_at_each_attachment() {
    let mut machine = Script::new(drained());
    machine.run("attach; unannounced; live 0; restarted; live 0");
    assert_eq!(machine.recovery.standing().1, TrustReason::Unannounced);
    machine.run("detach; attach; restarted; live 0");
    assert_eq!(machine.recovery.standing().1, TrustReason::Contiguous);
}

#[test]
fn a_kept_lower_bound_stays_one() {
    let mut machine = Script::new(drained());
    machine.run("attach; live 3; live 4; save; restart; attach; live 5");
    assert_eq!(machine.recovery.standing().0.device, Trust::LowerBound);
    assert_eq!(machine.recovery.cursor().next_seq.0, 6);
}
