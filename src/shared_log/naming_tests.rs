//! What makes another life, and what may be said of it.

use kvbridge_schemas::{Engine, EngineKind, HashInfo, HashScheme};

use super::*;

const HEARD_LONG_MS: u64 = 10_000;

fn replica() -> Replica {
    Replica { model: "m".into(), instance: "h:1".into(), rank: 0 }
}

fn life() -> Naming {
    Naming::new(Cursor::default(), HEARD_LONG_MS)
}

fn hear(life: &mut Naming, seq: u64, byte: u8) {
    let envelope = Envelope {
        replica: replica(),
        epoch: Epoch(7),
        incarnation: None,
        seq: Seq(seq),
        span: 1,
        digest: Digest([byte; 16]),
        trust: Trust::Exact,
        ts: 0,
        engine: Engine { kind: EngineKind::Vllm, format: "f".into() },
        hash: HashInfo { scheme: HashScheme::Unknown, block_size: 0 },
        events: Vec::new(),
    };
    life.heard(&envelope, seq);
}

fn named(life: &mut Naming) {
    let log = Cursor { epoch: Epoch(9), next_seq: Seq(0) };
    life.own(Epoch(0), 0);
    life.call(Epoch(7), Name::Named(Named { local: Epoch(7), log, missing: Vec::new() }));
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)));
}

#[test]
fn other_bytes_under_a_known_number_are_another_life() {
    let mut life = life();
    (0..5).for_each(|seq| hear(&mut life, seq, 1));
    named(&mut life);
    hear(&mut life, 2, 1);
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "the same again is the same life");
    hear(&mut life, 0, 2);
    assert_eq!(*life.name(), Name::Undecided);
    assert_eq!(life.own(Epoch(0), 0).1.digests.len(), 1);
}

#[test]
fn a_life_that_is_looked_at_again_keeps_its_place() {
    let mut life = life();
    hear(&mut life, 3, 1);
    assert_eq!(life.newest(), None, "nothing on the log is known to be of it");
    named(&mut life);
    life.look_again();
    assert_eq!(*life.name(), Name::Undecided);
    assert_eq!(life.newest(), Some((Epoch(9), (Seq(3), Digest([1; 16])))));
    hear(&mut life, 3, 2);
    assert_eq!(life.newest(), None, "another life");
}

#[test]
fn a_view_that_stands_below_what_was_heard_is_of_another_life() {
    let mut life = life();
    (10..15).for_each(|seq| hear(&mut life, seq, 1));
    named(&mut life);
    let at = |next_seq| Cursor { epoch: Epoch(7), next_seq: Seq(next_seq) };
    life.stands(at(15), Trust::Exact, "contiguous");
    life.stands(at(0), Trust::Exact, "contiguous");
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "an empty view stands nowhere");
    life.stands(at(3), Trust::Exact, "contiguous");
    assert_eq!(*life.name(), Name::Undecided);
}

/// Recovery has seen a restart, and no batch of the next life came: what it believes of that one is
/// no word for the one that has the name.
#[test]
fn a_life_that_was_left_is_not_vouched_for() {
    let mut life = life();
    (0..5).for_each(|seq| hear(&mut life, seq, 1));
    named(&mut life);
    life.stands(Cursor { epoch: Epoch(8), next_seq: Seq(0) }, Trust::LowerBound, "joined_late");
    assert_eq!(life.status(&replica(), "b", 1), None);
    assert_eq!(
        life.own(Epoch(9), 0),
        (Epoch(8), Own { settled: true, given: Epoch(9), ..Own::default() }, Name::Undecided)
    );
}

/// A journal that begins behind the view after a reconnect may be of this life or of the next.
#[test]
fn what_follows_a_lost_history_has_the_name_of_before_only_on_the_same_connection() {
    let mut life = life();
    life.attached(false, false);
    (0..5).for_each(|seq| hear(&mut life, seq, 1));
    named(&mut life);
    life.cleared();
    hear(&mut life, 7, 1);
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "no other life on this connection");
    life.attached(true, false);
    life.proven(1);
    life.cleared();
    hear(&mut life, 9, 1);
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "the answer was of this life");
    life.attached(true, false);
    life.cleared();
    life.proven(2);
    hear(&mut life, 11, 1);
    assert_eq!(*life.name(), Name::Undecided);
    assert_eq!(life.own(Epoch(0), 0).1.digests.len(), 1, "nothing of before is compared with");
    named(&mut life);
    // Whoever sees no reconnect is never tied to the life of before.
    life.attached(true, true);
    life.proven(3);
    hear(&mut life, 12, 1);
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)));
    life.cleared();
    hear(&mut life, 14, 1);
    assert_eq!(*life.name(), Name::Undecided);
}

