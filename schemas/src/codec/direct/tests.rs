//! Debug builds compare both ways wherever a message is read or written. What is left to show: that
//! the direct reader takes our messages at all, and that it gives up where serde would say more.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::super::{
    arbitrary, encode_msgpack, event::EventIn, fields::codec_fields, serde_msgpack, wire::Wire,
};
use crate::{Envelope, Event, SnapshotRecord, msgpack::Pen};

/// What serde says of `payload`, if the direct reader takes it.
fn agrees<W: Wire + PartialEq>(payload: &[u8]) -> bool {
    W::read_direct(payload).is_none_or(|read| serde_msgpack(payload).as_ref() == Ok(&read))
}

fn plain(event: &Event) -> bool {
    matches!(event, Event::Stored(_) | Event::Removed(_))
}

/// Changes some bytes, takes some away, puts some in.
fn damaged(payload: &[u8], changes: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    for (index, kind, byte) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = index.index(bytes.len());
        match kind % 3 {
            0 => bytes[at] = *byte,
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, *byte),
        }
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    vec((any::<Index>(), any::<u8>(), any::<u8>()), 1..4)
}

proptest! {
    #[test]
    fn stores_removals_and_records_are_taken(
        mut envelope in arbitrary::envelope(),
        records in vec(arbitrary::record(), 0..4),
    ) {
        envelope.events.retain(plain);
        let read = Envelope::read_direct(&encode_msgpack(&envelope));
        prop_assert!(read.as_ref() == Some(&envelope));
        prop_assert!(Vec::read_direct(&encode_msgpack(&records)).as_ref() == Some(&records));
        for record in &records {
            let read = SnapshotRecord::read_direct(&encode_msgpack(record));
            prop_assert!(read.as_ref() == Some(record));
        }
    }

    #[test]
    fn damage_is_read_as_serde_reads_it(
        mut envelope in arbitrary::envelope(),
        records in vec(arbitrary::record(), 1..3),
        changes in changes(),
    ) {
        envelope.events.retain(plain);
        prop_assert!(agrees::<Envelope>(&damaged(&encode_msgpack(&envelope), &changes)));
        prop_assert!(agrees::<Vec<SnapshotRecord>>(&damaged(&encode_msgpack(&records), &changes)));
    }
}

/// An envelope of one removal that also has the field `name`, with this value.
fn with_field(name: &str, value: u8) -> Vec<u8> {
    let golden = include_bytes!("../../../golden/v1/heartbeat_no_events.msgpack");
    let mut payload = golden.to_vec();
    assert_eq!(payload.pop(), Some(0x90), "an empty list is last");
    let mut event = Pen::new(64);
    event.array(1);
    event.map(4);
    event.text_field("type", "removed");
    event.key("hashes");
    event.array(0);
    event.text_field("tier", "device");
    event.key(name);
    event.bytes().push(value);
    payload.extend(event.into_bytes());
    payload
}

#[test]
fn fields_of_other_events_are_left_to_serde() {
    // True, 1, null and an empty text, list and map: every field refuses some of them.
    let values = [0xc3, 0x01, 0xc0, 0xa0, 0x90, 0x80];
    for name in codec_fields::<EventIn>() {
        for value in values {
            assert!(agrees::<Envelope>(&with_field(&name, value)), "{name} {value:#x}");
        }
    }
    for value in values {
        let later = Envelope::read_direct(&with_field("later", value));
        assert!(later.is_some_and(|read| read.events.len() == 1), "{value:#x}");
    }
}
