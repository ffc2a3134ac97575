//! What makes another life, and what may be said of it.

use kvbridge_schemas::{Engine, EngineKind, HashInfo, HashScheme};

use super::*;

fn life() -> LogLife {
    let replica = Replica { model: "m".into(), instance: "h:1".into(), rank: 0 };
    LogLife::new(replica, String::new(), Cursor::default())
}

fn hear(life: &LogLife, seq: u64, byte: u8) {
    let envelope = Envelope {
        replica: life.replica.clone(),
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

fn named(life: &LogLife) {
    let log = Cursor { epoch: Epoch(9), next_seq: Seq(0) };
    life.call(Epoch(7), Name::Named(Named { local: Epoch(7), log, missing: Vec::new() }));
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)));
}

#[test]
fn other_bytes_under_a_known_number_are_another_life() {
    let life = life();
    (0..5).for_each(|seq| hear(&life, seq, 1));
    named(&life);
    hear(&life, 2, 1);
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "the same again is the same life");
    hear(&life, 0, 2);
    assert_eq!(life.name(), Name::Undecided);
    assert_eq!(life.own(Epoch(0), 0).1.digests.len(), 1);
}

#[test]
fn a_life_that_is_looked_at_again_keeps_its_place() {
    let life = life();
    hear(&life, 3, 1);
    assert_eq!(life.newest(), None, "nothing on the log is known to be of it");
    named(&life);
    life.look_again();
    assert_eq!(life.name(), Name::Undecided);
    assert_eq!(life.newest(), Some((Epoch(9), (Seq(3), Digest([1; 16])))));
    hear(&life, 3, 2);
    assert_eq!(life.newest(), None, "another life");
}

#[test]
fn a_view_that_stands_below_what_was_heard_is_of_another_life() {
    let life = life();
    (10..15).for_each(|seq| hear(&life, seq, 1));
    named(&life);
    let at = |next_seq| Cursor { epoch: Epoch(7), next_seq: Seq(next_seq) };
    life.stands_at(at(15));
    life.stands_at(at(0));
    assert_eq!(life.epoch_of(Epoch(7)), Some(Epoch(9)), "an empty view stands nowhere");
    life.stands_at(at(3));
    assert_eq!(life.name(), Name::Undecided);
}

#[test]
fn only_what_is_acknowledged_is_vouched_for() {
    let life = life();
    assert_eq!(life.status("b", 1), None);
    hear(&life, 0, 1);
    named(&life);
    assert_eq!(life.status("b", 1).unwrap().next_seq, Seq(0));
    life.acked(Cursor { epoch: Epoch(9), next_seq: Seq(1) }, BusSeq(5));
    life.acked(Cursor { epoch: Epoch(8), next_seq: Seq(99) }, BusSeq(6));
    let status = life.status("b", 1).unwrap();
    assert_eq!((status.next_seq, status.bus_seq), (Seq(1), Some(BusSeq(5))));
}

#[test]
fn a_life_is_heard_since_its_name_was_read() {
    let life = life();
    hear(&life, 3, 1);
    assert_eq!(life.own(Epoch(5), 10).1.heard, Heard::Not);
    life.proven(11);
    assert_eq!(life.own(Epoch(5), 20).1.heard, Heard::Since);
    life.proven(10 + HEARD_LONG_MS + 1);
    assert_eq!(life.own(Epoch(5), 30).1.heard, Heard::LongSince);
    // A newer name: what came before it proves nothing.
    assert_eq!(life.own(Epoch(6), 40_000).1.heard, Heard::Not);
}
