//! A batch as the scripts in `tests/fixtures` write down what they derived.

use kvbridge_adapters_api::{Batch, Loss};
use kvbridge_schemas::{
    BlockHash, ClearCause, Event, ExtraKey, HashScheme, Parent, Place, Scope, Stored, content_hash,
};
use serde_json::{Value, json};

/// Everything of it, without what is absent.
pub(crate) fn describe(batch: &Batch) -> Value {
    assert_eq!((batch.loss, batch.span, batch.epoch), (Loss::Nothing, 1, None));
    assert_eq!(batch.incarnation, None);
    let scheme = match &batch.hash.scheme {
        HashScheme::Unknown => None,
        HashScheme::Named(name) => Some(name),
    };
    present(json!({
        "seq": batch.seq.0,
        "ts": batch.ts,
        "scheme": scheme,
        "rank": batch.rank,
        "format": batch.format,
        "block_size": batch.hash.block_size,
        "bytes": batch.bytes,
        "events": batch.events.iter().map(event).collect::<Vec<_>>(),
    }))
}

fn event(event: &Event) -> Value {
    match event {
        Event::Stored(stored) => store(stored),
        Event::Removed(removed) => with_place(
            json!({
                "type": "removed",
                "hashes": removed.hashes.iter().map(hex).collect::<Vec<_>>(),
            }),
            &removed.place,
        ),
        Event::Cleared(cleared) => {
            assert_eq!(cleared.cause, ClearCause::Engine);
            let Scope::Tiers(tiers) = &cleared.scope else { panic!("a clear has tiers") };
            let scope: Vec<&str> = tiers.iter().map(|tier| tier.as_str()).collect();
            json!({ "type": "cleared", "scope": scope, "cause": "engine" })
        }
        Event::Moved(moved) => json!({
            "type": "moved",
            "hash": hex(&moved.hash),
            "from": moved.from.as_str(),
            "to": moved.to.as_str(),
        }),
        other => panic!("an engine does not send {other:?}"),
    }
}

fn store(stored: &Stored) -> Value {
    let parent = match &stored.parent {
        Parent::Root => "root".to_owned(),
        Parent::Unknown => "unknown".to_owned(),
        Parent::Block(hash) => hex(hash),
    };
    let content = |value: u64| format!("{value:016x}");
    let block = |block: &kvbridge_schemas::StoredBlock| {
        json!([hex(&block.hash), block.content.map(content)])
    };
    let extra: Vec<Vec<Value>> =
        stored.extra.iter().map(|entry| entry.iter().map(extra_key).collect()).collect();
    with_place(
        json!({
            "type": "stored",
            "parent": parent,
            "block_size": stored.block_size,
            "token_count": stored.tokens.0.len(),
            "tokens": content(content_hash(&stored.tokens.0)),
            "blocks": stored.blocks.iter().map(block).collect::<Vec<_>>(),
            "partial": stored.partial.then_some(true),
            "bigram": stored.bigram.then_some(true),
            "lora": stored.lora,
            "lora_id": stored.lora_id,
            "salt": stored.salt,
            "extra": Some(extra).filter(|extra| !extra.is_empty()),
            "session": stored.session,
        }),
        &stored.place,
    )
}

fn extra_key(key: &ExtraKey) -> Value {
    match key {
        ExtraKey::Text(text) => json!(text),
        ExtraKey::Item { id, offset } => json!({ "item": [id, offset] }),
        ExtraKey::Bytes(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "bytes": hex })
        }
    }
}

fn with_place(mut value: Value, place: &Place) -> Value {
    value["tier"] = json!(place.tier.as_str());
    value["medium"] = json!(place.medium);
    value["locality"] = json!(place.locality);
    value["ownership"] = json!(place.ownership);
    if let Some(group) = &place.group {
        value["group"] = present(json!({
            "index": group.index,
            "kind": group.kind.as_ref().map(|kind| kind.as_str()),
            "window": group.window,
        }));
    }
    present(value)
}

fn hex(hash: &BlockHash) -> String {
    hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Without the keys that are null.
fn present(value: Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}
