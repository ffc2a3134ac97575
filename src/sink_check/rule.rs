//! The rules of readers, a word and a sentence each.

use crate::sink_line::{Form, HashForms, Needs, Numbers, Topics};

/// What a reader wants of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The message.
    Frames,
    /// The topic.
    Topic,
    /// The array around the events.
    Batch,
    /// The time.
    Time,
    /// How events are written.
    Form,
    /// What events say.
    Tag,
    /// How hashes are written.
    Hash,
    /// How no parent is written.
    Root,
    /// Tokens and blocks.
    Size,
    /// Blocks of an event.
    Single,
    /// How a salt is written.
    Salt,
    /// The numbers of live batches.
    Number,
    /// What events speak of.
    Known,
    /// The numbers of an answer.
    Range,
    /// The end of an answer.
    End,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 15] = [
        Rule::Frames,
        Rule::Topic,
        Rule::Batch,
        Rule::Time,
        Rule::Form,
        Rule::Tag,
        Rule::Hash,
        Rule::Root,
        Rule::Size,
        Rule::Single,
        Rule::Salt,
        Rule::Number,
        Rule::Known,
        Rule::Range,
        Rule::End,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Frames => "frames",
            Rule::Topic => "topic",
            Rule::Batch => "batch",
            Rule::Time => "time",
            Rule::Form => "form",
            Rule::Tag => "tag",
            Rule::Hash => "hash",
            Rule::Root => "root",
            Rule::Size => "size",
            Rule::Single => "single",
            Rule::Salt => "salt",
            Rule::Number => "number",
            Rule::Known => "known",
            Rule::Range => "range",
            Rule::End => "end",
        }
    }

    /// What a reader with these needs wants; `None` = it does not care.
    pub fn meaning(self, needs: &Needs) -> Option<&'static str> {
        let streamed = needs.encoding.is_streamed();
        Some(match self {
            // A message has types: neither an array nor a form of hashes can be another.
            Rule::Batch if streamed => "a message of KvEventBatch",
            Rule::Form | Rule::Hash | Rule::End if streamed => return None,
            Rule::Frames if streamed => "a number above 0 and events",
            Rule::Frames => "a topic, a number of 8 bytes, a payload",
            Rule::Topic if needs.topics == Topics::Named => {
                "kv@<instance>@<model>, three parts: the second is whose blocks they are"
            }
            Rule::Topic => return None,
            Rule::Batch if needs.elements_min == 3 => {
                "an array of three: time, events, rank; another length loses the batch"
            }
            Rule::Batch => "an array of two or three: time, events, rank",
            Rule::Time => "a fraction of 8 bytes",
            Rule::Form => match needs.form {
                Some(Form::Maps) => "events are maps; by position they lose the batch",
                Some(Form::Arrays) => "events are arrays; by name they lose the batch",
                None => "events are maps or arrays",
            },
            Rule::Tag => "a store, a removal or a clear; another tag loses the batch",
            Rule::Hash => match needs.hashes {
                HashForms::WideOrBytes => "numbers of 9 bytes, or byte strings",
                HashForms::Numbers => "numbers; byte strings lose the batch",
                HashForms::UnsignedOrBytes => "numbers from 0 on, or byte strings of 8 and more",
                HashForms::Any => "numbers or byte strings",
            },
            Rule::Root => "no parent is nil; 0 is no hash",
            Rule::Size => "as many tokens as blocks have",
            Rule::Single if needs.one_block_per_event => {
                "one block a store: all are hashed from the event's parent"
            }
            Rule::Single => return None,
            Rule::Salt if needs.salt_tag.is_some() => {
                "a salt has the reader's tag; without it, it is none"
            }
            Rule::Salt => return None,
            Rule::Number => match needs.numbers {
                Numbers::FromClock => "no gap, and never a smaller one: it is dropped for ever",
                Numbers::FromZero => "no gap; a smaller one is a restart, and clears first",
            },
            Rule::Known => "a parent, and what is removed, was told before",
            Rule::Range => match needs.numbers {
                Numbers::FromClock => "an answer has no hole",
                Numbers::FromZero => "an answer begins where it was asked and has no hole",
            },
            Rule::End => "an answer ends with the end marker",
        })
    }
}
