//! Bytes that no engine sends: named, bounded, never a panic.

use kvbridge_adapters_api::Loss;
use kvbridge_adapters_trtllm::{
    BodyError, Fault, Instance, ServerInfo, Strange, limits::EVENTS_PER_BODY_MAX,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{batches, block, created, removed, steps, stored};

#[test]
fn a_body_that_is_no_list_is_refused_whole() {
    let whole = json!([created(0), stored(1, None, &[block(1, 4)])]).to_string();
    for cut in 0..whole.len() {
        assert_eq!(Instance::split(&whole.as_bytes()[..cut]), Err(BodyError::NotAList), "{cut}");
    }
    for body in ["{}", "[1", "[]x", "null", "\u{feff}[]"] {
        assert_eq!(Instance::split(body.as_bytes()), Err(BodyError::NotAList));
    }
    assert_eq!(Instance::split(b"[\xff]"), Err(BodyError::NotAList));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let read = steps(&mut Instance::new(0, 1), &deep);
    assert_eq!(read[0].strange, Some(Strange::Unnumbered));
    let count = EVENTS_PER_BODY_MAX + 1;
    let many = format!("[{}]", vec!["{}"; count].join(","));
    let expected = BodyError::TooManyEvents { count, max: EVENTS_PER_BODY_MAX };
    assert_eq!(Instance::split(many.as_bytes()), Err(expected));
}

#[test]
fn bad_data_costs_its_own_event_and_what_it_may_have_been() {
    let data = |data: Value| json!({"event_id": 0, "data": data});
    let hash = |hash: Value| json!({"type": "removed", "block_hashes": [hash]});
    let token = |id: Value| {
        let block = json!({"block_hash": 1, "tokens": [{"token_id": id}]});
        json!({"type": "stored", "parent_hash": null, "blocks": [block]})
    };
    let table = [
        (json!({"type": "stored"}), Fault::Stored),
        (json!({"type": "stored", "blocks": [{"block_hash": 1.5, "tokens": []}]}), Fault::Stored),
        (json!({"type": "stored", "blocks": [{"block_hash": null, "tokens": []}]}), Fault::Stored),
        (token(json!(1_u64 << 32)), Fault::Stored),
        (token(json!(null)), Fault::Stored),
        (json!({"type": "removed"}), Fault::MayRemove),
        (hash(json!("")), Fault::MayRemove),
        (hash(json!("abc")), Fault::MayRemove),
        (hash(json!("zz")), Fault::MayRemove),
        (hash(json!(1e300)), Fault::MayRemove),
        (json!({"type": "updated"}), Fault::MayRemove),
        (json!({"type": "created"}), Fault::MayRemove),
        (json!({"type": "transmuted"}), Fault::UnknownType),
        (json!({"type": 5}), Fault::MayRemove),
        (json!(7), Fault::MayRemove),
    ];
    for (bad, fault) in table {
        let mut instance = Instance::new(0, 1);
        let body = json!([data(bad.clone()), removed(1, &[1])]).to_string();
        let read = steps(&mut instance, &body);
        assert_eq!(read[0].faults, [fault], "{bad}");
        assert_eq!(batches(&read[0])[0].1.loss, fault.loss(), "{bad}");
        assert_eq!((batches(&read[1])[0].1.loss, &read[1].faults), (Loss::Nothing, &Vec::new()));
    }
}

#[test]
fn null_differences_and_what_no_release_sends_are_skipped() {
    let updated = |level: Value| {
        let data = json!({"type": "updated", "block_hash": 1, "cache_level": level});
        json!({"event_id": 0, "data": data, "more": [1, {}]})
    };
    for level in [Value::Null, json!({"new_value": 1, "old_value": 0, "x": []})] {
        let mut instance = Instance::new(0, 1);
        let read = steps(&mut instance, &json!([updated(level)]).to_string());
        assert_eq!((&read[0].faults, batches(&read[0])[0].1.events.len()), (&Vec::new(), 0));
    }
}

#[test]
fn no_text_shows_a_value_of_the_wire() {
    let secret = 917_263_544_u64;
    let token = json!({"token_id": [secret]});
    let block = json!({"block_hash": 1, "tokens": [token], "cache_salt": secret.to_string()});
    let data = json!({"type": "stored", "blocks": [block]});
    let mut instance = Instance::new(0, 1);
    let body = json!([{"event_id": 0, "data": data}]).to_string();
    let read = steps(&mut instance, &body);
    assert_eq!(read[0].faults, [Fault::Stored]);
    assert!(!format!("{} {read:?}", read[0].faults[0]).contains(&secret.to_string()));
}

#[test]
fn a_server_that_tells_nonsense_tells_nothing() {
    for body in ["", "[]", "{\"tokens_per_block\": 0}", "{\"tokens_per_block\": -1}", "\u{0}"] {
        assert_eq!(ServerInfo::read(body.as_bytes()).tokens_per_block, None, "{body:?}");
    }
    let told = ServerInfo::read(br#"{"tokens_per_block": 32, "max_batch_size": null}"#);
    assert_eq!(told.tokens_per_block, Some(32));
}

/// JSON with the keys that are read, in all wrong and right places.
fn any_event() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..4_u64).prop_map(Value::from),
        prop_oneof![
            Just("stored"),
            Just("removed"),
            Just("updated"),
            Just("created"),
            Just("0a0b")
        ]
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "event_id",
        "data",
        "type",
        "window_size",
        "attention_dp_rank",
        "layer_group_id",
        "blocks",
        "block_hash",
        "block_hashes",
        "parent_hash",
        "tokens",
        "token_id",
        "token_extra_id",
        "cache_level",
        "new_value",
        "mm_keys",
        "hash",
        "num_blocks_per_cache_level",
    ]);
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|pairs| {
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(body in prop::collection::vec(any::<u8>(), 0..256)) {
        if let Ok(events) = Instance::split(&body) {
            let mut instance = Instance::new(0, 2);
            for event in events {
                instance.step(event);
            }
        }
    }

    #[test]
    fn any_json_is_read_to_its_end(events in prop::collection::vec(any_event(), 0..8)) {
        let mut instance = Instance::new(0, 2);
        for event in events {
            let data = json!({"event_id": 0, "data": event, "attention_dp_rank": 1});
            for event in [event, data] {
                let text = event.to_string();
                let step = instance.step(&text);
                let lost = batches(&step).iter().any(|(_, batch)| batch.loss != Loss::Nothing);
                prop_assert_eq!(lost, !step.faults.is_empty());
            }
        }
    }
}
