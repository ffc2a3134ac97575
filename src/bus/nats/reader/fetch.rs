//! A snapshot as an answer: the one that is named, the one that bridges point to, or a fresh one.

use std::time::Duration;

use kvbridge_adapters_api::{SnapshotIntro, SnapshotRefusal};
use kvbridge_schemas::{Cursor, Replica, SnapshotHeader, TierTrust, Trust, subject};
use tokio::sync::mpsc;

use super::{
    Log, Reader, follow::ends, locate::Handle, message::place_of, replay::Broken, source::Part,
};
use crate::{
    bus::nats::{
        session::Session,
        snapshots::{Snapshots, StoreFault, records_of},
    },
    config::limits::BUS_REORDER_MESSAGES,
    shared_log::{Pointer, wish_of},
};

/// How long a bridge may take to store a fresh snapshot. Shorter than recovery waits for progress.
const FRESH_DEADLINE: Duration = Duration::from_secs(4);

/// What is asked.
pub(super) struct Fetch {
    pub(super) replica: Replica,
    /// Name of a stored snapshot.
    pub(super) object: Option<String>,
    /// A view from before it would only lead to it again.
    pub(super) reset: Option<Cursor>,
    /// The cut that was taken last.
    pub(super) taken: Option<Cursor>,
}

/// Answers, or says why not.
pub(super) async fn fetch(
    reader: &Reader,
    log: &Log,
    wanted: Fetch,
    parts: mpsc::Sender<Part>,
) -> Result<(), Broken> {
    let _turn = reader.requests.acquire().await.map_err(|_| Broken::Away)?;
    let session = reader.sessions.borrow().clone().ok_or(Broken::Away)?;
    let answered = tokio::select! {
        answered = answer(reader, log, &session, &wanted, &parts) => answered?,
        () = session.lost.cancelled() => return Err(Broken::Away),
    };
    if let Err(refusal) = answered {
        return parts.send(Part::Refused(refusal)).await.map_err(|_| Broken::Unwanted);
    }
    Ok(())
}

async fn answer(
    reader: &Reader,
    log: &Log,
    session: &Session,
    wanted: &Fetch,
    parts: &mpsc::Sender<Part>,
) -> Result<Result<(), SnapshotRefusal>, Broken> {
    let Ok(store) = Snapshots::open(&session.context, &reader.plan).await else {
        // No bridge of this version has been here.
        return Ok(Err(SnapshotRefusal::Unavailable));
    };
    let (object, stored) = match &wanted.object {
        Some(object) => (object.clone(), None),
        None => match best(log, session, &store, wanted).await? {
            Ok(pointer) => (pointer.object.clone(), Some(pointer.start(BUS_REORDER_MESSAGES))),
            Err(refusal) => return Ok(Err(refusal)),
        },
    };
    if Pointer::replica_of(&object).as_ref() != Some(&wanted.replica) {
        return Ok(Err(SnapshotRefusal::Inconsistent));
    }
    let bytes = match store.get(&object).await {
        Ok(bytes) => bytes,
        Err(StoreFault::Missing) => return Ok(Err(SnapshotRefusal::Unavailable)),
        Err(StoreFault::Server(error)) => return Err(Broken::Server(error)),
    };
    let mut read = records_of(bytes);
    let Ok(header) = read.header().await else { return Ok(Err(SnapshotRefusal::Inconsistent)) };
    let Some(intro) = intro(&header, &wanted.replica) else {
        return Ok(Err(SnapshotRefusal::Inconsistent));
    };
    let send = |part| async { parts.send(part).await.map_err(|_| Broken::Unwanted) };
    send(Part::Intro(intro, stored)).await?;
    while let Some(chunk) = read.chunk().await {
        match chunk {
            Ok(records) => send(Part::Records(records)).await?,
            Err(_) => return Ok(Err(SnapshotRefusal::Inconsistent)),
        }
    }
    send(Part::SnapshotEnd).await?;
    Ok(Ok(()))
}

/// The pointed one, if all that came behind it is still there and it was not taken last; else a
/// fresh one, or the same again if none is to be had.
async fn best(
    log: &Log,
    session: &Session,
    store: &Snapshots,
    wanted: &Fetch,
) -> Result<Result<Pointer, SnapshotRefusal>, Broken> {
    let key = wanted.replica.key();
    let stream = session.context.get_stream_no_info(&log.name).await;
    let stream: Handle = stream.map_err(|error| Broken::server(&error))?;
    let info = stream.get_info().await.map_err(|error| Broken::server(&error))?;
    let newest = stream.direct_get_last_for_subject(subject::hint(&key)).await.ok();
    let life = newest.and_then(|message| place_of(&message.headers)).map(|(epoch, _)| epoch);
    let pointed = match store.pointer(&key).await {
        Ok(pointed) => pointed.map(|(pointer, _)| pointer),
        Err(StoreFault::Missing) => None,
        Err(StoreFault::Server(error)) => return Err(Broken::Server(error)),
    };
    let usable =
        |pointer: &Pointer| pointer.leads_on(ends(&info), life) && pointer.is_behind(wanted.reset);
    let pointed = pointed.filter(usable);
    let (again, new) = match pointed {
        Some(pointer) if pointer.is_cut(wanted.taken) => (Some(pointer), None),
        pointed => (None, pointed),
    };
    if let Some(pointer) = new {
        return Ok(Ok(pointer));
    }
    let instead = |refusal| Ok(again.clone().ok_or(refusal));
    let asked = session.client.request(subject::snapshot(&key), wish_of(wanted.reset).into());
    let Ok(answer) = tokio::time::timeout(FRESH_DEADLINE, asked).await else {
        // A large view takes its time; the pointer will be there when it is asked for again.
        return instead(SnapshotRefusal::Busy);
    };
    let Ok(answer) = answer else {
        // No bridge is there to ask.
        return instead(SnapshotRefusal::Unavailable);
    };
    let fresh = std::str::from_utf8(&answer.payload).ok().and_then(|t| Pointer::parse(t).ok());
    // A bridge that cannot vouch for its view refuses; it may be able to soon.
    fresh.filter(usable).map_or_else(|| instead(SnapshotRefusal::Busy), |fresh| Ok(Ok(fresh)))
}

fn intro(header: &SnapshotHeader, replica: &Replica) -> Option<SnapshotIntro> {
    let host = header.state.as_ref().map_or(header.trust, |state| state.host);
    let stands = header.resume_seq.0 > 0 && header.trust > Trust::None;
    (stands && header.replica == *replica).then_some(SnapshotIntro {
        epoch: Some(header.epoch),
        incarnation: None,
        resume_seq: header.resume_seq,
        last_digest: header.last_digest,
        record_count: header.block_count,
        barrier: None,
        trust: TierTrust { device: header.trust, host },
    })
}
