//! Which life of a replica's cache the log is of, and whether it is the one that this bridge reads.
//!
//! The registry names a life by batches of it, not by a number: a bridge publishes under an epoch
//! only after it has compared bytes. Everything here is a decision over what was read elsewhere: no
//! clock, no bus.
//!
//! | the newest life on record | so |
//! |---|---|
//! | there is none | mint |
//! | all common seqs equal, the newest of them included | adopt |
//! | … under a name below one that was ever read | mint above that |
//! | a common seq has other bytes | mint above it, if heard after the record was read |
//! | … and ours is one of the lives before it | closed: silent until the next life |
//! | nothing common yet, ours is behind | wait for the seqs to come |
//! | nothing common any more | ask the journal; then mint, if no other bridge speaks for it |

use std::collections::BTreeMap;

use kvbridge_schemas::{Cursor, Digest, Epoch, Seq};

/// Batches that name a life in the registry: enough for a log written fast and read late.
pub const ANCHORS_MAX: usize = 16;

/// Ended lives that the registry remembers. Fewer: a bridge that was away for more restarts than
/// this takes an ended life for a new one.
pub const PAST_LIVES_MAX: usize = 8;

/// Own digests kept to compare with. Fewer: a log that was read long ago shares no seq any more,
/// and the engine's journal is asked. More: 24 bytes each.
pub const OWN_DIGESTS_MAX: usize = 4096;

/// One life, as batches of it tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its name.
    pub epoch: Epoch,
    /// Batches of it, by seq.
    pub anchors: BTreeMap<Seq, Digest>,
    /// The engine's own evidence of its life.
    pub incarnation: Option<String>,
}

/// What the registry holds of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The life that the log is of.
    pub life: Life,
    /// The log has every seq below, or said what it lacks.
    pub published: Seq,
    /// Ended ones, newest first.
    pub past: Vec<Life>,
    /// Everything beside the engine's bytes that the content of envelopes depends on.
    pub content: String,
    /// The bridge that wrote it.
    pub by: String,
}

/// The end of a replica's log, as it is on the bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The newest life on it, with the batches read.
    pub life: Life,
    /// What it expects next.
    pub next_seq: Seq,
    /// Seqs below `next_seq` that are not there: messages of a window may overtake each other.
    pub missing: Vec<Seq>,
}

/// What a bridge knows of the life it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its newest batches; of what was asked of the journal also older ones.
    pub digests: BTreeMap<Seq, Digest>,
    /// The engine's own evidence.
    pub incarnation: Option<String>,
    /// Behind the newest batch ever heard of it.
    pub next_seq: Seq,
    /// The view stands at the engine's newest batch.
    pub settled: bool,
    /// Whether batches came after the record was read.
    pub heard: Heard,
    /// The log has every seq of it below, by the word of the bus.
    pub acked: Seq,
    /// The name it had on the log so far.
    pub named: Option<Epoch>,
    /// The highest name that this bridge ever read or wrote, of whichever life.
    pub given: Epoch,
    /// The journal was asked for an anchor, and has none.
    pub journal_spent: bool,
}

/// Whether a life was heard after the registry was read. Ordered: a later one proves more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heard {
    /// No: it may be over.
    #[default]
    Not,
    /// Yes: it was not over then.
    Since,
    /// Long after, which no buffer on the way explains.
    LongSince,
}

/// All that a decision rests on.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The registry.
    pub record: Option<&'a Record>,
    /// The log.
    pub tail: Option<&'a Tail>,
    /// This bridge.
    pub own: &'a Own,
    /// As [`Record::content`], of this bridge.
    pub content: &'a str,
    /// Another bridge speaks for this replica now.
    pub others: bool,
    /// Recovery's own number of the life: its name too, where no higher one was ever given.
    pub local: Epoch,
    /// No name at or below this one is given.
    pub floor: Epoch,
    /// Wall clock, unix ms.
    pub now_ms: u64,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Publish under this name.
    Adopt(Epoch),
    /// Give it this name, by compare-and-set, and decide again if that fails.
    Mint(Epoch),
    /// Say nothing, and ask the engine's journal for this seq.
    AskJournal(Seq),
    /// Say nothing yet.
    Wait(Silence),
}

