//! PURE. A view beside what the engine really has, both as lines of JSON: a header, a line a block,
//! an end.

use std::collections::BTreeMap;

use kvbridge_schemas::Trust;
use serde_json::Value;

/// Hexadecimal digits of a hash that are compared: engines send whole hashes of one tier and their
/// last 8 bytes of another.
const HASH_DIGITS: usize = 16;

/// A block: hash, tier, group.
type Block = (String, String, Option<u64>);

/// What is held at a seq.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// Seq of the next batch.
    pub(super) next_seq: u64,
    /// The engine has something to say that no batch said yet.
    pub(super) pending: bool,
    /// Copies of each block.
    blocks: BTreeMap<Block, u64>,
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As the trust says.
    True(String),
    /// Not as the trust says.
    False(String),
}

impl Cut {
    /// Reads all lines. `None`: they are not whole.
    pub(super) fn read(text: &str) -> Option<Cut> {
        let mut lines = text.lines().map(serde_json::from_str::<Value>);
        let head = lines.next()?.ok()?;
        let next_seq = head["next_seq"].as_u64().or(head["resume_seq"].as_u64())?;
        let pending = head["pending"].as_bool().unwrap_or(false);
        let mut cut = Cut { next_seq, pending, blocks: BTreeMap::new() };
        for line in lines {
            let line = line.ok()?;
            if line["end"] == true {
                return Some(cut);
            }
            let (block, count) = block(&line)?;
            cut.blocks.insert(block, count);
        }
        None
    }

    /// One more block than there is.
    pub(super) fn plant(&mut self) {
        self.blocks.insert(("planted".to_owned(), "device".to_owned(), None), 1);
    }

    /// This view of that trust beside the truth: `exact` means all and nothing else, with every
    /// copy; `lower_bound` nothing that is not there; `none` nothing at all.
    pub(super) fn verdict(&self, trust: Trust, truth: &Cut) -> Verdict {
        let (held, real) = (self.blocks.len(), truth.blocks.len());
        let ghosts = self.blocks.keys().filter(|block| !truth.blocks.contains_key(*block)).count();
        let missing = truth.blocks.keys().filter(|block| !self.blocks.contains_key(*block)).count();
        let said = match trust {
            Trust::None => return Verdict::True(format!("nothing is claimed of {real} blocks")),
            Trust::Exact if self.blocks == truth.blocks => {
                return Verdict::True(format!("{held} blocks == truth"));
            }
            Trust::LowerBound if ghosts == 0 => {
                let text = format!("{held} blocks, all of them real, of {real}");
                return Verdict::True(text);
            }
            Trust::Exact | Trust::LowerBound => trust.as_str(),
        };
        Verdict::False(format!(
            "{said}, and {held} blocks beside {real}: {ghosts} are not there, {missing} are missing"
        ))
    }
}

fn block(line: &Value) -> Option<(Block, u64)> {
    let hash = line["hash"].as_str()?;
    let hash = hash.get(hash.len().saturating_sub(HASH_DIGITS)..)?;
    let group = match &line["group"] {
        Value::Object(group) => group.get("index").and_then(Value::as_u64),
        group => group.as_u64(),
    };
    let tier = line["tier"].as_str()?.to_owned();
    Some(((hash.to_owned(), tier, group), line["count"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(blocks: &[(&str, u64)]) -> Cut {
        let line = |(hash, count): &(&str, u64)| {
            format!("{{\"hash\":\"{hash}\",\"tier\":\"device\",\"count\":{count}}}\n")
        };
        let lines: String = blocks.iter().map(line).collect();
        Cut::read(&format!("{{\"next_seq\":7,\"pending\":true}}\n{lines}{{\"end\":true}}\n"))
            .unwrap()
    }

    #[test]
    fn a_view_is_true_as_far_as_its_trust_says() {
        let truth = cut(&[("0a", 1), ("0b", 2)]);
        assert_eq!((truth.next_seq, truth.pending), (7, true));
        let is_true = |blocks: &[(&str, u64)], trust| {
            matches!(cut(blocks).verdict(trust, &truth), Verdict::True(_))
        };
        assert!(is_true(&[("0a", 1), ("0b", 2)], Trust::Exact));
        assert!(!is_true(&[("0a", 1), ("0b", 1)], Trust::Exact), "a copy is missing");
        assert!(!is_true(&[("0a", 1)], Trust::Exact), "a block is missing");
        assert!(is_true(&[("0a", 1)], Trust::LowerBound));
        assert!(!is_true(&[("0a", 1), ("0c", 1)], Trust::LowerBound), "a block is not there");
        assert!(is_true(&[("0c", 1)], Trust::None));
    }

    #[test]
    fn lines_without_their_end_are_not_whole() {
        assert_eq!(Cut::read("{\"resume_seq\":7}\n"), None);
        assert_eq!(Cut::read(""), None);
    }
}
