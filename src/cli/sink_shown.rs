//! Messages for a person or a program: no token ids, no salt.

use std::{collections::BTreeMap, io};

use serde_json::{Map, Value, json};

use super::Console;
use crate::{
    sink_check::{Batch, Hash, Message, Rule, Said, Stored, Verdict},
    sink_line::Preset,
};

/// Hashes of one event that a person is shown.
const HASHES_SHOWN: usize = 4;

/// Characters of a text that are shown.
const TEXT_SHOWN: usize = 256;

/// What was shown so far.
pub(super) struct Shown {
    preset: Preset,
    json: bool,
    messages: usize,
    broken: usize,
    /// Messages that keep a rule and that break it.
    by_rule: BTreeMap<Rule, (usize, usize)>,
}

impl Shown {
    pub(super) fn new(preset: Preset, json: bool) -> Shown {
        Shown { preset, json, messages: 0, broken: 0, by_rule: BTreeMap::new() }
    }

    pub(super) fn message_count(&self) -> usize {
        self.messages
    }

    pub(super) fn broken_count(&self) -> usize {
        self.broken
    }

    /// Whose line it is.
    pub(super) fn begin(&self, from: &str, console: &mut Console<'_>) -> io::Result<()> {
        if self.json {
            let line = json!({"preset": self.preset.as_str(), "from": from});
            return console.line(&line.to_string());
        }
        console.line(&format!("what the reader of {} sees of {from}", self.preset.as_str()))
    }

    /// The reader asks for what it has not.
    pub(super) fn asked(&self, start: u64, console: &mut Console<'_>) -> io::Result<()> {
        if self.json {
            return console.line(&json!({"message": "request", "seq": start}).to_string());
        }
        console.line(&format!("request from {start}"))
    }

    /// One message.
    pub(super) fn message(
        &mut self,
        message: &Message<'_>,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        let Message { kind, topic, bytes, verdict } = message;
        let (kind, bytes) = (kind.as_str(), *bytes);
        self.messages += 1;
        self.broken += usize::from(!verdict.broken.is_empty());
        for rule in &verdict.kept {
            self.by_rule.entry(*rule).or_default().0 += 1;
        }
        for broken in &verdict.broken {
            self.by_rule.entry(broken.rule).or_default().1 += 1;
        }
        let topic = String::from_utf8_lossy(topic);
        let is_end = verdict.seq == Some(crate::sink_check::END);
        if self.json {
            return console.line(&json_of(kind, &topic, bytes, verdict, is_end).to_string());
        }
        let mut line = match verdict.seq {
            _ if is_end => format!("{kind:<7} end"),
            Some(seq) => format!("{kind:<7} {seq}"),
            None => format!("{kind:<7} ?"),
        };
        if !topic.is_empty() {
            line.push_str(&format!("  {}", shown(&topic)));
        }
        if !is_end {
            line.push_str(&format!("  {bytes} bytes: {}", text_of(verdict.batch.as_ref())));
        }
        console.line(&line)?;
        if !verdict.kept.is_empty() {
            let kept: Vec<&str> = verdict.kept.iter().map(|rule| rule.as_str()).collect();
            console.line(&format!("        keeps {}", kept.join(", ")))?;
        }
        for broken in &verdict.broken {
            console.line(&format!("        BREAKS {}: {}", broken.rule.as_str(), broken.why))?;
        }
        Ok(())
    }

    /// The rules, and how many messages keep and break each.
    pub(super) fn end(&self, console: &mut Console<'_>) -> io::Result<()> {
        let needs = self.preset.needs();
        let rules = Rule::ALL.into_iter().filter_map(|rule| Some((rule, rule.meaning(&needs)?)));
        if self.json {
            let rules: Map<String, Value> = rules
                .map(|(rule, meaning)| {
                    let (kept, broken) = self.by_rule.get(&rule).copied().unwrap_or_default();
                    let value = json!({"wants": meaning, "kept": kept, "broken": broken});
                    (rule.as_str().to_owned(), value)
                })
                .collect();
            let line = json!({"messages": self.messages, "broken": self.broken, "rules": rules});
            return console.line(&line.to_string());
        }
        console.line("")?;
        for (rule, meaning) in rules {
            let (kept, broken) = self.by_rule.get(&rule).copied().unwrap_or_default();
            let broken = if broken > 0 { format!(", {broken} BREAK it") } else { String::new() };
            console.line(&format!("{:<7} {meaning}: {kept} keep it{broken}", rule.as_str()))?;
        }
        match self.broken {
            0 => console.line(&format!("{} messages: no rule is broken", self.messages)),
            broken => console.line(&format!("{} messages: {broken} break a rule", self.messages)),
        }
    }
}

