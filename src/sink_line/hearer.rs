//! What one reader that is connected to has been told of each line. It cannot ask: it is told
//! everything when it begins to listen, and again when something could not be sent.

use std::{collections::BTreeMap, sync::Arc};

use super::{Numbered, Payload};

/// Topics of lines that are over, of which a reader that comes back may still hold something. Too
/// small: it keeps what nobody will take from it. Too large: memory for replicas that are gone.
/// Full: one that it was told of goes first.
const GONE_MAX: usize = 4096;

/// One reader.
#[derive(Debug, Default)]
pub struct Hearer {
    /// What the topics that it listens to begin with.
    prefixes: Vec<Vec<u8>>,
    lines: BTreeMap<String, Heard>,
    gone: BTreeMap<String, Gone>,
}

/// A line that is over. A reader whose connection broke may hold it still, whatever it was told.
#[derive(Debug)]
struct Gone {
    /// That everything is gone.
    last_word: Payload,
    is_told: bool,
}

/// One line, as that reader has it.
#[derive(Debug, Default)]
struct Heard {
    next_seq: u64,
    /// It has what the line shows.
    is_told: bool,
}

impl Hearer {
    /// It listens to topics with that prefix from now on: it has nothing of them.
    pub fn listens(&mut self, prefix: &[u8]) {
        if !self.prefixes.iter().any(|known| known == prefix) {
            self.prefixes.push(prefix.to_vec());
        }
        for (topic, heard) in &mut self.lines {
            if topic.as_bytes().starts_with(prefix) {
                *heard = Heard::default();
            }
        }
        for (topic, gone) in &mut self.gone {
            if topic.as_bytes().starts_with(prefix) {
                gone.is_told = false;
            }
        }
    }

    /// It does so no more.
    pub fn leaves(&mut self, prefix: &[u8]) {
        self.prefixes.retain(|known| known != prefix);
        let prefixes = &self.prefixes;
        self.lines.retain(|topic, _| hears(prefixes, topic));
    }

    /// It is gone, and with it all that it had.
    pub fn lost(&mut self) {
        self.prefixes.clear();
        self.lines.clear();
    }

    /// Whether it listens to anything.
    pub fn is_listening(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Whether it listens to that topic.
    pub fn hears(&self, topic: &str) -> bool {
        hears(&self.prefixes, topic)
    }

    /// Whether it listens to that topic and has not what is shown there.
    pub fn lacks(&self, topic: &str) -> bool {
        hears(&self.prefixes, topic) && !self.lines.get(topic).is_some_and(|line| line.is_told)
    }

    /// What must be sent to it of a line that says `news`, under numbers of its own: the news, or,
    /// where it has not what came before, the `whole` of what the line shows after them, which
    /// begins with that everything is gone.
    pub fn offered(
        &mut self,
        topic: &str,
        news: &[Payload],
        whole: impl FnOnce() -> Vec<Payload>,
    ) -> Vec<Numbered> {
        if !hears(&self.prefixes, topic) {
            return Vec::new();
        }
        self.gone.remove(topic);
        let heard = self.lines.entry(topic.to_owned()).or_default();
        let payloads = if heard.is_told { news.to_vec() } else { whole() };
        heard.is_told = true;
        let numbered = |payload| {
            let seq = heard.next_seq;
            heard.next_seq += 1;
            Numbered { seq, payload }
        };
        payloads.into_iter().map(numbered).collect()
    }

    /// News had no room, and was not offered.
    pub fn missed(&mut self, topic: &str) {
        if let Some(heard) = self.lines.get_mut(topic) {
            heard.is_told = false;
        }
    }

    /// The line is over. Its last word is that everything is gone; it was offered.
    pub fn ends(&mut self, topic: &str, last_word: Payload) {
        let is_told = self.lines.remove(topic).is_some_and(|line| line.is_told);
        self.gone.insert(topic.to_owned(), Gone { last_word, is_told });
        if self.gone.len() > GONE_MAX {
            // What is still owed is kept longest.
            let told = self.gone.iter().find(|(_, gone)| gone.is_told);
            let out = told.or_else(|| self.gone.first_key_value());
            if let Some(topic) = out.map(|(topic, _)| topic.clone()) {
                self.gone.remove(&topic);
            }
        }
    }

    /// The last word of a line that is over, which it has not been told.
    pub fn owed(&self) -> Option<(String, Numbered)> {
        let owed = |(topic, gone): &(&String, &Gone)| !gone.is_told && hears(&self.prefixes, topic);
        let (topic, gone) = self.gone.iter().find(owed)?;
        Some((topic.clone(), Numbered { seq: 0, payload: Arc::clone(&gone.last_word) }))
    }

    /// The last words of all lines that are over and that it listens to, told or not.
    pub fn last_words(&self) -> impl Iterator<Item = (&str, Numbered)> {
        let heard = self.gone.iter().filter(|(topic, _)| hears(&self.prefixes, topic));
        heard.map(|(topic, gone)| {
            (topic.as_str(), Numbered { seq: 0, payload: Arc::clone(&gone.last_word) })
        })
    }

    /// It was told that.
    pub fn paid(&mut self, topic: &str) {
        if let Some(gone) = self.gone.get_mut(topic) {
            gone.is_told = true;
        }
    }
}

fn hears(prefixes: &[Vec<u8>], topic: &str) -> bool {
    prefixes.iter().any(|prefix| topic.as_bytes().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_forgotten_last() {
        let mut hearer = Hearer::default();
        hearer.listens(b"");
        let word = || Payload::from(*b"gone");
        hearer.ends("a", word());
        for at in 0..GONE_MAX {
            let topic = format!("b{at}");
            hearer.ends(&topic, word());
            hearer.paid(&topic);
        }
        assert_eq!(hearer.gone.len(), GONE_MAX);
        assert_eq!(hearer.owed().map(|(topic, _)| topic).as_deref(), Some("a"));
        assert_eq!(hearer.last_words().count(), GONE_MAX);
    }
}
