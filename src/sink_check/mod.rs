//! PURE. What a router's reader makes of a line, message by message: what each says, which rules of
//! that reader it keeps and which it breaks.
//!
//! The rules are [`Needs`], read in the readers' code. A [`Checker`] is one reader of one topic: it
//! follows the numbers, keeps what it was told, and asks for what it missed. What it says of a
//! message holds no token ids and no salt.
#![deny(clippy::wildcard_enum_match_arm)]

mod decode;
#[cfg(feature = "sink-smg")]
mod protobuf;
mod rule;
mod specimen;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use decode::{Batch, Event, Hash, Said, Stored, Written};
pub use rule::Rule;
pub use specimen::{Happening, Judged, Kind, Message, Specimen, specimen};

use crate::sink_line::{Encoding, HashForms, Needs, Numbers, Topics};

/// Bytes of a number.
const NUMBER_BYTES: usize = 8;

/// The number of an end marker.
pub const END: u64 = u64::MAX;

/// A rule that a message breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// How.
    pub why: String,
}

/// What a reader makes of one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Its number, if it has one.
    pub seq: Option<u64>,
    /// What it says, if it can be read.
    pub batch: Option<Batch>,
    /// Rules that it keeps.
    pub kept: Vec<Rule>,
    /// Rules that it breaks.
    pub broken: Vec<Broken>,
    /// The reader had it before, in an answer.
    pub is_old: bool,
}

/// What was told: copies by block and medium.
type Told = BTreeMap<(u64, Option<String>), u64>;

/// One reader of one topic.
#[derive(Debug)]
pub struct Checker {
    needs: Needs,
    next: Option<u64>,
    last_live: Option<u64>,
    /// Absent while something may have been told before this reader came.
    told: Option<Told>,
    asked: Option<u64>,
    answered: bool,
}

impl Checker {
    /// A reader that came just now.
    pub fn new(needs: Needs) -> Checker {
        Checker { needs, next: None, last_live: None, told: None, asked: None, answered: false }
    }

    /// From where the reader asks before it takes a live batch of that number; `None` = it has all
    /// before it, or takes it for a restart.
    pub fn asks_before(&self, seq: u64) -> Option<u64> {
        let next = self.next.unwrap_or(0);
        (seq > next).then_some(next)
    }

    /// It asks for everything from `start` on.
    pub fn asks(&mut self, start: u64) {
        (self.asked, self.answered) = (Some(start), false);
    }

    /// Part of the answer.
    pub fn replayed(&mut self, topic: &[u8], number: &[u8], payload: &[u8]) -> Verdict {
        let mut verdict = Verdict::default();
        // Older forms of an answer have no topic.
        if !topic.is_empty() {
            self.topic(topic, &mut verdict);
        }
        let Some(seq) = seq(number, &mut verdict) else { return verdict };
        let start = self.asked.unwrap_or(0);
        let first = !std::mem::replace(&mut self.answered, true);
        let expected = if first { start } else { self.next.unwrap_or(start) };
        let begins_later = first && seq > start && self.needs.numbers == Numbers::FromClock;
        verdict.judge(Rule::Range, seq == expected || begins_later, || {
            format!("{seq} came, expected {expected}")
        });
        if first && (seq == 0 || begins_later) {
            // Whatever was told before: an answer that begins later tells all that there is.
            self.told.get_or_insert_default();
        }
        self.next = Some(seq.saturating_add(1));
        self.payload(payload, &mut verdict);
        verdict
    }

    /// The answer is over.
    pub fn ended(&mut self, with_marker: bool) -> Verdict {
        let mut verdict = Verdict { seq: Some(END), ..Verdict::default() };
        verdict.judge(Rule::End, with_marker, || "no end marker came".to_owned());
        self.asked = None;
        verdict
    }

