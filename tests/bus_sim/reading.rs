//! Answers of a log to its readers: what the server and the shell around it do, without either.

use kvbridge::{
    api::{Batch, SnapshotIntro, SnapshotRefusal},
    recovery::Tick,
    schemas::{BusSeq, Cursor, Epoch, Seq, SnapshotHeader, SnapshotRecord, TierTrust, Trust},
    shared_log::{Known, Place, Reorder, ReorderLimits, Search, Start, batch_of},
};

use crate::{
    log::{Log, Object, Stored},
    mistakes::Mistake,
};

/// The window of a publisher, and twice that as the disorder that readers put right.
pub(crate) const WINDOW: usize = 8;
const SLACK: u64 = 16;

pub(crate) const REORDER: ReorderLimits =
    ReorderLimits { count_max: SLACK, bytes_max: 1 << 20, wait_ms: 40 };

/// Part of an answer, with what the reader itself must know of it.
pub(crate) enum Part {
    Continues(Cursor),
    Batch(Batch, BusSeq),
    End(Option<BusSeq>),
    Truncated,
    Failed,
    Intro(SnapshotIntro, Option<Start>),
    Records(Vec<SnapshotRecord>),
    SnapshotEnd,
    Refused(SnapshotRefusal),
}

pub(crate) fn read(stored: &Stored) -> Batch {
    batch_of((*stored.envelope).clone(), 100)
}

fn place(stored: &Stored) -> (Epoch, Seq) {
    (stored.envelope.epoch, stored.envelope.seq)
}

/// Old messages, from the place that is known to serve, or from one that is searched for.
pub(crate) fn replay(log: &Log, known: &Known, mistake: Option<Mistake>) -> Vec<Part> {
    let ends = log.ends();
    let mut parts = Vec::new();
    let (from, epoch) = match known.begin(ends.first) {
        Some(start) => {
            parts.push(Part::Continues(start.cursor));
            (start.from, start.cursor.epoch)
        }
        None => match locate(log, known.start_seq()) {
            Some(found) => found,
            // A log that never had anything is at its end; one that had is not.
            None if known.start_seq() == Seq(0) => return vec![Part::End(None)],
            None => return vec![Part::Truncated],
        },
    };
    let mut window = Reorder::new(REORDER);
    let mut out = Vec::new();
    let covers = |stored: &&Stored| stored.envelope.span > 0;
    for stored in log.from(from).filter(covers) {
        let batch = read(stored);
        if batch.epoch >= Some(epoch) {
            window.push(Tick(0), Place::of(&batch), (batch, stored.at), &mut out);
        }
    }
    window.flush(&mut out);
    let first = out.first().map_or(known.start_seq(), |(batch, _)| batch.seq);
    if mistake == Some(Mistake::RetentionByAppSeq) && first > known.start_seq() {
        return vec![Part::Truncated];
    }
    parts.extend(out.into_iter().map(|(batch, at)| Part::Batch(batch, at)));
    parts.push(Part::End(Some(ends.last)));
    parts
}

fn locate(log: &Log, seq: Seq) -> Option<(BusSeq, Epoch)> {
    let (oldest, newest) = (log.oldest()?, log.newest()?);
    let (epoch, _) = place(newest);
    let wanted = (epoch, seq);
    if place(oldest) >= wanted {
        return Some((oldest.at, epoch));
    }
    let between = (log.ends().first, oldest.at, newest.at);
    let mut search = Search::between(wanted, between, SLACK);
    while let Some(at) = search.next() {
        search.found(log.from(at).next().map(|stored| (stored.at, Some(place(stored)))));
    }
    Some((search.from(), epoch))
}

/// A stored snapshot, as parts.
pub(crate) fn snapshot(object: &Object, behind: Option<Start>) -> Vec<Part> {
    let Some(intro) = intro(&object.header) else {
        return vec![Part::Refused(SnapshotRefusal::Inconsistent)];
    };
    let records = Part::Records(object.records.clone());
    vec![Part::Intro(intro, behind), records, Part::SnapshotEnd]
}

/// Where the log goes on behind a pointed snapshot.
pub(crate) fn behind(pointer: &kvbridge::shared_log::Pointer) -> Start {
    pointer.start(SLACK)
}

fn intro(header: &SnapshotHeader) -> Option<SnapshotIntro> {
    let host = header.state.as_ref().map_or(header.trust, |state| state.host);
    let stands = header.resume_seq.0 > 0 && header.trust > Trust::None;
    stands.then_some(SnapshotIntro {
        epoch: Some(header.epoch),
        incarnation: None,
        resume_seq: header.resume_seq,
        last_digest: header.last_digest,
        record_count: header.block_count,
        barrier: None,
        trust: TierTrust { device: header.trust, host },
    })
}
