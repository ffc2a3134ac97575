//! What a journal answered, and what follows from it.

use super::{
    EngineSight, Finding, RankSight,
    engine::Found,
    table::{
        REPLAY_EMPTY, REPLAY_HOLE, REPLAY_NO_END, REPLAY_SHORT, REPLAY_SILENT, REPLAY_UNNAMED,
        REPLAY_UNREACHABLE, REPLAY_WHOLE,
    },
};

/// What a journal answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaySight {
    /// Such an engine has none.
    NoJournal,
    /// Nobody says where it is.
    Unnamed,
    /// It was not asked: the rank could not be reached.
    NotAsked,
    /// No connection.
    Unreachable(String),
    /// No answer, or none that can be read.
    Silent(String),
    /// An answer.
    Heard(JournalSight),
}

/// An answer to a request for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalSight {
    /// Batches that came.
    pub batches: u64,
    /// Seq of the first.
    pub first: Option<u64>,
    /// Seq of the last.
    pub last: Option<u64>,
    /// Seqs that were left out in between.
    pub missing: u64,
    /// Why it ended without its end marker.
    pub unended: Option<String>,
}

impl JournalSight {
    /// A batch of that seq came.
    pub fn seq(&mut self, seq: u64) {
        self.batches += 1;
        self.first.get_or_insert(seq);
        if let Some(last) = self.last {
            self.missing = self.missing.saturating_add(seq.saturating_sub(last + 1));
        }
        self.last = Some(seq);
    }
}

/// What is found of a rank's journal.
pub(super) fn judge(sight: &EngineSight, rank: &RankSight, found: &mut Found) {
    let about = |about| Finding::new(about, sight.knobs);
    let heard = match &rank.replay {
        ReplaySight::NoJournal | ReplaySight::NotAsked => return,
        ReplaySight::Unnamed => return found.add(about(&REPLAY_UNNAMED)),
        ReplaySight::Unreachable(why) => return found.add(about(&REPLAY_UNREACHABLE).seen(why)),
        ReplaySight::Silent(why) => return found.add(about(&REPLAY_SILENT).seen(why)),
        ReplaySight::Heard(heard) => heard,
    };
    let (Some(first), Some(last)) = (heard.first, heard.last) else {
        if let Some(live) = rank.stream.last {
            found.add(about(&REPLAY_EMPTY).seen(format!("the live stream is at seq {live}")));
        } else if heard.unended.is_none() {
            found.add(about(&REPLAY_WHOLE).seen("nothing was published yet"));
        }
        return unended(sight, heard, found);
    };
    let range = format!("{} batches, seq {first} to {last}", heard.batches);
    if heard.missing > 0 {
        let missing = heard.missing;
        found.add(about(&REPLAY_HOLE).seen(format!("{missing} of seq {first} to {last}")));
    }
    if first > 0 {
        found.add(about(&REPLAY_SHORT).seen(range));
    } else if heard.missing == 0 && heard.unended.is_none() {
        found.add(about(&REPLAY_WHOLE).seen(range));
    }
    unended(sight, heard, found);
}

fn unended(sight: &EngineSight, heard: &JournalSight, found: &mut Found) {
    if let Some(why) = &heard.unended {
        let detail = format!("after {} batches: {why}", heard.batches);
        found.add(Finding::new(&REPLAY_NO_END, sight.knobs).seen(detail));
    }
}
