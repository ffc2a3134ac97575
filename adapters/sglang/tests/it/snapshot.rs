//! Answers to `snapshot-v1`, message by message.

use kvbridge_adapters_api::SnapshotRefusal;
use kvbridge_adapters_msgpack::Reason;
use kvbridge_adapters_sglang::{
    CHUNK_RECORDS_MAX, LIFE_BYTES_MAX, SNAPSHOT_RECORDS_MAX, SnapshotFault, SnapshotMessage,
    SnapshotReader, ends_snapshot,
};
use kvbridge_schemas::{BlockHash, Parent, Seq, SnapshotRecord, Tier};
use proptest::prelude::*;

use crate::pack::{V, array, int, ints, text};

const BARRIER: i128 = 41;

/// `[version, epoch, replica_rank, resume_seq, barrier_seq, barrier_id, record_count]`
fn header(count: i128) -> [V; 7] {
    [int(1), text("1f2e"), int(0), int(BARRIER + 1), int(BARRIER), text("b1"), int(count)]
}

fn header_with(at: usize, value: V) -> Vec<u8> {
    let mut fields = header(2);
    fields[at] = value;
    array(fields).pack()
}

fn record(parent: V, hashes: impl IntoIterator<Item = i128>) -> V {
    array([parent, ints(hashes)])
}

/// A reader that has read a header of so many records.
fn opened(count: i128) -> SnapshotReader {
    let mut reader = SnapshotReader::default();
    assert_eq!(reader.read(b"header", &array(header(count)).pack()), Ok(SnapshotMessage::Header));
    reader
}

fn records(reader: &mut SnapshotReader, chunk: &V) -> Vec<SnapshotRecord> {
    match reader.read(b"chunk", &chunk.pack()) {
        Ok(SnapshotMessage::Records(records)) => records,
        other => panic!("expected records: {other:?}"),
    }
}

fn hash(value: i64) -> BlockHash {
    BlockHash::from_u64(value.cast_unsigned())
}

#[test]
fn records_are_pages_of_the_device_without_content() {
    let mut reader = opened(2);
    let chunk = array([record(V::Nil, [-5]), record(int(-5), [7])]);
    let read = records(&mut reader, &chunk);
    let seen: Vec<_> = read.iter().map(|r| (r.hash.clone(), r.parent.clone())).collect();
    assert_eq!(seen, [(hash(-5), Parent::Root), (hash(7), Parent::Block(hash(-5)))]);
    assert!(read.iter().all(|r| r.tier == Tier::Device && r.count == 1 && r.content.is_none()));
    let Ok(SnapshotMessage::Whole(intro)) = reader.read(b"end", b"") else { panic!("whole") };
    assert_eq!((intro.barrier, intro.resume_seq), (Some(Seq(41)), Seq(42)));
    assert_eq!((intro.incarnation.as_deref(), intro.record_count), (Some("1f2e"), 2));
}

/// The engine counts records, the core counts blocks: both must agree that all came.
#[test]
fn record_of_several_hashes_is_a_chain_of_blocks() {
    let mut reader = opened(1);
    let read = records(&mut reader, &array([record(V::Nil, [1, 2, 3])]));
    assert_eq!(read[2].parent, Parent::Block(hash(2)));
    let Ok(SnapshotMessage::Whole(intro)) = reader.read(b"end", b"") else { panic!("whole") };
    assert_eq!(intro.record_count, 3);
}

/// A ROUTER drops without a word.
#[test]
fn records_that_did_not_come_are_missing_in_the_count() {
    let mut reader = opened(5);
    assert_eq!(records(&mut reader, &array([record(V::Nil, [1, 2])])).len(), 2);
    let Ok(SnapshotMessage::Whole(intro)) = reader.read(b"end", b"") else { panic!("whole") };
    assert_eq!(intro.record_count, 6, "four records of at least one block did not come");
}

