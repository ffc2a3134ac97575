//! A model of a stream on a server: numbers, retention by count, ids known for a time, and what
//! other replicas write in between. Beside it the stored snapshots and their pointer.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use kvbridge::{
    schemas::{
        BusSeq, Cursor, Digest, Envelope, Epoch, Event, Seq, SnapshotHeader, SnapshotRecord,
    },
    shared_log::{LogEnds, Outgoing, Pointer},
};

use crate::{
    faults::{Fault, Faults},
    invariants::Violation,
    rng::Rng,
};

/// A bridge may be away for so long when the stream is made anew.
const REFILLED_MS: u64 = 1_000;

/// A message as the stream has it.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) at: BusSeq,
    pub(crate) id: String,
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) stored_at: u64,
}

/// For how long its disk is full at most: longer than anything may be believed unseen.
const FULL_MS: u64 = 3_400;

/// What the stream answers to a writer.
#[derive(Clone, Copy)]
pub(crate) struct Ack {
    pub(crate) at: BusSeq,
}

/// The stream.
pub(crate) struct Log {
    created: u64,
    first: u64,
    last: u64,
    messages: VecDeque<Stored>,
    kept_max: u64,
    known_ms: u64,
    ids: BTreeMap<String, (BusSeq, u64)>,
    /// What was ever stored of data: its bytes, and when last.
    data: BTreeMap<(Epoch, Seq), (Digest, u64)>,
    /// What was ever stored or said to be lost, kept or not.
    told: BTreeSet<(Epoch, Seq)>,
    names: BTreeSet<Epoch>,
    /// In what form the batches of a life are.
    forms: BTreeMap<Epoch, String>,
    pub(crate) stored_twice: u64,
    full_until: u64,
    disk: Rng,
}

impl Log {
    pub(crate) fn new(kept_max: u64, known_ms: u64, disk: Rng) -> Log {
        Log {
            created: 1,
            first: 1,
            last: 0,
            messages: VecDeque::new(),
            kept_max,
            known_ms,
            ids: BTreeMap::new(),
            data: BTreeMap::new(),
            told: BTreeSet::new(),
            names: BTreeSet::new(),
            forms: BTreeMap::new(),
            stored_twice: 0,
            full_until: 0,
            disk,
        }
    }

    /// Its disk is full for a while, or has room again, at the latest when faults are off.
    pub(crate) fn turn(&mut self, now: u64, faults: &Faults) {
        if faults.strike(Fault::DiskFull, &mut self.disk) {
            self.full_until = now + 100 + self.disk.below(FULL_MS);
        }
        if !faults.has(Fault::DiskFull) {
            self.full_until = 0;
        }
    }

    /// Whether it stores nothing.
    pub(crate) fn is_full(&self, now: u64) -> bool {
        now < self.full_until
    }

    /// Stores a message, or finds that it is there.
    pub(crate) fn store(&mut self, now: u64, message: &Outgoing) -> Result<Ack, Violation> {
        let known = self.ids.get(&message.id).filter(|(_, at)| now - at < self.known_ms);
        if let Some((at, _)) = known.copied() {
            let there = self.messages.iter().find(|stored| stored.at == at);
            let same = |stored: &Stored| {
                let (stored, sent) = (&stored.envelope, &message.envelope);
                (stored.digest, &stored.events) == (sent.digest, &sent.events)
            };
            if there.is_some_and(|stored| !same(stored)) {
                let id = &message.id;
                return Err(Violation::new(format!("{id} stands for two contents")));
            }
            return Ok(Ack { at });
        }
        self.witness(now, &message.envelope)?;
        let Envelope { epoch, seq, span, .. } = *message.envelope;
        self.told.extend((0..u64::from(span)).map(|offset| (epoch, seq.plus(offset))));
        self.last += 1;
        let at = BusSeq(self.last);
        self.ids.insert(message.id.clone(), (at, now));
        let (id, envelope) = (message.id.clone(), Arc::clone(&message.envelope));
        self.messages.push_back(Stored { at, id, envelope, stored_at: now });
        self.age();
        Ok(Ack { at })
    }

    /// Data is there once in the time that ids are known, and with one content for ever.
    fn witness(&mut self, now: u64, envelope: &Envelope) -> Result<(), Violation> {
        let is_data = !matches!(envelope.events.first(), Some(Event::Reset(_)));
        if !is_data || envelope.span == 0 {
            return Ok(());
        }
        let place = (envelope.epoch, envelope.seq);
        self.names.insert(envelope.epoch);
        let form = &envelope.engine.format;
        if self.forms.entry(envelope.epoch).or_insert_with(|| form.clone()) != form {
            return Err(Violation::new(format!("two decoders wrote {place:?}'s life")));
        }
        let before = self.data.insert(place, (envelope.digest, now));
        let Some((digest, at)) = before else { return Ok(()) };
        if digest != envelope.digest {
            return Err(Violation::new(format!("{place:?} was published with two contents")));
        }
        if now - at < self.known_ms {
            return Err(Violation::new(format!("{place:?} is on the log twice")));
        }
        self.stored_twice += 1;
        Ok(())
    }

