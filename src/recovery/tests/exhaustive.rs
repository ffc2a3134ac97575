//! Every phase with every input, and random scripts: never a panic, invariants after each step.

use kvbridge_adapters_api::Capabilities;
use kvbridge_schemas::Trust;
use proptest::prelude::*;

use super::{
    drained::{KEPT, drained},
    script::{Script, unproven, vllm_like, with_epoch, with_snapshot, without_replay},
};
use crate::recovery::PhaseKind;

/// A way into each phase.
fn into_phase(phase: PhaseKind) -> (Capabilities, &'static str) {
    match phase {
        PhaseKind::Detached => (vllm_like(), ""),
        PhaseKind::Quarantined => (
            vllm_like(),
            "attach; restarted; restarted; restarted; restarted; restarted; restarted",
        ),
        PhaseKind::Shed => (vllm_like(), "attach; live 0; live 1; over_limit"),
        PhaseKind::Joining => (vllm_like(), "attach"),
        PhaseKind::Verifying => (vllm_like(), "attach; live 0; live 1; detach; attach"),
        PhaseKind::Replaying => (vllm_like(), "attach; live 0; live 1; live 5"),
        PhaseKind::Snapshotting => (with_snapshot(), "attach; live 5"),
        PhaseKind::Live => (vllm_like(), "attach; live 0; live 1"),
        PhaseKind::Partial => (without_replay(), "attach; live 5; live 6"),
    }
}

const INPUTS: &[&str] = &[
    "attach",
    "detach",
    "overflow",
    "end_marker",
    "restarted",
    "competing",
    "resync",
    "over_limit",
    "release",
    "rank_missing",
    "rank_there",
    "finding",
    "finding second_copy",
    "disproved",
    "wait 5000",
    "wait 100000",
    "live 0",
    "live 1",
    "live 1b",
    "live 2",
    "live 5",
    "live 6!",
    "live 7?",
    "live 7~",
    "live 7c",
    "live 7r",
    "live 2@7",
    "live 2+3",
    "live 2x",
    "live 2y",
    "batch 0",
    "batch 1",
    "batch 1b",
    "batch 2",
    "batch 2!",
    "batch 5",
    "batch 9",
    "batch 2x",
    "batch 2y",
    "end",
    "failed",
    "truncated",
    "intro 6 barrier 6",
    "intro 6",
    "records 3",
    "snapshot_end",
    "busy",
    "replay_busy",
    "unavailable",
];

#[test]
fn every_phase_takes_every_input() {
    for phase in PhaseKind::ALL {
        let (capabilities, way) = into_phase(phase);
        for input in INPUTS {
            let mut script = Script::new(capabilities.clone());
            script.run(way);
            assert_eq!(script.recovery.phase(), phase, "the way in leads elsewhere");
            script.run(input);
            // … and a calm hour behind it must not upset the machine either.
            script.run("wait 3600000");
        }
    }
}

/// Held batches of a life before, given up with, whose lease was over before the view was settled:
/// it is over at once, and no deadline stays where it is.
#[test]
fn a_lease_that_is_over_when_it_begins_ends_at_once() {
    let mut script = Script::new(unproven());
    for command in ["attach", "live 1", "wait 100000", "wait 5000", "live 2x", "wait 5000"] {
        script.run(command);
    }
    assert_eq!(script.recovery.standing().0.device, Trust::None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_script_breaks_the_machine(
        kind in 0_usize..6,
        commands in proptest::collection::vec(0..INPUTS.len(), 1..60),
    ) {
        let profiles: [fn() -> Capabilities; 6] =
            [vllm_like, without_replay, unproven, with_epoch, with_snapshot, drained];
        let mut script = Script::new(profiles[kind]());
        if kind == 5 {
            script.run(KEPT);
        }
        for command in commands {
            script.run(INPUTS[command]);
        }
    }
}