/// Why a bridge says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// Nothing was heard of this life since the record was read.
    NotHeard,
    /// The view has not reached the seqs that can be compared.
    CatchingUp,
    /// Nothing can be compared, and another bridge speaks.
    OthersSpeak,
    /// The log is of a later life.
    Closed,
    /// Other settings or another decoder made what is on the log.
    SettingsDiffer,
}

impl Silence {
    /// The word in logs and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Silence::NotHeard => "not_heard",
            Silence::CatchingUp => "catching_up",
            Silence::OthersSpeak => "others_speak",
            Silence::Closed => "life_closed",
            Silence::SettingsDiffer => "content_differs",
        }
    }
}

/// How two lives compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    Same,
    Other,
    /// No contradiction, but the newest batch on record is not ours to compare; `some` = an older
    /// one was, and is the same.
    Open {
        newest: Option<Seq>,
        some: bool,
    },
}

/// Decides under which name, if any, a bridge may publish.
pub fn decide(question: &Question<'_>) -> Verdict {
    let Question { record, tail, own, .. } = question;
    let Some(newest) = newest_life(*record, *tail) else {
        // Nobody has said anything of this replica: whoever hears it first names it.
        return if (own.heard > Heard::Not || own.settled) && !own.digests.is_empty() {
            Verdict::Mint(question.next_epoch())
        } else {
            Verdict::Wait(Silence::NotHeard)
        };
    };
    let compared = compare(&newest, own);
    if compared == Compared::Other && past_lives(*record, *tail, newest.epoch, own) {
        return Verdict::Wait(Silence::Closed);
    }
    // Of a life that only the log tells of nobody knows what made its content, but who wrote it.
    let on_record = record.filter(|record| record.life.epoch == newest.epoch);
    let content_differs = match on_record {
        Some(record) => record.content != question.content,
        None => own.named != Some(newest.epoch),
    };
    match compared {
        Compared::Same if content_differs => question.mint_alone(Silence::SettingsDiffer),
        // The registry was lost, and whoever named our life anew knew no name of before. Readers
        // do: below it everything is stale to them, for ever.
        Compared::Same if newest.epoch < own.given => question.mint_heard(),
        Compared::Same => Verdict::Adopt(newest.epoch),
        Compared::Other if own.named.is_some() && own.heard < Heard::LongSince => {
            // A later name was given to other bytes: ours is over, unless it is still heard.
            Verdict::Wait(Silence::Closed)
        }
        Compared::Other => question.mint_heard(),
        Compared::Open { newest, some } => question.open(newest, some),
    }
}

impl Question<'_> {
    /// Above everything that anybody ever gave.
    fn next_epoch(&self) -> Epoch {
        let recorded = self.record.map_or(0, |record| record.life.epoch.0);
        let on_log = self.tail.map_or(0, |tail| tail.life.epoch.0);
        let given = recorded.max(on_log).max(self.floor.0).max(self.own.given.0);
        if self.local.0 > given {
            return self.local;
        }
        Epoch(given.max(self.now_ms).saturating_add(1))
    }

    /// A new name for a life that is known not to be over.
    fn mint_heard(&self) -> Verdict {
        if self.own.heard > Heard::Not {
            Verdict::Mint(self.next_epoch())
        } else {
            Verdict::Wait(Silence::NotHeard)
        }
    }

    /// A new name where no other bridge would be contradicted by it.
    fn mint_alone(&self, otherwise: Silence) -> Verdict {
        if self.others || self.own.heard == Heard::Not {
            Verdict::Wait(otherwise)
        } else {
            Verdict::Mint(self.next_epoch())
        }
    }

    fn open(&self, newest: Option<Seq>, some: bool) -> Verdict {
        let own = self.own;
        let Some(newest) = newest else { return self.mint_alone(Silence::OthersSpeak) };
        if own.next_seq <= newest {
            // A settled view below the log for long, and nothing of it on the log: the engine
            // counts from 0 again. With a batch in common it is only later than its twin.
            return if !some && own.settled && own.heard == Heard::LongSince {
                Verdict::Mint(self.next_epoch())
            } else {
                Verdict::Wait(Silence::CatchingUp)
            };
        }
        if own.journal_spent {
            self.mint_alone(Silence::OthersSpeak)
        } else {
            Verdict::AskJournal(newest)
        }
    }
}

