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