#[test]
fn errors_are_told_apart_by_their_words() {
    let table: [(&[u8], _, _); 5] = [
        (b"snapshot provider busy", SnapshotFault::Busy, Some(SnapshotRefusal::Busy)),
        (b"snapshot capture timeout", SnapshotFault::TimedOut, Some(SnapshotRefusal::Busy)),
        (b"snapshot capture failed", SnapshotFault::CaptureFailed, None),
        (
            b"invalid snapshot-v1 request",
            SnapshotFault::NotServed,
            Some(SnapshotRefusal::Unavailable),
        ),
        (b"\xff", SnapshotFault::Refused, None),
    ];
    for (text, fault, refusal) in table {
        assert_eq!(SnapshotReader::default().read(b"error", text), Err(fault));
        assert_eq!(fault.refusal(), refusal);
    }
}

#[test]
fn headers_that_are_none_are_refused_by_name() {
    let long = "a".repeat(LIFE_BYTES_MAX + 1);
    let max = i128::from(SNAPSHOT_RECORDS_MAX);
    let header = SnapshotFault::Header;
    let table = [
        (header_with(0, int(2)), SnapshotFault::Version { came: 2 }),
        (header_with(0, text("1")), header(Reason::WrongType)),
        (header_with(1, text(&long)), header(Reason::WrongType)),
        (header_with(1, text("a b")), header(Reason::WrongType)),
        (header_with(3, int(BARRIER)), SnapshotFault::Cut),
        (header_with(4, int(i128::from(u64::MAX))), SnapshotFault::Cut),
        (header_with(4, int(-1)), header(Reason::OutOfRange)),
        (header_with(6, int(max + 1)), SnapshotFault::TooLarge),
        (array([int(1), text("1f")]).pack(), header(Reason::Missing)),
        (Vec::new(), header(Reason::Truncated)),
    ];
    for (payload, fault) in table {
        assert_eq!(SnapshotReader::default().read(b"header", &payload), Err(fault));
    }
}

#[test]
fn chunks_that_are_none_are_refused_by_name() {
    let many = V::Array((0..=CHUNK_RECORDS_MAX).map(|_| record(V::Nil, [1])).collect());
    let chunk = SnapshotFault::Chunk;
    let table = [
        (
            array([record(V::Nil, [1]), record(V::Nil, [2]), record(V::Nil, [3])]),
            SnapshotFault::TooMany,
        ),
        (array([array([V::Nil])]), chunk(Reason::WrongType)),
        (array([array([V::Nil, int(1)])]), chunk(Reason::WrongType)),
        (array([record(text("x"), [1])]), chunk(Reason::WrongType)),
        (int(1), chunk(Reason::WrongType)),
    ];
    for (payload, fault) in table {
        assert_eq!(opened(2).read(b"chunk", &payload.pack()), Err(fault));
        assert!(fault.refusal().is_some());
    }
    assert_eq!(opened(99_999).read(b"chunk", &many.pack()), Err(chunk(Reason::TooMany)));
}

#[test]
fn order_and_kinds_are_kept() {
    let header = array(header(2)).pack();
    let chunk = array([record(V::Nil, [1])]).pack();
    let fresh = SnapshotReader::default;
    assert_eq!(fresh().read(b"chunk", &chunk), Err(SnapshotFault::Order));
    assert_eq!(fresh().read(b"end", b""), Err(SnapshotFault::Order));
    assert_eq!(opened(2).read(b"header", &header), Err(SnapshotFault::Order));
    assert_eq!(opened(2).read(b"trailer", b""), Err(SnapshotFault::UnknownKind));
    let last = |kinds: [&[u8]; 5]| kinds.map(ends_snapshot);
    let kinds: [&[u8]; 5] = [b"header", b"chunk", b"end", b"error", b"trailer"];
    assert_eq!(last(kinds), [false, false, true, true, true]);
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in [&b"header"[..], b"chunk", b"end", b"error", b"other"] {
            for mut reader in [opened(1_000), SnapshotReader::default()] {
                if let Ok(SnapshotMessage::Records(records)) = reader.read(kind, &payload) {
                    prop_assert!(records.len() <= payload.len(), "a record a byte at most");
                }
            }
        }
    }
}
