//! A hole, its two sides, and what a log must say between them.

use kvbridge_schemas::{HashInfo, HashScheme, Reset, digest};

use super::*;

const LIFE: Epoch = Epoch(7);

fn batch(seq: u64) -> Batch {
    Batch {
        epoch: Some(LIFE),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: digest(&seq.to_le_bytes()),
        ts: 0,
        format: "test",
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 16 },
        rank: None,
        events: Vec::new(),
        loss: Loss::Nothing,
        bytes: 1,
    }
}

fn place(seq: u64) -> (Seq, Digest) {
    (Seq(seq), batch(seq).digest)
}

fn ours(seq: u64) -> Batch {
    Batch { epoch: None, ..batch(seq) }
}

/// 4 is held, the journal goes on with 7.
fn hole() -> Healing {
    Healing::new(LIFE, place(4), place(7)).unwrap()
}

fn take(healing: &mut Healing, batches: impl IntoIterator<Item = Batch>) -> Vec<Step> {
    batches.into_iter().map(|batch| healing.take(batch, Trust::Exact)).collect()
}

#[test]
fn a_log_that_fits_on_both_sides_closes_the_hole() {
    let mut healing = hole();
    let steps = take(&mut healing, [2, 3, 4, 5, 6, 5, 6, 7].map(batch));
    let expected = [
        Step::Wait,
        Step::Wait,
        Step::Wait,
        Step::Take(ours(4)),
        Step::Take(ours(5)),
        Step::Wait,
        Step::Wait,
        Step::Joined(ours(6)),
    ];
    assert_eq!(steps, expected);
    assert_eq!(healing.missing(), Seq(5));
}

#[test]
fn a_journal_that_begins_right_behind_us_is_tied_to_us_by_the_log() {
    let mut healing = Healing::new(LIFE, place(4), place(5)).unwrap();
    assert_eq!(take(&mut healing, [4, 5].map(batch)), [Step::Wait, Step::Joined(ours(4))]);
    assert!(Healing::new(LIFE, place(4), place(4)).is_none());
}

#[test]
fn bytes_that_differ_on_either_side_end_it() {
    let other = |seq| Batch { digest: digest(b"another life"), ..batch(seq) };
    assert_eq!(take(&mut hole(), [other(4)]), [Step::Failed]);
    let steps = take(&mut hole(), [batch(4), batch(5), batch(6), other(7)]);
    assert_eq!(steps.last(), Some(&Step::Failed));
    // Not all was given: what the journal goes on with cannot follow it as the next one.
    assert!(!steps.contains(&Step::Take(ours(6))));
}

#[test]
fn what_the_log_lacks_or_does_not_know_ends_it() {
    let reset = Event::Reset(Reset {
        cause: "permanent_hole".to_owned(),
        trust: Trust::LowerBound,
        snapshot: None,
    });
    for bad in [
        batch(6),
        Batch { epoch: Some(Epoch(8)), ..batch(5) },
        Batch { span: 2, ..batch(5) },
        Batch { events: vec![reset], ..batch(5) },
        Batch { loss: Loss::Body, ..batch(5) },
    ] {
        assert_eq!(take(&mut hole(), [batch(4), bad]), [Step::Wait, Step::Failed]);
    }
    let mut unsure = hole();
    assert_eq!(unsure.take(batch(4), Trust::None), Step::Wait);
    assert_eq!(unsure.take(batch(5), Trust::LowerBound), Step::Failed);
}
