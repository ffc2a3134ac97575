//! What an engine or a bridge says that it holds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::peer::Block;

/// A header, one line a block, an end.
pub(crate) fn lines(text: &str) -> (Value, BTreeSet<Block>) {
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.pop().unwrap()["end"], true);
    let head = lines.remove(0);
    let block = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let group = match &line["group"] {
            Value::Object(group) => group["index"].as_u64(),
            group => group.as_u64(),
        };
        let hash = text("hash");
        let tail = hash.len().saturating_sub(16);
        (hash[tail..].to_owned(), text("tier"), group, line["count"].as_u64().unwrap())
    };
    (head, lines.iter().map(block).collect())
}