fn hash(hash: &Hash) -> String {
    format!("{:016x}", hash.key)
}

fn hashes(all: &[Hash]) -> String {
    let mut text: Vec<String> = all.iter().take(HASHES_SHOWN).map(hash).collect();
    if all.len() > HASHES_SHOWN {
        text.push(format!("{} more", all.len() - HASHES_SHOWN));
    }
    text.join(" ")
}

fn text_of(batch: Option<&Batch>) -> String {
    let Some(batch) = batch else { return "unreadable".to_owned() };
    let events: Vec<String> = batch.events.iter().map(|event| said(&event.said)).collect();
    if events.is_empty() { "nothing".to_owned() } else { events.join("; ") }
}

fn said(said: &Said) -> String {
    match said {
        Said::Cleared => "everything is gone".to_owned(),
        Said::Other(tag) => shown(tag),
        Said::Removed { hashes: all, medium } => {
            format!("removed {} from {}: {}", all.len(), medium_of(medium), hashes(all))
        }
        Said::Stored(stored) => {
            let parent = stored.parent.as_ref().map_or_else(|| "nothing".to_owned(), hash);
            let lora = stored
                .lora
                .as_ref()
                .map(|name| format!(" for {}", shown(name)))
                .unwrap_or_default();
            let Stored { hashes: all, block_size, token_count, medium, .. } = stored;
            format!(
                "stored {} of {block_size} on {}{lora} behind {parent}: {} ({token_count} tokens)",
                all.len(),
                medium_of(medium),
                hashes(all),
            )
        }
    }
}

fn medium_of(medium: &Option<String>) -> String {
    medium.as_deref().map_or_else(|| "no medium".to_owned(), shown)
}

/// What a peer wrote, for a terminal: nothing in it is obeyed, and not too much of it is there.
fn shown(text: &str) -> String {
    let mut shown = text.chars().take(TEXT_SHOWN).flat_map(char::escape_debug).collect::<String>();
    if text.chars().nth(TEXT_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

fn json_of(kind: &str, topic: &str, bytes: usize, verdict: &Verdict, is_end: bool) -> Value {
    let kept: Vec<&str> = verdict.kept.iter().map(|rule| rule.as_str()).collect();
    let broken: Vec<Value> = verdict
        .broken
        .iter()
        .map(|broken| json!({"rule": broken.rule.as_str(), "why": broken.why}))
        .collect();
    let mut line = json!({"message": kind, "keeps": kept, "breaks": broken});
    if is_end {
        line["end"] = json!(true);
        return line;
    }
    line["topic"] = json!(topic);
    line["seq"] = json!(verdict.seq);
    line["bytes"] = json!(bytes);
    if let Some(batch) = &verdict.batch {
        line["ts"] = json!(batch.time);
        line["rank"] = json!(batch.rank);
        line["events"] = batch.events.iter().map(|event| event_json(&event.said)).collect();
    }
    line
}

fn event_json(said: &Said) -> Value {
    let hex = |all: &[Hash]| all.iter().map(hash).collect::<Vec<String>>();
    match said {
        Said::Cleared => json!({"event": "cleared"}),
        Said::Other(tag) => json!({"event": "other", "tag": tag}),
        Said::Removed { hashes, medium } => {
            json!({"event": "removed", "hashes": hex(hashes), "medium": medium})
        }
        Said::Stored(stored) => json!({
            "event": "stored",
            "hashes": hex(&stored.hashes),
            "parent": stored.parent.as_ref().map(hash),
            "medium": stored.medium,
            "block_size": stored.block_size,
            "token_count": stored.token_count,
            "lora": stored.lora,
            "keyed_blocks": stored.keyed_count,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_wrote_says_nothing_to_a_terminal() {
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(shown(&"x".repeat(300)).chars().count(), TEXT_SHOWN + 1);
    }
}
