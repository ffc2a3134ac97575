//! The registry of lives, and one bridge's way to it: it reads, decides, and writes a while later.

use std::collections::BTreeMap;

use kvbridge::{
    schemas::{BusSeq, Epoch, Status},
    shared_log::{
        Called, Name, Naming, TailReader, called,
        lives::{self, Question, Record, Silence, Tail, Verdict},
    },
};

use crate::{log::Log, mistakes::Mistake, reading::WINDOW, rng::Rng, setting::STATUS_TTL_MS};

/// Between two looks at a life without a name: at least, and at most.
const LOOK_MS: (u64, u64) = (10, 80);

/// Between two writes of newer anchors.
const ANCHOR_MS: u64 = 400;

/// What bridges share beside the log.
#[derive(Default)]
pub(crate) struct Registry {
    record: Option<Record>,
    revision: u64,
    written_at: u64,
    /// The newest word of each bridge, and when it was said.
    words: BTreeMap<&'static str, (Status, u64)>,
    /// How often it was lost.
    pub(crate) losses: u64,
    /// How often a life was given a name because nothing of it could be compared: the journal did
    /// not answer, and no other bridge spoke.
    pub(crate) uncompared: u64,
}

impl Registry {
    pub(crate) fn say(&mut self, now: u64, bridge: &'static str, status: Status) {
        self.words.insert(bridge, (status, now));
    }

    fn others_speak(&self, now: u64, bridge: &str) -> bool {
        let fresh = self.words.iter().filter(|(_, (_, at))| now - at < STATUS_TTL_MS);
        fresh.into_iter().any(|(name, _)| *name != bridge)
    }

    /// By compare-and-set.
    fn write(&mut self, now: u64, revision: u64, record: Record) -> bool {
        if revision != self.revision {
            return false;
        }
        self.revision += 1;
        self.written_at = now;
        self.record = Some(record);
        true
    }

    /// It is gone, with everything that was in it.
    pub(crate) fn lose(&mut self) {
        self.losses += 1;
        self.record = None;
        self.revision = 0;
    }

    /// The mistake of a time to live.
    pub(crate) fn expire(&mut self, now: u64) {
        if self.record.is_some() && now - self.written_at > 300 {
            self.record = None;
            self.revision = 0;
        }
    }
}

/// A decision on its way to the registry.
struct Pending {
    at: u64,
    revision: u64,
    local: Epoch,
    called: Called,
    uncompared: bool,
}

/// One bridge's.
pub(crate) struct Desk {
    name: &'static str,
    pub(crate) content: String,
    floor: Epoch,
    look_at: u64,
    wait_ms: u64,
    anchored_at: u64,
    pending: Option<Pending>,
    mistake: Option<Mistake>,
    rng: Rng,
}

impl Desk {
    pub(crate) fn new(
        name: &'static str,
        floor: Epoch,
        mistake: Option<Mistake>,
        rng: Rng,
    ) -> Desk {
        Desk {
            name,
            content: "content 1".to_owned(),
            floor,
            look_at: 0,
            wait_ms: 0,
            anchored_at: 0,
            pending: None,
            mistake,
            rng,
        }
    }

    /// The connection is gone: what was under way is lost, or was written.
    pub(crate) fn lost(&mut self, now: u64, registry: &mut Registry) {
        let pending = self.pending.take().filter(|_| self.rng.hit(5_000));
        let Some(Pending { revision, called, uncompared, .. }) = pending else { return };
        if let Some(record) = called.write
            && registry.write(now, revision, record)
        {
            registry.uncompared += u64::from(uncompared);
        }
    }

