//! The window on what a log can do to it, and on what it never will.

use proptest::prelude::*;

use super::*;

const LIMITS: ReorderLimits = ReorderLimits { count_max: 4, bytes_max: 100, wait_ms: 50 };

fn place(epoch: u64, seq: u64) -> Place {
    Place { epoch: Epoch(epoch), seq: Seq(seq), span: 1, is_reset: false, bytes: 10 }
}

/// What comes out of a window into which these seqs went, by groups: one for each push.
fn pushed(window: &mut Reorder<u64>, seqs: &[u64]) -> Vec<Vec<u64>> {
    let mut groups = Vec::new();
    for seq in seqs {
        let mut out = Vec::new();
        window.push(Tick(0), place(1, *seq), *seq, &mut out);
        groups.push(out);
    }
    groups
}

#[test]
fn what_runs_ahead_waits_for_what_it_ran_past() {
    let mut window = Reorder::new(LIMITS);
    let groups = pushed(&mut window, &[5, 8, 7, 6, 9]);
    assert_eq!(groups, [vec![5], vec![], vec![], vec![6, 7, 8], vec![9]]);
    assert_eq!((window.deadline(), window.bytes), (None, 0));
}

#[test]
fn the_first_message_is_next_whatever_its_seq() {
    let mut window = Reorder::new(LIMITS);
    assert_eq!(pushed(&mut window, &[100, 98, 101]), [vec![100], vec![98], vec![101]]);
}

#[test]
fn a_full_window_goes_on_with_its_oldest_run() {
    let mut window = Reorder::new(LIMITS);
    // 1 never comes: the fifth one that waits shows the gap, and 6 waits for 5.
    let groups = pushed(&mut window, &[0, 2, 3, 4, 6, 7]);
    assert_eq!(groups[5], [2, 3, 4]);
    let mut out = Vec::new();
    window.flush(&mut out);
    assert_eq!(out, [6, 7]);
}

#[test]
fn bytes_are_a_limit_too() {
    let mut window = Reorder::new(LIMITS);
    let mut out = Vec::new();
    window.push(Tick(0), place(1, 0), 0, &mut out);
    window.push(Tick(0), Place { bytes: 101, ..place(1, 2) }, 2, &mut out);
    assert_eq!(out, [0, 2]);
}

#[test]
fn nothing_waits_longer_than_it_may() {
    let mut window = Reorder::new(LIMITS);
    let mut out = Vec::new();
    window.push(Tick(0), place(1, 0), 0, &mut out);
    window.push(Tick(10), place(1, 2), 2, &mut out);
    window.push(Tick(20), place(1, 5), 5, &mut out);
    assert_eq!(window.deadline(), Some(Tick(60)));
    window.expire(Tick(59), &mut out);
    assert_eq!(out, [0]);
    window.expire(Tick(60), &mut out);
    assert_eq!((out.as_slice(), window.deadline()), ([0, 2].as_slice(), Some(Tick(70))));
    window.expire(Tick(70), &mut out);
    assert_eq!((out.as_slice(), window.deadline()), ([0, 2, 5].as_slice(), None));
}

/// Recovery says `stale_epoch`; a closed life holds nothing of the new one up.
#[test]
fn a_lower_epoch_passes_and_a_higher_one_flushes() {
    let mut window = Reorder::new(LIMITS);
    let mut out = Vec::new();
    window.push(Tick(0), place(2, 5), (2, 5), &mut out);
    window.push(Tick(0), place(2, 8), (2, 8), &mut out);
    window.push(Tick(0), place(1, 99), (1, 99), &mut out);
    assert_eq!(out, [(2, 5), (1, 99)]);
    window.push(Tick(0), place(3, 1), (3, 1), &mut out);
    assert_eq!(out.last(), Some(&(2, 8)), "what waited in the closed life goes first");
    window.push(Tick(0), place(3, 0), (3, 0), &mut out);
    assert_eq!(out, [(2, 5), (1, 99), (2, 8), (3, 0), (3, 1)]);
}

#[test]
fn a_reset_never_waits_and_what_it_covers_is_not_waited_for() {
    let mut window = Reorder::new(LIMITS);
    let mut out = Vec::new();
    window.push(Tick(0), place(1, 0), 0, &mut out);
    window.push(Tick(0), place(1, 9), 9, &mut out);
    let reset = Place { span: 8, is_reset: true, ..place(1, 1) };
    window.push(Tick(0), reset, 1, &mut out);
    assert_eq!(out, [0, 1, 9]);
    let ahead = Place { span: 5, is_reset: true, ..place(1, 20) };
    window.push(Tick(0), ahead, 20, &mut out);
    assert_eq!(out, [0, 1, 9, 20], "recovery sees the gap before it at once");
    window.push(Tick(0), place(1, 11), 11, &mut out);
    assert_eq!(out.last(), Some(&11), "what it ran past comes late and passes");
}

#[test]
fn one_seq_twice_comes_out_twice() {
    let mut window = Reorder::new(LIMITS);
    assert_eq!(
        pushed(&mut window, &[0, 2, 2, 1, 1]),
        [vec![0], vec![], vec![], vec![1, 2, 2], vec![1]]
    );
}

/// Two windows of a publisher; as recovery.md asks.
const WIDE: ReorderLimits = ReorderLimits { count_max: 512, bytes_max: 1 << 20, wait_ms: 50 };

/// A log of `0..count` in which pairs of neighbouring blocks changed places.
fn swapped() -> impl Strategy<Value = (Vec<u64>, usize)> {
    let swap = (0_usize..400, 1_usize..=256, 1_usize..=256);
    (600_u64..2_000, prop::collection::vec(swap, 0..4)).prop_map(|(count, swaps)| {
        let mut log: Vec<u64> = (0..count).collect();
        let mut from = 1;
        for (skip, left, right) in swaps {
            let at = from + skip;
            if at + left + right > log.len() {
                break;
            }
            log[at..at + left + right].rotate_left(left);
            from = at + left + right;
        }
        (log, from)
    })
}

proptest! {
    /// Blocks of up to a publisher's window that changed places are put right, whatever their size.
    #[test]
    fn swapped_blocks_come_out_in_order((log, _) in swapped()) {
        let mut window = Reorder::new(WIDE);
        let mut out = Vec::new();
        for seq in &log {
            window.push(Tick(0), place(1, *seq), *seq, &mut out);
        }
        let count = u64::try_from(log.len()).unwrap();
        prop_assert_eq!(out, (0..count).collect::<Vec<_>>());
    }

    /// In whatever order and with whatever missing: everything comes out, once, within the bounds.
    #[test]
    fn nothing_is_lost_and_the_bounds_hold(
        seqs in prop::collection::vec((0_u64..3, 0_u64..60, 1_u32..4, prop::bool::ANY), 0..200),
    ) {
        let mut window = Reorder::new(LIMITS);
        let mut out = Vec::new();
        for (at, (epoch, seq, span, is_reset)) in seqs.iter().enumerate() {
            let place = Place {
                epoch: Epoch(*epoch), seq: Seq(*seq), span: *span, is_reset: *is_reset, bytes: 10,
            };
            window.push(Tick(u64::try_from(at).unwrap()), place, at, &mut out);
            prop_assert!(window.waiting.len() <= 4);
            let bytes = window.waiting.values().map(|waiting| u64::from(waiting.place.bytes));
            prop_assert_eq!(window.bytes, bytes.sum::<u64>());
        }
        window.flush(&mut out);
        out.sort_unstable();
        prop_assert_eq!(out, (0..seqs.len()).collect::<Vec<_>>());
    }
}
