//! The demonstration, played to its end: what it shows is true, and it would say if it were not.

use crate::program::{Running, kvbridge};

#[test]
fn every_view_ends_exact_and_equal_to_its_engines_truth() {
    let (code, out) = Running::start(kvbridge().args(["demo", "--fast", "--port", "0"])).end(None);
    assert_eq!(code, 0, "{out}");
    for seen in [
        "exact (contiguous) → none (gap_open) → exact (contiguous)",
        "→ lower_bound (history_lost)",
        "→ new epoch: ",
        "blocks, all of them real, of ",
        "blocks == truth",
        "every view is exact and equal to its engine's truth",
    ] {
        assert!(out.contains(seen), "{seen} in {out}");
    }
}

#[test]
#[cfg(feature = "planted")]
fn a_view_that_is_not_the_truth_is_told_and_fails() {
    let args = ["demo", "--fast", "--port", "0", "--plant"];
    let (code, out) = Running::start(kvbridge().args(args)).end(None);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("WRONG: exact, and "), "{out}");
    assert!(out.contains("times a view was not what it said"), "{out}");
}

#[test]
fn an_interrupt_ends_it_in_order() {
    let mut demo = Running::start(kvbridge().args(["demo", "--port", "0"]));
    assert!(demo.line().contains("demo, the page is at http://127.0.0.1:"));
    assert_eq!(demo.end(Some("-INT")).0, 130);
}