    /// What other replicas write in between.
    pub(crate) fn others_write(&mut self, count: u64) {
        self.last += count;
        self.age();
    }

    /// The stream is gone, and made anew by whoever needs it first.
    pub(crate) fn make_anew(&mut self, now: u64) {
        self.created = now.max(self.created + 1);
        (self.first, self.last) = (1, 0);
        self.messages.clear();
        self.ids.clear();
        self.data.clear();
        self.told.clear();
    }

    fn age(&mut self) {
        self.first = self.first.max((self.last + 1).saturating_sub(self.kept_max));
        while self.messages.front().is_some_and(|oldest| oldest.at.0 < self.first) {
            self.messages.pop_front();
        }
    }

    pub(crate) fn ends(&self) -> LogEnds {
        LogEnds { created: self.created, first: BusSeq(self.first), last: BusSeq(self.last) }
    }

    /// Whether whoever stands there finds the batch before it, so that nothing is lost to it.
    pub(crate) fn covers(&self, cursor: Cursor) -> bool {
        let last = cursor.next_seq.minus(1);
        self.messages.iter().map(|stored| &stored.envelope).any(|it| {
            let end = it.seq.plus(u64::from(it.span));
            it.epoch == cursor.epoch && it.seq <= last && last < end
        })
    }

    /// This replica's messages from a place on.
    pub(crate) fn from(&self, at: BusSeq) -> impl Iterator<Item = &Stored> {
        let begin = self.messages.partition_point(|stored| stored.at < at);
        self.messages.range(begin..)
    }

    /// What is kept of the newest life has no hole: whatever is missing was said to be.
    pub(crate) fn check_whole(&self) -> Result<(), Violation> {
        let Some(epoch) = self.life() else { return Ok(()) };
        // One that was made anew begins with what bridges had not been told is stored; the rest of
        // their windows is gone with the log before.
        let begins = if self.created > 1 { self.created + REFILLED_MS } else { 0 };
        let of = self.messages.iter().filter(|stored| stored.envelope.epoch == epoch);
        let covers = |stored: &Stored| {
            let it = &stored.envelope;
            (it.seq, it.seq.plus(u64::from(it.span)), stored.stored_at)
        };
        let mut covered: Vec<(Seq, Seq, u64)> =
            of.filter(|stored| stored.envelope.span > 0).map(covers).collect();
        covered.sort_unstable();
        let mut end = covered.first().map_or(Seq(0), |(seq, ..)| *seq);
        for (seq, to, stored_at) in covered {
            // What came late may have outlived what is between: that was there once.
            let lacks = (end.0..seq.0).any(|seq| !self.told.contains(&(epoch, Seq(seq))));
            if lacks && stored_at >= begins {
                return Err(Violation::new(format!("the log lacks {end} to {seq} of {epoch}")));
            }
            end = end.max(to);
        }
        Ok(())
    }

    /// How many names lives were given.
    pub(crate) fn names(&self) -> u64 {
        self.names.len() as u64
    }

    /// For how long ids are known.
    pub(crate) fn known_ms(&self) -> u64 {
        self.known_ms
    }

    pub(crate) fn oldest(&self) -> Option<&Stored> {
        self.messages.front()
    }

    pub(crate) fn newest(&self) -> Option<&Stored> {
        self.messages.back()
    }

    /// The newest life of which a message is there.
    pub(crate) fn life(&self) -> Option<Epoch> {
        self.newest().map(|stored| stored.envelope.epoch)
    }
}

/// A stored snapshot.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) header: SnapshotHeader,
    pub(crate) records: Vec<SnapshotRecord>,
}

/// Stored snapshots, and where readers are sent.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) stored: BTreeMap<String, Object>,
    pub(crate) pointer: Option<Pointer>,
    /// Where readers were sent before, and from where on: the newest reset that was known.
    pub(crate) moves: Vec<(Pointer, Pointer, Option<Cursor>)>,
    /// The mistake of whoever writes last wins.
    pub(crate) last_writer_wins: bool,
}

impl Objects {
    /// Moves the pointer to a greater one only.
    pub(crate) fn advance(&mut self, pointer: Pointer, object: Object, reset: Option<Cursor>) {
        self.stored.entry(pointer.object.clone()).or_insert(object);
        let stays = self.pointer.as_ref().is_some_and(|there| !pointer.supersedes(there, reset));
        if !stays || self.last_writer_wins {
            let before = self.pointer.replace(pointer.clone());
            self.moves.extend(before.map(|before| (before, pointer, reset)));
        }
    }
}
