//! The lane, row by row.

use super::*;

fn lane() -> Lane {
    let replica = Replica { model: "m".into(), instance: "h:1".into(), rank: 0 };
    Lane::new(replica, EngineKind::Vllm, Arc::from("b"))
}

fn batch(epoch: u64, seq: u64, byte: u8) -> Arc<Envelope> {
    Arc::new(Envelope {
        replica: Replica { model: "m".into(), instance: "h:1".into(), rank: 0 },
        epoch: Epoch(epoch),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([byte; 16]),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        events: Vec::new(),
    })
}

/// Applies the seqs of epoch 1 and shows what is written: `7` a batch, `3+2 cause` a reset.
fn apply(lane: &mut Lane, seqs: impl IntoIterator<Item = u64>) -> String {
    let mut out = Vec::new();
    for seq in seqs {
        lane.applied(batch(1, seq, 1), &mut out);
    }
    show(&out)
}

fn settle(lane: &mut Lane, next_seq: u64) -> String {
    let mut out = Vec::new();
    let cursor = Cursor { epoch: Epoch(1), next_seq: Seq(next_seq) };
    lane.settled(cursor, Trust::LowerBound, &mut out);
    show(&out)
}

fn show(out: &[Outgoing]) -> String {
    let shown = out.iter().map(|message| {
        let envelope = &message.envelope;
        match envelope.events.first() {
            Some(Event::Reset(reset)) => {
                format!("{}+{} {}", envelope.seq, envelope.span, reset.cause)
            }
            _ => envelope.seq.to_string(),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_contiguous_is_written_as_it_is() {
    let mut lane = lane();
    assert_eq!(apply(&mut lane, 0..3), "0, 1, 2");
    assert_eq!(settle(&mut lane, 3), "");
}

#[test]
fn a_late_start_and_a_hole_are_covered_exactly() {
    let mut lane = lane();
    assert_eq!(apply(&mut lane, [7, 8, 11]), "0+7 joined_late, 7, 8, 9+2 permanent_hole, 11");
}

#[test]
fn a_reset_has_an_id_space_of_its_own() {
    let mut lane = lane();
    let mut out = Vec::new();
    lane.applied(batch(1, 2, 1), &mut out);
    lane.applied(batch(1, 4, 1), &mut out);
    let ids: Vec<&str> = out.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids, ["m.h=3A1.0/1/0/b/1", "m.h=3A1.0/1/2", "m.h=3A1.0/1/3/b/2", "m.h=3A1.0/1/4"]);
}

#[test]
fn a_poison_batch_is_covered_before_the_next_one_comes() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    assert_eq!(settle(&mut lane, 4), "3+1 permanent_hole");
    assert_eq!(apply(&mut lane, [4]), "4");
}

#[test]
fn a_resync_that_proves_the_same_life_writes_nothing_twice() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    assert_eq!(apply(&mut lane, 0..5), "3, 4");
    assert_eq!(settle(&mut lane, 5), "");
}

#[test]
fn a_resync_into_other_bytes_is_a_reset() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    let mut out = Vec::new();
    for seq in 0..5 {
        lane.applied(batch(1, seq, 9), &mut out);
    }
    assert_eq!(show(&out), "3+1 unproven, 4");
}

#[test]
fn a_clear_that_nothing_proves_is_said_although_no_seq_is_missing() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    assert_eq!(settle(&mut lane, 0), "3+1 unproven");
    // Its place is taken: the batch of that seq would be a second message for one place.
    assert_eq!(apply(&mut lane, [3, 4]), "4");
}

#[test]
fn a_new_life_starts_a_new_log_and_an_old_one_is_over() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    let mut out = Vec::new();
    lane.applied(batch(2, 0, 1), &mut out);
    lane.applied(batch(1, 3, 1), &mut out);
    assert_eq!(show(&out), "0");
    assert_eq!(out[0].id, "m.h=3A1.0/2/0");
}

#[test]
fn what_had_no_room_is_covered_when_there_is() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    let mut out = Vec::new();
    lane.applied(batch(1, 3, 1), &mut out);
    lane.left_out(out);
    assert!(lane.is_behind());
    assert_eq!(settle(&mut lane, 9), "3+6 spool_overflow");
    assert_eq!(apply(&mut lane, [9]), "9");
}

#[test]
fn a_reset_that_had_no_room_is_still_owed() {
    let mut lane = lane();
    apply(&mut lane, 0..3);
    lane.cleared();
    let mut out = Vec::new();
    lane.settled(Cursor { epoch: Epoch(1), next_seq: Seq(3) }, Trust::Exact, &mut out);
    assert_eq!(show(&out), "3+1 unproven");
    lane.left_out(out);
    assert_eq!(settle(&mut lane, 3), "3+1 unproven");
}