    /// A live message.
    pub fn live(&mut self, frames: &[&[u8]]) -> Verdict {
        let mut verdict = Verdict::default();
        let [topic, number, payload] = frames else {
            let came = frames.len();
            verdict.judge(Rule::Frames, false, || format!("{came} frames came"));
            return verdict;
        };
        let Some(seq) = seq(number, &mut verdict) else { return verdict };
        self.topic(topic, &mut verdict);
        let taken = seq > 0 || !self.needs.encoding.is_streamed();
        verdict.judge(Rule::Frames, taken, || "0 is no number: it asks for everything".to_owned());
        let restarts = self.last_live.is_some_and(|last| seq <= last);
        if !restarts && self.next.is_some_and(|next| seq < next) {
            self.last_live = Some(seq);
            verdict.is_old = true;
            return verdict;
        }
        let (expected, last) = (self.next.unwrap_or(seq), self.last_live.unwrap_or(0));
        self.next = Some(seq.saturating_add(1));
        self.last_live = Some(seq);
        if restarts || seq == 0 {
            // A line begins here: nothing was told before.
            self.told = Some(Told::new());
        }
        self.payload(payload, &mut verdict);
        let clears = verdict.first() == Some(&Said::Cleared);
        match (restarts, self.needs.numbers) {
            (false, _) => verdict.judge(Rule::Number, seq == expected, || {
                format!("{expected} to {} never came", seq.saturating_sub(1))
            }),
            (true, Numbers::FromClock) => verdict.judge(Rule::Number, false, || {
                format!("{seq} is below {last}: it is dropped, and all that follow")
            }),
            (true, Numbers::FromZero) => verdict.judge(Rule::Number, clears, || {
                format!("{seq} after {last} does not clear first: what was told stays")
            }),
        }
        verdict
    }

    fn topic(&self, topic: &[u8], verdict: &mut Verdict) {
        if self.needs.topics != Topics::Named {
            return;
        }
        let text = String::from_utf8_lossy(topic);
        let parts: Vec<&str> = text.split('@').collect();
        let named = matches!(parts.as_slice(), ["kv", instance, model]
            if !instance.is_empty() && !model.is_empty());
        verdict.judge(Rule::Topic, named, || format!("it is {text:?}"));
    }

    fn payload(&mut self, payload: &[u8], verdict: &mut Verdict) {
        let read = match self.needs.encoding {
            Encoding::Msgpack => decode::batch(payload),
            #[cfg(feature = "sink-smg")]
            Encoding::Protobuf => protobuf::batch(payload),
        };
        let batch = match read {
            Ok(batch) => batch,
            Err(error) => {
                return verdict.judge(Rule::Batch, false, || error.to_string());
            }
        };
        let (elements, min) = (batch.elements, self.needs.elements_min);
        let fits = (min..=3).contains(&elements);
        verdict.judge(Rule::Batch, fits, || format!("it has {elements} elements"));
        verdict.judge(Rule::Time, batch.time.is_some(), || "it is another value".to_owned());
        for event in &batch.events {
            if let Some(form) = self.needs.form {
                verdict.judge(Rule::Form, event.form == form, || format!("{:?} came", event.form));
            } else {
                verdict.judge(Rule::Form, true, String::new);
            }
            self.event(&event.said, verdict);
        }
        verdict.batch = Some(batch);
    }

    fn event(&mut self, said: &Said, verdict: &mut Verdict) {
        let known = !matches!(said, Said::Other(_));
        verdict.judge(Rule::Tag, known, || match said {
            Said::Other(tag) => format!("{tag:?} came"),
            Said::Stored(_) | Said::Removed { .. } | Said::Cleared => String::new(),
        });
        match said {
            Said::Cleared => self.told = Some(Told::new()),
            Said::Stored(stored) => {
                self.stored(stored, verdict);
            }
            Said::Removed { hashes, medium } => {
                self.hashes(hashes, verdict);
                let Some(told) = &mut self.told else { return };
                for hash in hashes {
                    let key = (hash.key, medium.clone());
                    let was = told.get_mut(&key);
                    let had = was.is_some();
                    if let Some(copies) = was {
                        *copies -= 1;
                        if *copies == 0 {
                            told.remove(&key);
                        }
                    }
                    verdict.judge(Rule::Known, had, || format!("{:016x} is removed", hash.key));
                }
            }
            Said::Other(_) => (),
        }
    }

