//! The JSON schema against what the codec writes and what it refuses.

mod cases;

use std::{collections::BTreeSet, fs, path::PathBuf};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

fn schema() -> Value {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "envelope.v1.schema.json"].iter().collect();
    let text = fs::read_to_string(file).expect("the schema stands beside Cargo.toml");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// The schema with another definition as its root.
fn validator(mut schema: Value, definition: &str) -> Validator {
    schema["$ref"] = format!("#/$defs/{definition}").into();
    jsonschema::validator_for(&schema).expect("a valid schema")
}

/// Every definition closed: a field that it does not describe is refused. The published schema is
/// open, because readers ignore fields of later minor versions.
fn closed() -> Value {
    let mut schema = schema();
    for (name, definition) in schema["$defs"].as_object_mut().expect("definitions") {
        // An event is closed by the definition of its type.
        if name != "event" && definition.get("properties").is_some() {
            definition["additionalProperties"] = false.into();
        }
    }
    schema
}

#[test]
fn schema_is_valid_2020_12() {
    jsonschema::meta::validate(&schema()).unwrap();
    // The root is the envelope.
    assert_eq!(schema()["$ref"], "#/$defs/envelope");
}

#[test]
fn every_golden_json_validates_with_every_field_described() {
    for case in cases::all() {
        for schema in [schema(), closed()] {
            let errors: Vec<String> = validator(schema, case.message.definition())
                .iter_errors(&case.message.json())
                .map(|error| error.to_string())
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", case.name);
        }
    }
}

/// Every field that some golden case writes, per kind of object.
fn collect(value: &Value, seen: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            seen.extend(map.keys().cloned());
            map.values().for_each(|value| collect(value, seen));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, seen)),
        _ => (),
    }
}

#[test]
fn golden_cases_use_every_field_of_the_schema() {
    let mut used = BTreeSet::new();
    cases::all().iter().for_each(|case| collect(&case.message.json(), &mut used));
    for (name, definition) in schema()["$defs"].as_object().unwrap() {
        for field in definition["properties"].as_object().into_iter().flat_map(Map::keys) {
            assert!(used.contains(field), "no golden case writes `{field}` of {name}");
        }
    }
}

/// Paths to every value inside `value`.
fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), out));
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| pointers(value, format!("{at}/{index}"), out)),
        _ => (),
    }
    out.push(at);
}

/// What the schema and the codec say about `value`; they must say the same.
fn agree(case: &cases::Case, validator: &Validator, value: &Value, what: &str) -> bool {
    let valid = validator.is_valid(value);
    let decoded = case.message.decode_json(value);
    assert_eq!(valid, decoded.is_ok(), "{}: {what}: {decoded:?}", case.name);
    valid
}

#[test]
fn schema_and_codec_refuse_the_same_values() {
    // One value of each type; -1.5 fits nothing, whatever the range of the field.
    let wrong = [json!(true), json!("ZZ"), json!(-1.5), json!([[]]), json!({ "x": {} })];
    let mut refused = 0;
    for case in cases::all() {
        let (validator, good) =
            (validator(schema(), case.message.definition()), case.message.json());
        let mut paths = Vec::new();
        pointers(&good, String::new(), &mut paths);
        for path in &paths {
            for value in &wrong {
                let mut bad = good.clone();
                *bad.pointer_mut(path).unwrap() = value.clone();
                refused +=
                    u32::from(!agree(&case, &validator, &bad, &format!("{value} at {path}")));
            }
        }
    }
    assert!(refused > 1000, "only {refused} mutations were refused");
}

#[test]
fn schema_and_codec_need_the_same_fields() {
    for case in cases::all() {
        let (validator, good) =
            (validator(schema(), case.message.definition()), case.message.json());
        let mut paths = Vec::new();
        pointers(&good, String::new(), &mut paths);
        for path in &paths {
            let Some((parent, key)) = path.rsplit_once('/') else { continue };
            let mut bad = good.clone();
            let Some(Value::Object(map)) = bad.pointer_mut(parent) else { continue };
            map.remove(key).unwrap();
            agree(&case, &validator, &bad, &format!("without {path}"));
        }
    }
}

#[test]
fn edges_of_numbers_and_hashes_are_the_same() {
    let case = cases::all().into_iter().find(|case| case.name == "stored_lora_salt_two_blocks");
    let case = case.unwrap();
    let validator = validator(schema(), "envelope");
    for (path, value, valid) in [
        ("/v", json!(2), false),
        ("/span", json!(4_294_967_296_u64), false),
        ("/span", json!(-1), false),
        ("/seq", json!(u64::MAX), true),
        ("/digest", json!("00"), false),
        ("/digest", json!("4ADCD23195F3BE6E6908BF15EDCF9FAA"), false),
        ("/trust", json!("later"), true),
        ("/events/0/type", json!("later"), true),
        ("/events/0/tier", json!("later"), true),
        ("/events/0/parent", json!(null), true),
        ("/events/0/parent", json!(""), false),
        ("/events/0/parent", json!("abc"), false),
        ("/events/0/parent", json!("ab".repeat(2048)), true),
        ("/events/0/parent", json!("ab".repeat(2049)), false),
        ("/events/0/tokens/0", json!(4_294_967_296_u64), false),
        ("/events/0/blocks/0/content", json!("0"), false),
        ("/events/0/lora_id", json!(i64::MIN), true),
        ("/events/0/extra/0/0", json!(["id", 1, "later"]), true),
        ("/events/0/extra/0/0", json!(["id"]), false),
        ("/events/0/extra/0/0", json!({"bytes": "0"}), false),
    ] {
        let mut changed = case.message.json();
        *changed.pointer_mut(path).expect(path) = value.clone();
        assert_eq!(agree(&case, &validator, &changed, path), valid, "{path} = {value}");
    }
}