    /// One turn on a connection; returns what the life is called, if that is new.
    pub(crate) fn turn(
        &mut self,
        (now, unix_ms, pointed): (u64, u64, Epoch),
        naming: &mut Naming,
        log: &Log,
        registry: &mut Registry,
    ) -> Option<Name> {
        if let Some(pending) = self.pending.take_if(|pending| pending.at <= now) {
            let Pending { revision, local, called: Called { write, name }, uncompared, .. } =
                pending;
            if uncompared && revision == registry.revision {
                registry.uncompared += 1;
            }
            let written = write.is_none_or(|record| registry.write(now, revision, record));
            return (written && naming.call(local, name.clone())).then_some(name);
        }
        if self.pending.is_some() || !self.may_look(now, naming.name()) {
            return None;
        }
        self.look((now, unix_ms, pointed), naming, log, registry);
        None
    }

    fn may_look(&mut self, now: u64, name: &Name) -> bool {
        if *name == Name::Undecided && self.wait_ms >= LOOK_MS.1 {
            (self.look_at, self.wait_ms) = (0, 0);
        }
        if now < self.look_at {
            return false;
        }
        self.wait_ms = if matches!(name, Name::Named(_)) {
            LOOK_MS.1
        } else {
            (self.wait_ms * 2).clamp(LOOK_MS.0, LOOK_MS.1)
        };
        self.look_at = now + self.wait_ms;
        true
    }

    fn look(
        &mut self,
        (now, now_ms, pointed): (u64, u64, Epoch),
        naming: &mut Naming,
        log: &Log,
        registry: &Registry,
    ) {
        let record = registry.record.as_ref();
        let newest = record.map_or(Epoch(0), |record| record.life.epoch);
        let (local, own, name) = naming.own(newest, now_ms);
        if own.digests.is_empty() {
            return;
        }
        let at = now + self.rng.below(40);
        let revision = registry.revision;
        if let (Name::Named(named), Some(record)) = (&name, record)
            && record.life.epoch == named.log.epoch
        {
            if now >= self.anchored_at + ANCHOR_MS && own.acked > record.published {
                self.anchored_at = now;
                let epoch = record.life.epoch;
                let newer = lives::record(Some(record), &own, epoch, &self.content, self.name);
                let called = Called { write: Some(newer), name };
                self.pending = Some(Pending { at, revision, local, called, uncompared: false });
            }
            return;
        }
        let tail = tail(log);
        let mut question = Question {
            record,
            tail: tail.as_ref(),
            own: &own,
            content: &self.content,
            others: true,
            local,
            floor: self.floor.max(pointed),
            now_ms,
        };
        let mut verdict = lives::decide(&question);
        if matches!(verdict, Verdict::Wait(Silence::OthersSpeak | Silence::SettingsDiffer)) {
            question.others = registry.others_speak(now, self.name);
            verdict = lives::decide(&question);
        }
        let known = record.map(|record| record.life.epoch);
        match (self.mistake, known) {
            (Some(Mistake::AdoptedWithoutAnchor), Some(known)) => verdict = Verdict::Adopt(known),
            (Some(Mistake::ContentIgnored), Some(known))
                if matches!(verdict, Verdict::Wait(Silence::SettingsDiffer)) =>
            {
                verdict = Verdict::Adopt(known);
            }
            (Some(Mistake::MintedWithoutComparing), _) if name.epoch().is_none() => {
                verdict = Verdict::Mint(Epoch(now_ms.max(newest.0 + 1)));
            }
            _ => (),
        }
        let other_content = record.is_none_or(|record| record.content != self.content);
        let uncomparable = own.journal_spent || other_content;
        let alone = uncomparable && !registry.others_speak(now, self.name);
        let uncompared = matches!(verdict, Verdict::Mint(_)) && alone;
        let called = called(verdict, &name, &question, self.name);
        self.pending = called.map(|called| Pending { at, revision, local, called, uncompared });
    }
}

/// The end of the log, further back than any window.
fn tail(log: &Log) -> Option<Tail> {
    let newest = log.newest()?.at;
    let mut reader = TailReader::default();
    for stored in log.from(BusSeq(newest.0.saturating_sub(120))) {
        reader.take(&stored.envelope);
    }
    reader.tail(WINDOW as u64)
}