    fn stored(&mut self, stored: &Stored, verdict: &mut Verdict) {
        self.hashes(&stored.hashes, verdict);
        match &stored.parent {
            Some(parent) => {
                self.hashes(&[*parent], verdict);
                verdict.judge(Rule::Root, parent.key != 0, || "the parent is 0".to_owned());
            }
            None => verdict.judge(Rule::Root, true, String::new),
        }
        let size = usize::try_from(stored.block_size).unwrap_or(usize::MAX);
        let (blocks, tokens) = (stored.hashes.len(), stored.token_count);
        let full = size > 0 && blocks.checked_mul(size) == Some(tokens);
        verdict.judge(Rule::Size, full, || format!("{blocks} blocks of {size}, {tokens} tokens"));
        if self.needs.one_block_per_event {
            verdict.judge(Rule::Single, blocks == 1, || format!("{blocks} blocks came"));
        }
        if let (Some(tag), None) = (self.needs.salt_tag, stored.parent) {
            let own = |text: &&String| Some(*text) != stored.lora.as_ref();
            let tagged = stored.texts.iter().filter(own).all(|text| text.starts_with(tag));
            verdict.judge(Rule::Salt, tagged, || {
                "a text among the extra keys of a first block has no tag".to_owned()
            });
        }
        let Some(told) = &mut self.told else { return };
        if let Some(parent) = &stored.parent {
            let mut of =
                told.range((parent.key, None)..).take_while(|((key, _), _)| *key == parent.key);
            verdict.judge(Rule::Known, of.next().is_some(), || {
                format!("{:016x} is no block that was told", parent.key)
            });
        }
        for hash in &stored.hashes {
            *told.entry((hash.key, stored.medium.clone())).or_insert(0) += 1;
        }
    }

    fn hashes(&self, hashes: &[Hash], verdict: &mut Verdict) {
        for hash in hashes {
            let fits = match (self.needs.hashes, hash.written) {
                (HashForms::Any, _) => true,
                (HashForms::WideOrBytes, Written::Wide | Written::Bytes(_)) => true,
                (HashForms::WideOrBytes, Written::Short) => false,
                (HashForms::Numbers, Written::Wide | Written::Short) => true,
                (HashForms::Numbers, Written::Bytes(_)) => false,
                (HashForms::UnsignedOrBytes, Written::Bytes(count)) => count >= NUMBER_BYTES,
                (HashForms::UnsignedOrBytes, Written::Wide | Written::Short) => !hash.negative,
            };
            verdict.judge(Rule::Hash, fits, || match hash.written {
                Written::Bytes(count) => format!("a byte string of {count} came"),
                Written::Wide => "a number below 0 came".to_owned(),
                Written::Short => "a number of fewer than 9 bytes came".to_owned(),
            });
        }
    }
}

impl Verdict {
    /// Notes that a rule is kept or broken. A rule that is broken once is broken.
    fn judge(&mut self, rule: Rule, keeps: bool, why: impl FnOnce() -> String) {
        let broken = self.broken.iter().any(|broken| broken.rule == rule);
        if keeps && !broken && !self.kept.contains(&rule) {
            self.kept.push(rule);
        } else if !keeps && !broken {
            self.kept.retain(|kept| *kept != rule);
            self.broken.push(Broken { rule, why: why() });
        }
    }

    fn first(&self) -> Option<&Said> {
        Some(&self.batch.as_ref()?.events.first()?.said)
    }
}

fn seq(number: &[u8], verdict: &mut Verdict) -> Option<u64> {
    let bytes = <[u8; NUMBER_BYTES]>::try_from(number);
    let length = number.len();
    verdict.judge(Rule::Frames, bytes.is_ok(), || format!("a number of {length} bytes came"));
    verdict.seq = bytes.ok().map(u64::from_be_bytes);
    verdict.seq
}