/// The life of the highest name, with all that is known of it.
fn newest_life(record: Option<&Record>, tail: Option<&Tail>) -> Option<Life> {
    let (record, tail) = (record.map(|record| &record.life), tail.map(|tail| &tail.life));
    let mut newest = match (record, tail) {
        (Some(record), Some(tail)) if record.epoch >= tail.epoch => record.clone(),
        (_, Some(tail)) => tail.clone(),
        (Some(record), None) => record.clone(),
        (None, None) => return None,
    };
    if let (Some(record), Some(tail)) = (record, tail)
        && record.epoch == tail.epoch
    {
        newest.anchors.extend(&tail.anchors);
    }
    Some(newest)
}

/// Whether ours is a life that ended before `newest`.
fn past_lives(record: Option<&Record>, tail: Option<&Tail>, newest: Epoch, own: &Own) -> bool {
    let recorded = record.into_iter().flat_map(|record| record.past.iter().chain([&record.life]));
    let on_log = tail.into_iter().map(|tail| &tail.life);
    let mut before = recorded.chain(on_log).filter(|life| life.epoch < newest);
    before.any(|life| compare(life, own) == Compared::Same)
}

fn compare(life: &Life, own: &Own) -> Compared {
    if let (Some(theirs), Some(ours)) = (&life.incarnation, &own.incarnation)
        && theirs != ours
    {
        return Compared::Other;
    }
    let common = life.anchors.iter().filter_map(|(seq, digest)| {
        let ours = own.digests.get(seq)?;
        Some((*seq, ours == digest))
    });
    let mut newest_common = None;
    for (seq, equal) in common {
        if !equal {
            return Compared::Other;
        }
        newest_common = Some(seq);
    }
    let newest = life.anchors.keys().next_back().copied();
    if newest.is_some() && newest == newest_common {
        Compared::Same
    } else {
        Compared::Open { newest, some: newest_common.is_some() }
    }
}

/// What the registry is to hold once this bridge's life has this name.
pub fn record(before: Option<&Record>, own: &Own, epoch: Epoch, content: &str, by: &str) -> Record {
    let life = Life { epoch, anchors: anchors(own), incarnation: own.incarnation.clone() };
    let mut past = before.map(|record| record.past.clone()).unwrap_or_default();
    if let Some(before) = before
        && before.life.epoch < epoch
    {
        past.insert(0, before.life.clone());
    }
    past.truncate(PAST_LIVES_MAX);
    let published = if own.named == Some(epoch) { own.acked } else { Seq(0) };
    let (content, by) = (content.to_owned(), by.to_owned());
    Record { life, published, past, content, by }
}

/// The oldest batch and the newest ones, ever further apart.
fn anchors(own: &Own) -> BTreeMap<Seq, Digest> {
    let newest_first: Vec<(Seq, Digest)> =
        own.digests.iter().rev().map(|(seq, digest)| (*seq, *digest)).collect();
    let apart = (0..ANCHORS_MAX - 1).map(|step| if step < 4 { step } else { 1 << (step - 2) });
    let mut chosen: BTreeMap<Seq, Digest> =
        apart.filter_map(|back| newest_first.get(back).copied()).collect();
    chosen.extend(newest_first.last().copied());
    chosen
}

/// Where a log of this name is gone on with: what it expects, and what it lacks below that.
pub fn resume(epoch: Epoch, record: Option<&Record>, tail: Option<&Tail>) -> (Cursor, Vec<Seq>) {
    if let Some(tail) = tail
        && tail.life.epoch == epoch
    {
        return (Cursor { epoch, next_seq: tail.next_seq }, tail.missing.clone());
    }
    // Its messages are gone from the bus, or none was sent yet.
    let known = record.filter(|record| record.life.epoch == epoch);
    (Cursor { epoch, next_seq: known.map_or(Seq(0), |record| record.published) }, Vec::new())
}

#[cfg(test)]
#[path = "lives_tests.rs"]
mod tests;
