//! Laws of the codec and of the names on the bus, for any value.

mod arbitrary;

use std::fmt::Debug;

use kvbridge_schemas::{
    Envelope, Epoch, Replica, ReplicaKey, Seq, SnapshotHeader, SnapshotRecord, Status,
    codec::{self, Message},
    subject,
};
use proptest::{collection::vec, prelude::*};

fn comes_back<M: Message + Debug + PartialEq>(message: &M) {
    let payload = codec::encode_msgpack(message);
    let read: M = codec::decode_msgpack(&payload).expect("our own msgpack");
    assert_eq!(&read, message);
    let text = codec::to_json_string(message);
    assert_eq!(&codec::from_json_str::<M>(&text).expect("our own JSON"), message);
    let value = codec::to_json(message);
    assert_eq!(&codec::from_json::<M>(&value).expect("our own JSON"), message);
    let parsed: serde_json::Value = serde_json::from_str(&text).expect("our own JSON");
    assert_eq!(parsed, value);
}

/// Whatever bytes come: no panic, and what was read is written and read as the same.
fn total<M: Message + Debug + PartialEq>(bytes: &[u8]) {
    if let Ok(message) = codec::decode_msgpack::<M>(bytes) {
        let again = codec::decode_msgpack::<M>(&codec::encode_msgpack(&message));
        assert_eq!(again.as_ref(), Ok(&message));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(message) = codec::from_json_str::<M>(text)
    {
        assert_eq!(codec::from_json_str(&codec::to_json_string(&message)).as_ref(), Ok(&message));
    }
}

fn total_for_all(bytes: &[u8]) {
    total::<Envelope>(bytes);
    total::<SnapshotHeader>(bytes);
    total::<SnapshotRecord>(bytes);
    total::<Vec<SnapshotRecord>>(bytes);
    total::<Status>(bytes);
}

proptest! {
    #[test]
    fn envelope_comes_back(envelope in arbitrary::envelope()) {
        comes_back(&envelope);
    }

    #[test]
    fn snapshot_and_status_come_back(
        header in arbitrary::header(),
        chunk in vec(arbitrary::record(), 0..4),
        status in arbitrary::status(),
    ) {
        comes_back(&header);
        chunk.iter().for_each(comes_back);
        comes_back(&chunk);
        comes_back(&status);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..256)) {
        total_for_all(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        envelope in arbitrary::envelope(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut payload = codec::encode_msgpack(&envelope);
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        total_for_all(&payload);
        payload.truncate(cut.index(payload.len()));
        total_for_all(&payload);
    }

    #[test]
    fn redacted_json_shows_no_secret(mut envelope in arbitrary::envelope()) {
        // Whatever else is in it, the three marks must be gone.
        for event in &mut envelope.events {
            if let kvbridge_schemas::Event::Stored(stored) = event {
                stored.salt = Some("SECRET-salt".into());
                stored.session = Some("SECRET-session".into());
                stored.extra = vec![vec![kvbridge_schemas::ExtraKey::Text("SECRET-key".into())]];
                stored.tokens.0.push(1);
            }
        }
        let shown = codec::to_json_redacted(&envelope);
        prop_assert!(!shown.to_string().contains("SECRET"));
        for event in shown["events"].as_array().expect("a list") {
            if event["type"] == "stored" {
                prop_assert!(event["tokens"]["count"].is_u64());
            }
        }
    }

    #[test]
    fn key_and_subjects_come_back(
        replica in arbitrary::replica(), epoch in any::<u64>(), seq in any::<u64>(),
    ) {
        let key = replica.key();
        prop_assert_eq!(&ReplicaKey::parse(key.as_str()).unwrap(), &replica);
        prop_assert_eq!(&subject::parse_hint(&subject::hint(&key)).unwrap(), &replica);
        prop_assert_eq!(&subject::parse_snapshot(&subject::snapshot(&key)).unwrap(), &replica);
        let id = subject::message_id(&key, Epoch(epoch), Seq(seq));
        let read = subject::parse_message_id(&id).unwrap();
        prop_assert_eq!(read, (replica.clone(), Epoch(epoch), Seq(seq)));
        // A subject is five or more tokens, none empty, none with a wildcard or a blank.
        let hint = subject::hint(&key);
        prop_assert_eq!(hint.split('.').count(), 6);
        prop_assert!(hint.split('.').all(|token| !token.is_empty()
            && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-=".contains(&b))));
        let of_model = subject::hint_of_model(&replica.model);
        prop_assert!(hint.starts_with(of_model.trim_end_matches('>')));
    }

    #[test]
    fn a_key_has_one_spelling(text in "[A=.0-9a-f]{0,20}") {
        if let Ok(replica) = ReplicaKey::parse(&text) {
            let key = replica.key();
            prop_assert_eq!(key.as_str(), text);
        }
    }

    #[test]
    fn two_replicas_never_share_a_key(a in arbitrary::replica(), b in arbitrary::replica()) {
        prop_assert_eq!(a == b, a.key() == b.key());
    }
}

#[test]
fn empty_and_separator_parts_do_not_collide() {
    let parts = ["", ".", "=", "..", "=2E", "a.b", "a", "*", ">", " ", "é"];
    let mut keys = std::collections::BTreeSet::new();
    for model in parts {
        for instance in parts {
            let replica = Replica { model: model.into(), instance: instance.into(), rank: 0 };
            assert!(keys.insert(replica.key()), "{model:?} {instance:?}");
            assert_eq!(ReplicaKey::parse(replica.key().as_str()), Ok(replica));
        }
    }
}