/// Somebody takes what is known, looks at the bus, and comes back when it holds no more.
#[test]
fn a_name_that_was_decided_too_early_is_not_taken() {
    let mut life = life();
    hear(&mut life, 0, 1);
    let log = Cursor { epoch: Epoch(9), next_seq: Seq(1) };
    let name = Name::Named(Named { local: Epoch(7), log, missing: Vec::new() });
    life.own(Epoch(9), 0);
    hear(&mut life, 0, 2);
    assert!(!life.call(Epoch(7), name.clone()), "compared with the life before");
    life.own(Epoch(9), 0);
    assert!(life.call(Epoch(7), name.clone()));
    life.own(Epoch(9), 0);
    life.look_again();
    assert!(!life.call(Epoch(7), name), "the end of the log was read before it was asked for");
}

/// The registry was lost, and whoever used the name all the time puts it on record again.
#[test]
fn a_name_in_use_is_written_anew() {
    let mut life = life();
    hear(&mut life, 0, 1);
    named(&mut life);
    let (local, own, name) = life.own(Epoch(0), 0);
    let question = Question {
        record: None,
        tail: None,
        own: &own,
        content: "c",
        others: false,
        local,
        floor: Epoch(0),
        now_ms: 1,
    };
    let again = called(Verdict::Adopt(Epoch(9)), &name, &question, "b").unwrap();
    assert_eq!((again.write.map(|record| record.life.epoch), &again.name), (Some(Epoch(9)), &name));
    let written = lives::record(None, &own, Epoch(9), "c", "b");
    let question = Question { record: Some(&written), ..question };
    assert_eq!(called(Verdict::Adopt(Epoch(9)), &name, &question, "b"), None);
}

#[test]
fn only_what_is_acknowledged_is_vouched_for() {
    let mut life = life();
    assert_eq!(life.status(&replica(), "b", 1), None);
    hear(&mut life, 0, 1);
    named(&mut life);
    assert_eq!(life.status(&replica(), "b", 1).unwrap().next_seq, Seq(0));
    life.acked(Cursor { epoch: Epoch(9), next_seq: Seq(1) }, BusSeq(5));
    life.acked(Cursor { epoch: Epoch(8), next_seq: Seq(99) }, BusSeq(6));
    let status = life.status(&replica(), "b", 1).unwrap();
    assert_eq!((status.next_seq, status.bus_seq), (Seq(1), Some(BusSeq(5))));
}

#[test]
fn a_life_is_heard_since_its_name_was_read() {
    let mut life = life();
    hear(&mut life, 3, 1);
    assert_eq!(life.own(Epoch(5), 10).1.heard, Heard::Not);
    life.proven(11);
    assert_eq!(life.own(Epoch(5), 20).1.heard, Heard::Since);
    life.proven(10 + HEARD_LONG_MS + 1);
    assert_eq!(life.own(Epoch(5), 30).1.heard, Heard::LongSince);
    // A newer name: what came before it proves nothing.
    assert_eq!(life.own(Epoch(6), 40_000).1.heard, Heard::Not);
}

/// The view is ahead of the log, and believed more there: that says nothing of what is on the log.
#[test]
fn a_rise_is_told_when_the_log_has_come_so_far() {
    let mut life = life();
    (0..5).for_each(|seq| hear(&mut life, seq, 1));
    named(&mut life);
    let at = |epoch, next_seq| Cursor { epoch: Epoch(epoch), next_seq: Seq(next_seq) };
    let trust = |life: &mut Naming| life.status(&replica(), "b", 1).unwrap().trust;
    life.stands(at(7, 5), Trust::LowerBound, "store_undecodable");
    life.acked(at(9, 5), BusSeq(5));
    assert_eq!(trust(&mut life), Trust::LowerBound);
    (5..8).for_each(|seq| hear(&mut life, seq, 1));
    life.stands(at(7, 8), Trust::Exact, "contiguous");
    hear(&mut life, 8, 1);
    life.stands(at(7, 9), Trust::Exact, "contiguous");
    life.acked(at(9, 7), BusSeq(7));
    assert_eq!(trust(&mut life), Trust::LowerBound, "seq 7 is where the flush is");
    life.acked(at(9, 8), BusSeq(8));
    assert_eq!(trust(&mut life), Trust::Exact);
    life.withdrawn(Trust::None, "gap_open");
    assert_eq!(trust(&mut life), Trust::None, "less counts at once");
}
