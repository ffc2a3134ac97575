//! An envelope, or a change of trust, as a line for a person.

use kvbridge_schemas::{Envelope, codec};
use serde_json::Value;

/// An envelope for a person or a program; token ids as a count unless `tokens`.
pub(super) fn envelope(envelope: &Envelope, for_person: bool, tokens: bool) -> String {
    match (for_person, tokens) {
        (true, true) => line(&codec::to_json(envelope)),
        (true, false) => line(&codec::to_json_redacted(envelope)),
        (false, true) => codec::to_json_string(envelope),
        (false, false) => codec::to_json_redacted_string(envelope),
    }
}

/// One short line. A value of an unknown shape is shown as it is.
pub(super) fn line(value: &Value) -> String {
    if let Some(missed) = value.get("missed") {
        return format!("missed {missed} events: this reader is too slow");
    }
    if let Some(key) = text(value, "key") {
        let (trust, reason) = (text(value, "trust"), text(value, "reason"));
        let words = (trust.unwrap_or("?"), reason.unwrap_or("?"));
        return format!("{key}  trust {} ({})", words.0, words.1);
    }
    let (Some(seq), Some(events)) = (value.get("seq"), value.get("events")) else {
        return value.to_string();
    };
    let replica = value.get("replica").unwrap_or(&Value::Null);
    let name = format!(
        "{} {}/{}",
        text(replica, "model").unwrap_or("?"),
        text(replica, "instance").unwrap_or("?"),
        replica.get("rank").unwrap_or(&Value::Null),
    );
    let events: Vec<String> = events.as_array().into_iter().flatten().map(event).collect();
    let events = if events.is_empty() { "nothing".to_owned() } else { events.join(", ") };
    format!("{name}  seq {seq}  {events}")
}

fn event(event: &Value) -> String {
    let tier = text(event, "tier").unwrap_or("?");
    match text(event, "type").unwrap_or("?") {
        "stored" => {
            let tokens = match event.get("tokens") {
                Some(Value::Array(ids)) => format!(" {}", Value::Array(ids.clone())),
                Some(Value::Object(count)) => {
                    format!(" ({} tokens)", count.get("count").unwrap_or(&Value::Null))
                }
                _ => String::new(),
            };
            format!("stored {} on {tier}{tokens}", count(event, "blocks"))
        }
        "removed" => format!("removed {} from {tier}", count(event, "hashes")),
        "reset" => format!(
            "reset ({}, trust {})",
            text(event, "cause").unwrap_or("?"),
            text(event, "trust").unwrap_or("?")
        ),
        "trust" => format!(
            "{} says trust {} ({})",
            text(event, "bridge").unwrap_or("?"),
            text(event, "trust").unwrap_or("?"),
            text(event, "reason").unwrap_or("?")
        ),
        other => other.to_owned(),
    }
}

fn count(event: &Value, list: &str) -> usize {
    event.get(list).and_then(Value::as_array).map_or(0, Vec::len)
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_who_and_what() {
        let value = serde_json::json!({
            "replica": {"model": "m", "instance": "h:1", "rank": 2}, "seq": 7,
            "events": [
                {"type": "stored", "tier": "device", "blocks": [1, 2], "tokens": {"count": 32}},
                {"type": "removed", "tier": "host", "hashes": [1]},
                {"type": "cleared"}
            ]
        });
        assert_eq!(
            line(&value),
            "m h:1/2  seq 7  stored 2 on device (32 tokens), removed 1 from host, cleared"
        );
        let said = serde_json::json!({
            "replica": {"model": "m", "instance": "h:1", "rank": 2}, "seq": 7,
            "events": [
                {"type": "reset", "cause": "permanent_hole", "trust": "lower_bound"},
                {"type": "trust", "trust": "none", "reason": "gap_open", "bridge": "b"}
            ]
        });
        assert_eq!(
            line(&said),
            "m h:1/2  seq 7  reset (permanent_hole, trust lower_bound), b says trust none (gap_open)"
        );
        let standing = serde_json::json!({"key": "m.h.0", "trust": "none", "reason": "gap_open"});
        assert_eq!(line(&standing), "m.h.0  trust none (gap_open)");
    }
}