#[test]
fn a_life_without_a_batch_owes_nothing_for_what_had_no_room() {
    for epoch in [0, 2] {
        let mut lane = lane();
        let mut out = Vec::new();
        lane.applied(batch(1, 0, 1), &mut out);
        lane.left_out(out);
        let mut out = Vec::new();
        let cursor = Cursor { epoch: Epoch(epoch), next_seq: Seq(0) };
        lane.settled(cursor, Trust::LowerBound, &mut out);
        assert_eq!((show(&out), lane.is_behind()), (String::new(), false));
    }
}

#[test]
fn a_log_of_somebody_is_gone_on_with_where_it_ends() {
    let mut lane = lane();
    lane.go_on(Cursor { epoch: Epoch(1), next_seq: Seq(5) }, []);
    assert_eq!(apply(&mut lane, 3..7), "5, 6");
    let mut lane = self::lane();
    lane.go_on(Cursor { epoch: Epoch(1), next_seq: Seq(5) }, []);
    assert_eq!(apply(&mut lane, [8]), "5+3 permanent_hole, 8");
}

#[test]
fn what_was_handed_over_is_not_written_again_when_the_log_is_looked_at() {
    let mut lane = lane();
    let at = |next_seq| Cursor { epoch: Epoch(1), next_seq: Seq(next_seq) };
    apply(&mut lane, 0..5);
    // Two of them are still on their way.
    lane.go_on(at(3), []);
    assert_eq!(apply(&mut lane, [3, 4, 5]), "5");
    // A doubt stays where the log tells nothing new, and not where a twin was compared.
    lane.cleared();
    lane.go_on(at(6), []);
    assert_eq!(apply(&mut lane, [6]), "6+1 unproven");
    lane.cleared();
    lane.go_on(at(9), []);
    assert_eq!(apply(&mut lane, 7..11), "9, 10");
}

#[test]
fn what_is_missing_below_the_end_of_a_log_is_written_late() {
    let mut lane = lane();
    lane.go_on(Cursor { epoch: Epoch(1), next_seq: Seq(9) }, [Seq(3), Seq(6)]);
    assert_eq!(apply(&mut lane, 0..11), "3, 6, 9, 10");
}

/// A bridge was killed with a hole in its window, and its successor learns the life from behind it:
/// whoever stands before the hole is told of it too.
#[test]
fn a_reset_covers_what_is_missing_below_the_end_of_a_log() {
    let mut lane = lane();
    lane.go_on(Cursor { epoch: Epoch(1), next_seq: Seq(9) }, [Seq(3), Seq(4), Seq(6)]);
    assert_eq!(apply(&mut lane, [3]), "3");
    assert_eq!(apply(&mut lane, 12..14), "4+8 permanent_hole, 12, 13");
    assert_eq!(apply(&mut lane, [4, 6, 15]), "14+1 permanent_hole, 15", "once");
}

/// Whoever is past it loses nothing: the reset covers what is missing and no more.
#[test]
fn what_is_missing_below_the_end_of_a_log_and_not_to_be_had_is_said() {
    let mut lane = lane();
    lane.go_on(Cursor { epoch: Epoch(1), next_seq: Seq(9) }, [Seq(3), Seq(4), Seq(6)]);
    assert_eq!(lane.first_missing(), Some(Seq(3)));
    let mut out = Vec::new();
    lane.missing_is_lost(&mut out);
    assert_eq!(show(&out), "3+2 permanent_hole, 6+1 permanent_hole");
    assert_eq!(apply(&mut lane, [4, 6, 9, 10]), "9, 10");
}

#[test]
fn trust_is_said_where_the_log_stands_and_covers_nothing() {
    let mut lane = lane();
    let mut out = Vec::new();
    lane.says(change("detached"), &mut out);
    assert!(out.is_empty(), "there is no log yet");
    apply(&mut lane, 0..3);
    lane.says(change("gap_open"), &mut out);
    let said = &out[0];
    assert_eq!((said.id.as_str(), said.envelope.span), ("m.h=3A1.0/1/3/b/1", 0));
    assert_eq!(apply(&mut lane, [3]), "3");
}

fn change(reason: &str) -> TrustChange {
    TrustChange { trust: Trust::None, reason: reason.to_owned(), bridge: "b".to_owned() }
}

fn resumed(next_seq: u64, kept: std::ops::Range<u64>) -> Lane {
    let cursor = Cursor { epoch: Epoch(1), next_seq: Seq(next_seq) };
    let digests = kept.map(|seq| (Seq(seq), Digest([1; 16]))).collect();
    let mut lane = lane();
    lane.resume(LogTail { cursor, digests });
    lane
}

#[test]
fn a_log_that_is_kept_is_gone_on_with() {
    // The view is behind the log, as a checkpoint is after a crash.
    assert_eq!(apply(&mut resumed(5, 2..5), 3..7), "5, 6");
    // It is ahead of it: what was not written any more is missing.
    assert_eq!(apply(&mut resumed(5, 2..5), 7..9), "5+2 permanent_hole, 7, 8");
    // It was learned anew, in a life of its own.
    let mut out = Vec::new();
    resumed(5, 2..5).applied(batch(2, 0, 9), &mut out);
    assert_eq!((show(&out), out[0].envelope.epoch), ("0".to_owned(), Epoch(2)));
}
